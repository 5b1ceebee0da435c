"""MNTDP as an Avalanche strategy: the related task, then a search in the neighbourhood of its path, then freezing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from seu_bench.config import Schedule
from seu_bench.data.avalanche import BatchLoader
from seu_bench.errors import RunError
from seu_bench.training import (
    Phase,
    Stage,
    StagedStrategy,
    StrategyContext,
    TaskData,
    TrainingStage,
    checked_options,
    width_factor,
)
from seu_bench.utils import RandomState
from seu_bench_mntdp import MntdpOptions
from seu_bench_mntdp.candidate import Choices
from seu_bench_mntdp.model import ModularResNet
from seu_bench_mntdp.search import PathSearch
from seu_bench_mntdp.stages import CandidateStage, PriorStage, ReusedStage

#: Channels of every module but the head (published code).
CHANNELS = 64


class Mntdp(StagedStrategy):
    """Veniat, Denoyer & Ranzato 2021: modules of earlier tasks never change, so nothing is forgotten.

    The first task trains a whole network. For each later one a prior names the related task, and:

    - variant d: each candidate "the first p modules of the related path, new ones behind them" is trained, from p = 0
      to all, the head included where it has as many classes; the most accurate one on validation images is kept, of
      equals that which reuses more.
    - variant s: a distribution over such choices at each place is learned together with the new modules; the most
      probable path is then trained.

    Where there are no validation images, the second half of the training images stands in their place from the second
    task on.

    Args:
        model: without modules.
        settings: the strategy's own options.
        options: those of :class:`~seu_bench.training.strategy.StagedStrategy`.
    """

    model: ModularResNet

    state_attributes = ("related", "accuracies")

    def __init__(self, *, model: ModularResNet, settings: MntdpOptions | None = None, **options: Any) -> None:
        super().__init__(model=model, **options)
        self.settings = MntdpOptions() if settings is None else settings
        #: Of the task that is being learned: the related one, -1 before it is known; accuracies of its candidates.
        self.related = -1
        self.accuracies: tuple[float, ...] = ()

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """One training for the first task; then the prior, and the candidates or the search."""
        if task.index == 0:
            return [Phase(lambda: self._first_training(task), lambda _: self._keep(0.0, adopt=True))]
        data = with_validation(task)
        phases = [Phase(lambda: self._prior(data), self._relate)]
        if self.settings.variant == "d":
            last = self.model.places
            phases += [
                Phase(partial(self._candidate, data, reused), partial(self._keep, adopt=reused == last))
                for reused in range(last + 1)
            ]
            return phases
        return [
            *phases,
            Phase(lambda: self._search(data), self._choose),
            Phase(lambda: self._training(data), lambda accuracy: self._keep(accuracy, adopt=True)),
        ]

    def begin_training(self, module: nn.Module, schedule: Schedule) -> None:
        """A fresh optimiser, of the kind that was asked for."""
        super().begin_training(module, schedule)
        if self.settings.optimizer == "adam":
            self.optimizer = torch.optim.Adam(
                self._clipped, lr=schedule.learning_rate, weight_decay=schedule.weight_decay
            )

    def describe(self) -> dict[str, Any]:
        """The module of each place that each task uses, and the task that each module was made for."""
        return {
            "paths": tuple(self.model.paths),
            "unit_tasks": tuple(tuple(tasks) for tasks in self.model.unit_tasks),
        }

    # ------------------------------------------------------------------ stages

    def _first_training(self, task: TaskData) -> TrainingStage:
        self._check_order(task)
        self._try((None,) * self.model.places, "modules", task)
        return CandidateStage(self, task, "training", self.settings.patience)

    def _prior(self, data: TaskData) -> PriorStage:
        self._check_order(data)
        settings, seed = self.settings, self.seed_for("prior", data.index)
        return PriorStage(self.model, data, settings.k, settings.prior_images, self.eval_mb_size, seed, self.device)

    def _candidate(self, data: TaskData, reused: int) -> Stage[Any]:
        """The candidate that reuses so many modules of the related path."""
        name, path = f"prefix {reused}", self.model.paths[self.related]
        if reused < self.model.places:
            self._try((*path[:reused], *(None,) * (self.model.places - reused)), name, data)
            return self._trained(data, name)
        if self.model.can_reuse_head(self.model.unit_tasks[-1][path[-1]]):
            self.model.try_path(path, self.device)
        return ReusedStage(self.model, data, name, self.eval_mb_size, self.seed_for(name, data.index), self.device)

    def _search(self, data: TaskData) -> PathSearch:
        path = self.model.paths[self.related]
        self._try((None,) * self.model.places, "modules", data)
        settings = self.settings
        return PathSearch(self, self.model, data, path, settings.new_module_cost, settings.path_learning_rate)

    def _training(self, data: TaskData) -> Stage[Any]:
        """Training of the path that was found, if anything of it is new."""
        if self.model.best is None:
            raise RuntimeError("no path was found")
        if self.model.best.places:
            return self._trained(data, "training")
        self.model.try_path(self.model.best.choices, self.device)
        return ReusedStage(
            self.model, data, "training", self.eval_mb_size, self.seed_for("training", data.index), self.device
        )

    def _trained(self, data: TaskData, name: str) -> CandidateStage:
        if isinstance(self.dataloader, BatchLoader) and len(self.dataloader.images) != len(data.train):
            # The other half is withheld.
            self.dataloader = BatchLoader(data.train, self.train_mb_size, shuffle=True)
        return CandidateStage(self, data, name, self.settings.patience)

    # ------------------------------------------------------------------ what follows from them

    def _relate(self, task: int) -> None:
        self.related = task

    def _choose(self, choices: Choices) -> None:
        self.model.choose(choices)
        self.model.hold()

    def _keep(self, accuracy: float | None, *, adopt: bool) -> None:
        """Keep the candidate that was tried if none was better so far; with ``adopt`` the task is over."""
        if accuracy is not None:
            if accuracy >= max(self.accuracies, default=0.0) and self.model.tried is not None:
                self.model.hold()
            self.accuracies = (*self.accuracies, accuracy)
        self.model.drop()
        if adopt:
            self.model.adopt()
            self.related, self.accuracies = -1, ()

    def _try(self, choices: Choices, purpose: str, data: TaskData) -> None:
        with RandomState(self.seed_for(f"modules of {purpose}", data.index), self.device).active():
            self.model.try_path(choices, self.device)

    def _check_order(self, task: TaskData) -> None:
        if task.index != self.model.task:
            raise RunError(
                f"task {task.index} cannot follow {self.model.task} learned ones: each task may reuse those before",
                remedy="train on benchmark.train_stream from its beginning, with a strategy made for it",
            )


def with_validation(task: TaskData) -> TaskData:
    """A task's images with some to compare candidates by: its validation images, or the second half of the others."""
    if task.valid is not None and len(task.valid):
        return task
    first, second = task.train.halves()
    # Of a single image there are no halves.
    return replace(task, train=first, valid=second) if len(first) else replace(task, valid=task.train)


def empty_network(context: StrategyContext) -> ModularResNet:
    """A network without modules for the context's stream."""
    options, plan = checked_options(context, MntdpOptions), context.plan
    channels = max(1, round(width_factor(context) * CHANNELS))
    return ModularResNet(
        plan.channels,
        channels,
        plan.classes_per_task,
        split_last=options.split_last,
        shares_heads=plan.scenario != "class",
    )


def build_mntdp(context: StrategyContext) -> Mntdp:
    """The strategy of a run."""
    options = checked_options(context, MntdpOptions)
    return Mntdp.of(context, model=empty_network(context), settings=options)
