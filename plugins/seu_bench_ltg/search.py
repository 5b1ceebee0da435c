"""The search of a task's structure: first-order DARTS over reuse, adapt and new (Li et al., 2019, section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seu_bench.config import Schedule
from seu_bench.models import RepeatedBatches
from seu_bench.training import (
    BestWeights,
    EpochMeter,
    EpochReport,
    Stage,
    TaskData,
    clip_gradients,
    cosine_rate,
    evaluate,
    make_sgd,
    set_rate,
)
from seu_bench_ltg.layer import Decision
from seu_bench_ltg.mixture import Mixture
from seu_bench_ltg.model import GrowingAlexNet


@dataclass(frozen=True)
class SearchSettings:
    """Settings of the search.

    Attributes:
        schedule: of SGD, and the length and batch size of the stage.
        size_penalty: weight of the additions' expected size in the loss.
        arch_learning_rate, arch_weight_decay: of Adam.
        cosine: whether SGD's rate follows the cosine or stays.
        select: whether the state of the lowest validation loss is restored or the last kept.
    """

    schedule: Schedule
    size_penalty: float = 0.001
    arch_learning_rate: float = 0.025
    arch_weight_decay: float = 0.001
    cosine: bool = True
    select: bool = True


class StructureSearch(Stage[tuple[Decision, ...]]):
    """Alternate, batch by batch, a step of the architecture weights on the second half of the training images and a
    step of the new weights on the first. The result is the best candidate of each layer.

    Both losses, and that of the validation images, are cross-entropy plus the size penalty.

    Args:
        mixture: of this task; its weights are what the search starts from.
        eval_batch_size: images per batch in validation.
    """

    def __init__(
        self,
        model: GrowingAlexNet,
        mixture: Mixture,
        data: TaskData,
        settings: SearchSettings,
        seed: int,
        device: torch.device,
        eval_batch_size: int = 512,
    ) -> None:
        super().__init__("search", data.index, settings.schedule.epochs, seed, device)
        self.model = model
        self.mixture = mixture
        self.settings = settings
        self.train_images, self.arch_images = data.train.halves()
        self.valid_images = data.valid
        self.eval_batch_size = eval_batch_size
        self.weights = mixture.weights()
        self.architecture = mixture.architecture()
        self.optimizer = make_sgd(self.weights, settings.schedule)
        # The momenta are those of the paper, and of DARTS.
        self.arch_optimizer = torch.optim.Adam(
            self.architecture,
            lr=settings.arch_learning_rate,
            betas=(0.5, 0.999),
            weight_decay=settings.arch_weight_decay,
        )
        self.best = BestWeights(mixture)

    def run_epoch(self) -> EpochReport:
        """One pass over the first half, and one over the validation images."""
        schedule = self.settings.schedule
        if self.settings.cosine:
            set_rate(self.optimizer, cosine_rate(schedule, self.epoch))
        self.model.train()
        meter = EpochMeter(self.device)
        # A single training image leaves the first half empty.
        batches = self.train_images.batches(schedule.batch_size, shuffle=True) if len(self.train_images) else ()
        with RepeatedBatches() as repeated:
            for x, y in batches:
                arch_x, arch_y = self._arch_batch()
                repeated.begin("architecture")
                self.arch_step(arch_x, arch_y)
                repeated.end(len(arch_y))
                repeated.begin("weights")
                loss, logits = self.weight_step(x, y)
                repeated.end(len(y))
                meter.add(loss, logits, y)
        self._validate()
        return meter.report

    def arch_step(self, x: Tensor, y: Tensor) -> None:
        """Move the architecture weights, and nothing else, by one batch."""
        loss, _ = self.loss(x, y)
        self.arch_optimizer.zero_grad()
        loss.backward(inputs=self.architecture)
        self.arch_optimizer.step()
        self.passed(len(y))

    def weight_step(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Move new units, new adapters and the head, and nothing else, by one batch; returns loss and logits."""
        loss, logits = self.loss(x, y)
        self.optimizer.zero_grad()
        loss.backward(inputs=self.weights)
        if self.settings.schedule.clip_norm is not None:
            clip_gradients(self.weights, self.settings.schedule.clip_norm)
        self.optimizer.step()
        self.passed(len(y))
        return loss, logits

    def loss(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-entropy plus the size penalty, and the logits."""
        logits = self.mixture(self.model, x)
        loss = nn.functional.cross_entropy(logits, y)
        return loss + self.settings.size_penalty * self.mixture.penalty(), logits

    def result(self) -> tuple[Decision, ...]:
        """The best candidates at the lowest validation loss, with the weights that they had then."""
        self.best.restore()
        return self.mixture.decisions()

    def get_extra_state(self) -> dict[str, Any]:
        """New weights and architecture weights, both optimisers, and the best state."""
        return {
            "weights": self.mixture.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "arch_optimizer": self.arch_optimizer.state_dict(),
            "best": self.best.state_dict(),
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.mixture.load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.arch_optimizer.load_state_dict(state["arch_optimizer"])
        self.best.load_state_dict(state["best"])

    def _arch_batch(self) -> tuple[Tensor, Tensor]:
        """A random batch of the second half, drawn anew for every step."""
        positions = torch.randperm(len(self.arch_images))[: self.settings.schedule.batch_size]
        return self.arch_images.gather(positions)

    def _validate(self) -> None:
        if not self.settings.select or self.valid_images is None or not len(self.valid_images):
            return
        self.model.eval()
        _, loss = evaluate(lambda x: self.mixture(self.model, x), self.valid_images, self.eval_batch_size, self.passed)
        with torch.no_grad():
            self.best.offer(loss + self.settings.size_penalty * float(self.mixture.penalty()))
