"""Small networks and images for elastic weight consolidation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from seu_bench.config.protocol import Schedule
from seu_bench.data.images import TaskImages
from seu_bench.models.backbone import BackboneModel
from seu_bench.training.phases import TaskData
from seu_bench_ewc.fisher import FisherStage
from seu_bench_ewc.strategy import Ewc

both = pytest.mark.parametrize("estimator", ["batch", "per_sample"])


#: Heads of the networks made here.
CLASSES = (3, 2)


def ewc(*layers: nn.Module, batch_size: int = 8, **options: Any) -> Ewc:
    """A strategy in double precision over a network of 16 pixels, five tanh units and ``layers``."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), *layers)
    model = BackboneModel(backbone, 5, CLASSES).double()
    return Ewc(model=model, schedule=Schedule(epochs=2, batch_size=batch_size), **options)


def stage(strategy: Ewc, data: TaskImages, estimator: str = "batch") -> FisherStage:
    return FisherStage(strategy, TaskData(data.task, data, None), estimator)  # type: ignore[arg-type]
