"""SEU as an Avalanche strategy: search a unit, expand, create a path, train it, freeze (paper, algorithm 1)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Self, cast

import torch
from torch import nn

from seu_bench import Method
from seu_bench.config import CreationSchedule, SearchSchedule
from seu_bench.config.options import did_you_mean
from seu_bench.errors import OptionError, RequestError, RunError
from seu_bench.models import count_parameters, state_bytes
from seu_bench.training import (
    Cost,
    Phase,
    Stage,
    StageCost,
    StrategyContext,
    TaskData,
    TrainingStage,
    checked_options,
    evaluation_passes,
    on_meta,
)
from seu_bench.training.interfaces import Component
from seu_bench_kit import Adapted, CreationTask, GuardedStage, SearchSpace, SearchTask
from seu_bench_kit.components import component_passes
from seu_bench_kit.costing import task_macs, training_passes
from seu_bench_kit.search_space import make_space
from seu_bench_seu.options import SeuOptions
from seu_bench_seu.super_model import Frozen, Path, SuperModel


class Seu(Method):
    """Lifelong learning with searchable extension units."""

    Options = SeuOptions
    options: SeuOptions
    model: SuperModel

    @classmethod
    def make_model(cls, context: StrategyContext) -> SuperModel:
        """Return an empty super model for the stream."""
        options, size, plan = context.options, context.protocol.model, context.plan
        cells = options.cells or (options.code_cells if options.preset == "code" else None) or size.cells
        channels = options.channels or max(1, round(options.width * size.channels))
        wrap = getattr(context.creator and context.creator.factory, "wrap", None)
        return SuperModel(plan.input, plan.classes_per_task, cells, channels, _space(context), options.stem, wrap)

    @classmethod
    def build(cls, context: StrategyContext) -> Self:
        """Build the strategy of a run.

        Raises:
            RequestError: no searcher or no creator was chosen.
        """
        checked_options(context, SeuOptions)
        strategy, protocol = super().build(context), context.protocol
        strategy._components = _components(context)
        strategy._schedules = protocol.search, protocol.creation
        if context.options.tie_weight_decay:
            decay = {"weight_decay": strategy.schedule.weight_decay}
            search, creation = strategy._schedules
            strategy._schedules = search.model_copy(update=decay), creation.model_copy(update=decay)
        return strategy

    def setup(self) -> None:
        """Begin with nothing."""
        #: As JSON: of text, copies of the state, three a task, make nothing new. Of a model learned before it is plain.
        self.genotypes: dict[int, str | dict[str, Any]] = {}
        #: Paths as they were chosen; the model's own change while a creator tries some.
        self.chosen: dict[int, tuple[int, ...]] = {}
        name = self.options.genotype
        self._genotype = _named(self.model.space, name) if name else None
        #: What no later task may change, as it was when it was first looked at, in this process.
        self._frozen: Frozen = {}
        self._components: tuple[Component, Component]
        self._schedules: tuple[SearchSchedule, CreationSchedule]

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Search, creation from the second task on, and training."""
        creation = Phase(lambda: self._creation(task), lambda path: self._keep(task, path))
        training = Phase(lambda: self._training_stage(task), lambda _: self._freeze(task.index))
        phases = [creation, training] if task.index > 0 else [training]
        if self._genotype is None:
            return [Phase(lambda: self._search(task), lambda genotype: self._expand(task, genotype)), *phases]
        return [_after(partial(self._expand, task, self._genotype), phases[0]), *phases[1:]]

    def describe(self) -> dict[str, Any]:
        """Genotypes and paths per task whose path was chosen, and the task that each unit was made for; where some are
        adapted, what was done in each layer."""
        chosen = sorted(self.chosen)
        told: dict[str, Any] = {
            "genotypes": tuple(self._genotype_of(task) for task in chosen),
            "paths": tuple(self.chosen[task] for task in chosen),
            "unit_tasks": tuple(tuple(tasks) for tasks in self.model.unit_tasks),
        }
        choices = tuple(self.model.choices(task, self.chosen[task]) for task in chosen)
        return told | ({"choices": choices} if any("adapt" in it for it in choices) else {})

    def _genotype_of(self, task: int) -> dict[str, Any]:
        found = self.genotypes[task]
        return dict(json.loads(found) if isinstance(found, str) else found)

    def _search(self, task: TaskData) -> Stage[Any]:
        earlier = (self._genotype_of(known) for known in sorted(self.genotypes) if known < task.index)
        asked = SearchTask(
            images=task.train,
            task=task.index,
            num_classes=self.model.classes_per_task[task.index],
            input=self.model.input,
            space=self.model.space,
            schedule=self._schedules[0],
            seed=self.seed_for("search", task.index),
            device=self.device,
            earlier=tuple(map(self.model.space.from_dict, earlier)),
        )
        return GuardedStage(self._components[0], asked, self.model.space.fault)

    def _expand(self, task: TaskData, genotype: Any) -> None:
        self.genotypes[task.index] = json.dumps(genotype.to_dict())
        with self.drawing("expand", task):
            self.model.expand(genotype, task.index)
        if task.index == 0:
            # One candidate per layer: there is nothing to choose.
            self._keep(task, (0,) * len(self.model.layers))

    def _creation(self, task: TaskData) -> Stage[Path]:
        model, seed = self.model, self.seed_for("creation", task.index)
        before = self._frozen = model.frozen_state(known=self._frozen)
        later = count_parameters(model.heads[task.index + 1 :]) if self.plan.open_ended else 0
        asked = CreationTask(model, task.train, task.index, self._schedules[1], seed, self.device, later)
        return GuardedStage(self._components[1], asked, lambda path: model.result_fault(path, before))

    def _keep(self, task: TaskData, path: Path) -> None:
        self.model.keep(task.index, path)
        self.chosen[task.index] = self.model.paths[task.index]

    def _training_stage(self, task: TaskData) -> TrainingStage:
        if not self.options.warm_start:
            with self.drawing("renew", task):
                self.model.renew(task.index)
        if self._adapts(task.index):
            self._frozen = self.model.frozen_state(task.index, self._frozen)
        return TrainingStage(self, task, keeps_start=self.options.keep_start and task.index > 0)

    def _adapts(self, task: int) -> bool:
        return "adapt" in self.model.choices(task, self.chosen[task])

    def _freeze(self, task: int) -> None:
        # What a creator wraps trains for the first time here: old units are to stay as they are.
        if self._adapts(task) and (fault := self.model.frozen_fault(self._frozen)) is not None:
            remedy = "compute the old unit without changing it, as torch.func.functional_call does"
            raise RunError(
                f"training with the adapted units of {self._components[1]} went wrong: {fault}", remedy=remedy
            )
        self.model.freeze()

    @classmethod
    def forecast(cls, context: StrategyContext) -> Cost:
        """At most: every later task brings to each layer a new unit, or an adapter where that is larger, and computes
        with the first one's units and adapters; at least: it reuses the first one's.

        Without ``genotype`` the range also spans the units: from pooling to 5x5 separable convolutions everywhere.
        """
        options, plan = context.options, context.plan
        space = _space(context)
        least, most = (_named(space, options.genotype),) * 2 if options.genotype else space.extremes
        tasks = len(plan.tasks)
        small, macs_min = _first_task(context, least)
        large, macs = (small, macs_min) if least == most else _first_task(context, most)
        # What a later task brings to each layer: a new unit, but to a shared stem, or an adapter.
        brings: list[list[nn.Module]] = [[units[0]] for units in cast(Sequence[nn.ModuleList], large.layers)]
        if options.stem == "shared":
            brings[0].clear()
        if adapted := _adapted(context, large):
            for there, it in zip(brings, adapted, strict=True):
                there.append(it.module)
            for task in range(1, tasks):
                large.set_path(task, adapted)
            macs = macs[:1] + task_macs(large, plan)[1:]
        column, column_bytes = (
            sum(max(map(count, there), default=0) for there in brings) for count in (count_parameters, state_bytes)
        )
        first, first_bytes = count_parameters(small), state_bytes(small)
        return Cost(
            tuple(count_parameters(large) + column * task for task in range(tasks)),
            (first,) * tasks,
            macs,
            macs_min,
            _stages(context),
            tuple(state_bytes(large) + column_bytes * task for task in range(tasks)),
            (first_bytes,) * tasks,
        )


def _after(prepare: Callable[[], None], phase: Phase) -> Phase:
    """``phase``, with something to do before its stage is made."""

    def make() -> Stage[Any]:
        prepare()
        return phase.make()

    return Phase(make, phase.apply)


def _components(context: StrategyContext) -> tuple[Component, Component]:
    if context.searcher is None or context.creator is None:
        raise RequestError("strategy 'seu' needs a searcher and a creator", remedy="give --searcher and --creator")
    return context.searcher, context.creator


def _space(context: StrategyContext) -> SearchSpace:
    if context.space is None:
        raise RequestError("strategy 'seu' needs a search space", remedy="give -o space=darts_cell")
    return make_space(context.options, context.space)


def _named(space: SearchSpace, name: str) -> Any:
    """A published genotype by name."""
    if name not in space.named:
        known = ", ".join(space.named)
        raise OptionError(
            f"no genotype is called {name!r}{did_you_mean(name, space.named)}",
            remedy=f"the genotypes are: {known}" if known else "leave the option out: the search space has none",
        )
    return space.named[name]


def _first_task(context: StrategyContext, genotype: Any) -> tuple[SuperModel, tuple[int, ...]]:
    """The super model after one task, and multiply-accumulates of each task on its path."""
    plan = context.plan
    model = on_meta(lambda: Seu.make_model(context))
    with torch.device("meta"):
        model.expand(genotype, 0)
    for task in range(len(plan.tasks)):
        model.set_path(task, [0] * len(model.layers))
    return model, task_macs(model, plan, one_path=True)


def _adapted(context: StrategyContext, model: SuperModel) -> list[Adapted]:
    """The first task's units by layer, each with the largest adapter; none if the creator adapts no units."""
    if model.wrap is None:
        return []
    model.freeze()
    largest, layers = _components(context)[1].factory.largest, range(len(model.layers))
    # A batch of one, by which operations are counted, has no statistics.
    return [Adapted(0, largest, on_meta(partial(model.wrapped, layer, 0, largest)).eval()) for layer in layers]


def _stages(context: StrategyContext) -> tuple[StageCost, ...]:
    options, plan, protocol = context.options, context.plan, context.protocol
    searcher, creator = _components(context)
    stages: list[StageCost] = []
    for index, task in enumerate(plan.tasks):
        if not options.genotype:
            train, score = component_passes(searcher, protocol.search, task.num_train)
            stages.append(StageCost("search", index, train, score))
        if index:
            train, score = component_passes(creator, protocol.creation, task.num_train)
            stages.append(StageCost("creation", index, train, score))
    training, selects = options.applied_to(protocol.training), options.restore == "best_valid"
    for stage, task in zip(training_passes(plan, training, validate=selects), plan.tasks, strict=True):
        start = task.num_valid if selects and options.keep_start and stage.task else 0
        stages.append(replace(stage, evaluate=stage.evaluate + start))
    return tuple(stages + evaluation_passes(plan))
