"""LwF (Z. Li & D. Hoiem, "Learning without Forgetting", ECCV 2016)."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy, kl_div, log_softmax, softmax

from seu_bench import Method
from seu_bench.config import LEARNING_RATES, BackboneOptions, TuningGrid
from seu_bench.training import TaskData


class Lwf(Method):
    """Learning without forgetting: distils the old heads (Li & Hoiem 2016).

    The loss of a batch is ``cross-entropy + alpha * sum over old heads of KL(softmax(f*/T) | softmax(f/T))``, where
    ``f*`` are the answers to the same images that the network gave after the task before, in evaluation mode. Where
    one head answers for all tasks, it is distilled in its outputs for the classes of earlier tasks.
    """

    name = "lwf"
    title = "LwF"
    citation = "seu_bench_kit:li2016learning"
    check_options = {"backbone": "mlp"}

    class Options(BackboneOptions):
        """Options of learning without forgetting."""

        tuning_grid: ClassVar[TuningGrid] = {"alpha": (0.3, 1.0, 3.0, 10.0), "learning_rate": LEARNING_RATES}

        alpha: NonNegativeFloat = Field(1.0, description="weight of the distillation loss")
        temperature: PositiveFloat = Field(2.0, description="temperature of the distilled softmax")

    options: Options

    def setup(self) -> None:
        """Begin without a teacher."""
        self.teacher: dict[str, Tensor] = {}

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        """Add the distillation of all old heads, for which teacher and network pass the images once each."""
        loss, t, network = cross_entropy(logits, y), self.options.temperature, self.network
        if not self.teacher:
            return loss
        network.known_train_tasks_labels = set(range(self.learned))  # whose heads answer
        with torch.no_grad(), self.measuring():
            before = functional_call(network, self.teacher, (x, None))
        now = network(x, None)
        self.count_images(2 * len(x))
        old = sum(self.plan.classes_per_task[: self.learned]) if network.scenario == "class" else None
        for head, target in before.items():
            answer = log_softmax(now[head][:, :old] / t, dim=1)
            distance = kl_div(answer, softmax(target[:, :old] / t, dim=1), reduction="batchmean")
            loss = loss + self.options.alpha * distance
        return loss

    def after_task(self, task: TaskData) -> None:
        """Make the network as it is the teacher; of a frozen backbone no copy is needed."""
        frozen = self.network.has_frozen_layers
        state = self.model.state_dict().items()
        self.teacher = {name: it.clone() for name, it in state if not (frozen and name.startswith("backbone."))}
