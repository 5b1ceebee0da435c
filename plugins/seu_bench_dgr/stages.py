"""The stages that learn a task."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from seu_bench.data import TaskImages
from seu_bench.models import RepeatedBatches, freeze
from seu_bench.training import EpochReport, Stage, StagedStrategy, TaskData, TrainingStage
from seu_bench_dgr import DgrOptions
from seu_bench_dgr.generators import ImageGenerator, Sources
from seu_bench_dgr.replay import OldScholar, share_of_task

#: Steps in an epoch of the stage ``generator``, between two of which a run can be interrupted.
STEPS = 100

#: Learning rates of Adam where none is given (van de Ven & Tolias 2018; the public re-implementation).
RATES = {"vae": 0.001, "wgan_gp": 0.0001}


class SolverStage(TrainingStage):
    """The usual training; the old solver, which labels what is replayed, belongs to its state.

    Args:
        strategy: that learns.
        task: to learn.
        old: what replays; ``None`` in the first task.
    """

    def __init__(self, strategy: StagedStrategy, task: TaskData, old: OldScholar | None) -> None:
        super().__init__(strategy, task)
        self.old = old

    def get_extra_state(self) -> dict[str, Any]:
        """Weights and optimiser, and the old solver's weights."""
        old = None if self.old is None else self.old.solver.state_dict()
        return {**super().get_extra_state(), "old": old}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        super().set_extra_state(state)
        if self.old is not None:
            self.old.solver.load_state_dict(state["old"])


class GeneratorStage(Stage[None]):
    """The generator learns a task's images, and those that it made before: the old one is a copy, frozen.

    Every step takes a batch of the same size, the training's, or all images where there are fewer.

    Args:
        strategy: that learns.
        task: to learn.
        generator: that learns; the model's.
        options: the strategy's.

    Attributes:
        generator: as given.
        old: what replays; ``None`` in the first task.
    """

    def __init__(
        self, strategy: StagedStrategy, task: TaskData, generator: ImageGenerator, options: DgrOptions
    ) -> None:
        self.options = options
        self.steps = options.generator_iterations
        epochs, seed = -(-self.steps // STEPS), strategy.seed_for("generator", task.index)
        super().__init__("generator", task.index, epochs, seed, strategy.device)
        self.strategy = strategy
        self.images = task.train
        self.generator = generator
        self.old: ImageGenerator | None = None
        if task.index:
            self.old = copy.deepcopy(self.generator)
            freeze(self.old)
        else:
            self.generator.fit_range(task.train)
        self.trainer = self.generator.trainer(options.generator_learning_rate or RATES[options.generator])

    def run_epoch(self) -> EpochReport:
        """Some steps; the last epoch may have fewer."""
        self.strategy.model.train()
        replayed = None if self.old is None else self._replayed_by(self.old)
        sources = Sources(self._real(), replayed, share_of_task(self.task))
        steps = min(STEPS, self.steps - self.epoch * STEPS)
        total = torch.zeros((), device=self.device)
        with RepeatedBatches() as repeated:
            for _ in range(steps):
                repeated.begin()
                before = self.trainer.passes
                total += self.trainer.step(sources)
                passes = self.trainer.passes - before
                repeated.end(passes)
                self.passed(passes)
        return EpochReport(float(total) / steps)

    def result(self) -> None:
        """Nothing: the generator that learned is the model's."""

    def get_extra_state(self) -> dict[str, Any]:
        """Weights of the generator and of the old one, and the optimisers."""
        return {
            "weights": self.generator.state_dict(),
            "old": None if self.old is None else self.old.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.trainer.optimizers],
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.generator.load_state_dict(state["weights"])
        if self.old is not None:
            self.old.load_state_dict(state["old"])
        for optimizer, saved in zip(self.trainer.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)

    def _real(self) -> Callable[[], Tensor]:
        batches = endless(self.images, self.strategy.schedule.batch_size)
        return lambda: self.generator.scaled(next(batches))

    def _replayed_by(self, old: ImageGenerator) -> Callable[[int], Tensor]:
        @torch.no_grad()
        def replayed(count: int) -> Tensor:
            return old.pixels(self.options.replayed_beside(count))

        return replayed


def endless(images: TaskImages, size: int) -> Iterator[Tensor]:
    """Yield batches ``[size, C, H, W]`` for ever, in a new order with each turn; what does not fill one is left out of
    the turn. There are never more than all images in a batch."""
    size = min(size, len(images))
    while True:
        order = torch.randperm(len(images))
        for start in range(0, len(images) - size + 1, size):
            yield images.gather(order[start : start + size])[0]
