"""MNTDP, modular networks with task-driven priors (T. Veniat, L. Denoyer, M. Ranzato, "Efficient Continual Learning
with Modular Networks and Task-Driven Priors", ICLR 2021, arXiv:2012.12631)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import accumulate
from typing import Any, Final, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn

from seu_bench import Method
from seu_bench.config import Schedule, SelectingOptions, TaskInferenceOptions
from seu_bench.data import TaskPlan
from seu_bench.data.avalanche import BatchLoader
from seu_bench.models import count_parameters, state_bytes
from seu_bench.models.multihead import out_of_turn
from seu_bench.training import (
    Cost,
    PassFlops,
    Phase,
    Stage,
    StageCost,
    StrategyContext,
    TaskData,
    TrainingStage,
    evaluation_passes,
    on_meta,
    pass_flops,
    width_factor,
)
from seu_bench_kit.costing import task_macs
from seu_bench_mntdp.network import Choices, ModularResNet
from seu_bench_mntdp.stages import CandidateStage, PathSearch, PriorStage, ReusedStage

#: Channels of every module but the head (published code).
CHANNELS: Final = 64


class Mntdp(Method):
    """MNTDP: modules reused as the path of the most related task suggests (Veniat et al. 2021).

    Modules of earlier tasks never change, so nothing is forgotten. The first task trains a whole network. For each
    later one a prior names the related task, and:

    - variant d: each candidate "the first p modules of the related path, new ones behind them" is trained, from p = 0
      to all, the head included where it has as many classes; the most accurate one on validation images is kept, of
      equals that which reuses more.
    - variant s: a distribution over such choices at each place is learned together with the new modules; the most
      probable path is then trained.

    Where there are no validation images, the second half of the training images stands in their place from the second
    task on.
    """

    name = "mntdp"
    scenarios = ("task",)

    class Options(SelectingOptions, TaskInferenceOptions):
        """Options of MNTDP; ``epochs`` is how long each candidate is trained, with variant s the search and again the
        training."""

        variant: Literal["d", "s"] = Field(
            "d", description="d: every prefix of the related path is tried; s: a distribution over paths is learned"
        )
        k: PositiveInt = Field(15, description="neighbours that vote in the prior (published code; 5 on S_long)")
        prior_images: PositiveInt = Field(1000, description="training images, at most, that the neighbours are among")
        split_last: bool = Field(
            False, description="whether the last group is two modules (published on S_in and S_long)"
        )
        optimizer: Literal["sgd", "adam"] = Field("sgd", description="of the modules; adam is published")
        patience: PositiveInt | None = Field(
            None,
            description="steps without a lower validation loss after which a candidate's training ends, with its epoch "
            "(published: 300); none: it has all epochs",
        )
        new_module_cost: NonNegativeFloat = Field(0.01, description="variant s: reward lost for each new module")
        path_learning_rate: PositiveFloat = Field(0.05, description="variant s: of Adam on the distribution over paths")
        width: PositiveFloat | None = Field(None, description="factor of the modules' 64 channels")
        backbone: Literal["resnet18_even"] = Field(
            "resnet18_even",
            description="network that the modules are parts of; runs of it are what transfer is counted from",
        )

    options: Options
    model: ModularResNet

    @classmethod
    def make_model(cls, context: StrategyContext) -> ModularResNet:
        """A network without modules."""
        plan, channels = context.plan, max(1, round(width_factor(context) * CHANNELS))
        split_last, shares_heads = context.options.split_last, plan.scenario != "class"
        return ModularResNet(
            plan.channels, channels, plan.classes_per_task, split_last=split_last, shares_heads=shares_heads
        )

    def setup(self) -> None:
        """Begin with nothing; all of it belongs to the task that is being learned."""
        #: The related task, -1 before it is known, and accuracies of the candidates so far.
        self.related = -1
        self.accuracies: tuple[float, ...] = ()

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """One training for the first task; then the prior, and the candidates or the search."""
        if task.index == 0:
            return [Phase(lambda: self._first_training(task), lambda _: self._keep(0.0, adopt=True))]
        data = with_validation(task)
        phases = [Phase(lambda: self._prior(data), self._relate)]
        if self.options.variant == "d":
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
        if self.options.optimizer == "adam":
            self.optimizer = torch.optim.Adam(
                self._clipped, lr=schedule.learning_rate, weight_decay=schedule.weight_decay
            )

    def describe(self) -> dict[str, Any]:
        """The module of each place that each task uses, and the task that each module was made for."""
        return {"paths": tuple(self.model.paths), "unit_tasks": tuple(map(tuple, self.model.unit_tasks))}

    # ------------------------------------------------------------------ stages

    def _first_training(self, task: TaskData) -> TrainingStage:
        self._check_order(task)
        self._try((None,) * self.model.places, "modules", task)
        return CandidateStage(self, task, "training")

    def _prior(self, data: TaskData) -> PriorStage:
        self._check_order(data)
        return PriorStage(self, data)

    def _candidate(self, data: TaskData, reused: int) -> Stage[Any]:
        """The candidate that reuses so many modules of the related path."""
        name, path = f"prefix {reused}", self.model.paths[self.related]
        if reused < self.model.places:
            self._try((*path[:reused], *(None,) * (self.model.places - reused)), name, data)
            return self._trained(data, name)
        if self.model.can_reuse_head(self.model.unit_tasks[-1][path[-1]]):
            self.model.try_path(path, self.device)
        return ReusedStage(self, data, name)

    def _search(self, data: TaskData) -> PathSearch:
        self._try((None,) * self.model.places, "modules", data)
        return PathSearch(self, data, self.model.paths[self.related])

    def _training(self, data: TaskData) -> Stage[Any]:
        """Training of the path that was found, if anything of it is new."""
        if self.model.best is None:
            raise RuntimeError("no path was found")
        if self.model.best.places:
            return self._trained(data, "training")
        self.model.try_path(self.model.best.choices, self.device)
        return ReusedStage(self, data, "training")

    def _trained(self, data: TaskData, name: str) -> CandidateStage:
        if isinstance(self.dataloader, BatchLoader) and len(self.dataloader.images) != len(data.train):
            # The other half is withheld.
            self.dataloader = BatchLoader(data.train, self.train_mb_size, shuffle=True)
        return CandidateStage(self, data, name)

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
            self.setup()

    def _try(self, choices: Choices, purpose: str, data: TaskData) -> None:
        with self.drawing(f"modules of {purpose}", data):
            self.model.try_path(choices, self.device)

    def _check_order(self, task: TaskData) -> None:
        if task.index != self.model.task:
            raise out_of_turn(task.index, self.model.task)

    # ------------------------------------------------------------------ cost

    @classmethod
    def forecast(cls, context: StrategyContext) -> Cost:
        """What a candidate takes is exact; how many modules stay, and how many bodies the prior asks, are ranges.

        At most every task makes all of its modules; at least a head alone, or nothing where a head of as many classes
        is there.
        """

        def whole() -> ModularResNet:
            network = cls.make_model(context)
            for _ in classes:
                network.add_new()
            return network

        classes = context.plan.classes_per_task
        network, tasks = on_meta(whole), range(len(classes))
        macs = task_macs(network, context.plan)
        most = [network.task_module(task) for task in tasks]
        reusable = [network.shares_heads and width in classes[:task] for task, width in enumerate(classes)]
        heads = [nn.ModuleList([] if reusable[task] else [network.head(task)]) for task in tasks]
        sizes = [
            tuple(accumulate(map(count, modules)))
            for count in (count_parameters, state_bytes)
            for modules in (most, [most[0], *heads[1:]])
        ]
        stages = (*cls._stage_costs(context), *evaluation_passes(context.plan))
        return Cost(sizes[0], sizes[1], macs, macs, stages, sizes[2], sizes[3])

    @classmethod
    def _stage_costs(cls, context: StrategyContext) -> Iterator[StageCost]:
        options, plan = context.options, context.plan
        schedule = options.applied_to(context.protocol.training)
        counted = cache(partial(cls._operations, context))
        for index, task in enumerate(plan.tasks):
            (*new, reused), body = counted(task.num_classes)
            train, valid = compared_images(task) if index else (task.num_train, task.num_valid)
            training = partial(training_cost, index, train, valid, schedule, options)
            if index == 0:
                yield training("training", new[0])
                continue
            # There may be a single body that all tasks share, or one for each, whose heads may fit or not.
            asked = min(options.prior_images, train) + valid
            heads = valid * (reused.evaluate - body)
            yield StageCost("prior", index, 0, index * asked, index * (asked * body + heads), asked * body)
            if options.variant == "d":
                for number, candidate in enumerate(new):
                    yield training(f"prefix {number}", candidate)
                widths = plan.classes_per_task[: index + 1]
                passes = valid if plan.scenario != "class" and task.num_classes in widths[:-1] else 0
                least = passes if len({*widths}) == 1 else 0
                flops = passes * reused.evaluate, least * reused.evaluate
                yield StageCost(f"prefix {len(new)}", index, 0, passes, *flops)
            else:
                searched = schedule.epochs * train
                yield StageCost("search", index, searched, 0, searched * new[0].train, searched * reused.evaluate)
                # The path that was found may be any; one without new modules is measured, and no more.
                yield replace(training("training", new[0]), flops_min=valid * reused.evaluate)

    @classmethod
    def _operations(cls, context: StrategyContext, classes: int) -> tuple[tuple[PassFlops, ...], int]:
        """Operations per image of candidates for tasks of so many classes, by the number of modules that are reused,
        from none to all; and of a path without its head, forward."""
        first = replace(context.plan.tasks[0], num_classes=classes)
        plan = replace(context.plan, tasks=(first, first), scenario="task")  # where a head may be reused
        network = on_meta(lambda: cls.make_model(replace(context, plan=plan)))
        with torch.device("meta"):
            network.add_new()
            found = []
            for reused in range(network.places + 1):
                network.try_path((*network.paths[0][:reused], *(None,) * (network.places - reused)))
                network.train()
                found.append(pass_flops(partial(network.forward_single_task, task_label=1), plan))
        return tuple(found), pass_flops(partial(network.features, task=0), plan).evaluate


def with_validation(task: TaskData) -> TaskData:
    """A task's images with some to compare candidates by: its validation images, or the second half of the others."""
    if task.valid is not None and len(task.valid):
        return task
    first, second = task.train.halves()
    # Of a single image there are no halves.
    return replace(task, train=first, valid=second) if len(first) else replace(task, valid=task.train)


def compared_images(task: TaskPlan) -> tuple[int, int]:
    """Numbers of images that :func:`with_validation` gives."""
    if task.num_valid:
        return task.num_train, task.num_valid
    return max(1, task.num_train // 2), max(1, task.num_train - task.num_train // 2)


def training_cost(
    task: int, train: int, valid: int, schedule: Schedule, options: Mntdp.Options, name: str, flops: PassFlops
) -> StageCost:
    """The training of a candidate, which is measured after each epoch, or after the last."""
    selects = options.restore == "best_valid"

    def operations(epochs: int) -> int:
        return epochs * train * flops.train + (epochs if selects else 1) * valid * flops.evaluate

    epochs = fewest = schedule.epochs
    if options.patience is not None and selects and valid:
        fewest = min(epochs, 1 + math.ceil(options.patience / math.ceil(train / schedule.batch_size)))
    evaluated = (epochs if selects else 1) * valid
    return StageCost(name, task, epochs * train, evaluated, operations(epochs), operations(fewest))
