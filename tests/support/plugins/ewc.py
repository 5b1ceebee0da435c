"""Small networks and images for elastic weight consolidation."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from seu_bench.config.protocol import Schedule
from seu_bench.data.images import TaskImages
from seu_bench.models.backbone import BackboneModel
from seu_bench.training.method import Step
from seu_bench.training.stage import TaskData
from seu_bench_methods.ewc import Ewc

#: Heads of the networks made here.
CLASSES = (3, 2)


def ewc(*layers: nn.Module, batch_size: int = 8, **options: Any) -> Ewc:
    """A method in double precision over a network of 16 pixels, five tanh units and ``layers``."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), *layers)
    model = BackboneModel(backbone, 5, CLASSES).double()
    made = Ewc(model=model, schedule=Schedule(epochs=2, batch_size=batch_size))
    return made.begin(Ewc.Options(**options), None)  # type: ignore[arg-type]


class Estimate(Step):
    """The stage after a task, whose result is the Fisher information of that task alone."""

    def __init__(self, method: Ewc, task: TaskData) -> None:
        super().__init__(method, "fisher", task, method.after_task)
        self.method = method

    def result(self) -> dict[str, Tensor]:  # type: ignore[override]
        super().result()
        return self.method.fisher


def stage(method: Ewc, data: TaskImages) -> Estimate:
    """The stage of a method, which stays as it is: a copy on the same model holds nothing yet."""
    alone = copy.copy(method)
    alone.fisher = {}
    alone._stage = found = Estimate(alone, TaskData(data.task, data, None))
    return found
