"""SEU as an Avalanche strategy: search a unit, expand, create a path, train it, freeze (paper, algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from seu_bench.config import CreationSchedule, SearchSchedule
from seu_bench.errors import RequestError
from seu_bench.models import RepeatedBatches, count_parameters, state_bytes
from seu_bench.training import (
    Cost,
    EpochReport,
    Phase,
    Stage,
    StageCost,
    StagedStrategy,
    StrategyContext,
    TaskData,
    TrainingStage,
    checked_options,
    evaluation_passes,
    on_meta,
)
from seu_bench.utils import RandomState, derive_seed
from seu_bench_kit import (
    CreationTask,
    Genotype,
    SearchSpace,
    SearchTask,
    guarded_stage,
    named_genotype,
    uniform_genotype,
)
from seu_bench_kit.components import component_passes
from seu_bench_kit.costing import task_macs, training_passes
from seu_bench_kit.search_space import stem_parameters
from seu_bench_seu.options import Adaptation, SeuOptions, Statistics
from seu_bench_seu.statistics import UnitNorms, UnitStatistics
from seu_bench_seu.super_model import SuperModel


class StatisticsStage(Stage[dict[int, UnitStatistics]]):
    """One pass over a task's training images on its path; the result has the statistics of each layer whose unit is
    reused. No epoch where the path reuses nothing.

    Batches are shuffled, for a batch should look like the task. Reused units are normalised by the batch, so that each
    sees what the ones before it will give once they have the new statistics; new units are computed as creation left
    them. Nothing of the model changes.

    Args:
        model: the task has its path, and the units that it reuses are frozen.
        batch_size: images in a batch.
        seed: of the order of images.
    """

    def __init__(self, model: SuperModel, task: TaskData, batch_size: int, seed: int, device: torch.device) -> None:
        self.path = [model.unit(layer, index) for layer, index in enumerate(model.paths[task.index])]
        self.estimates = {layer: UnitStatistics(unit) for layer, unit in enumerate(self.path) if unit.frozen}
        super().__init__("statistics", task.index, 1 if self.estimates else 0, seed, device)
        self.model = model
        self.images = task.train
        self.batch_size = batch_size

    def run_epoch(self) -> EpochReport:
        """The pass; neither loss nor accuracy is measured."""
        self.model.eval()
        with torch.no_grad(), RepeatedBatches() as repeated, ExitStack() as modes:
            for layer, estimate in self.estimates.items():
                modes.enter_context(estimate.estimated_by(self.path[layer]))
            for x, y in self.images.batches(self.batch_size, shuffle=True):
                repeated.begin()
                self._compute(x)
                repeated.end(len(y))
                self.count_images(len(y))
        return EpochReport()

    def result(self) -> dict[int, UnitStatistics]:
        """The statistics by layer."""
        return self.estimates

    def get_extra_state(self) -> dict[str, Any]:
        """The statistics as far as they are."""
        return {"estimates": {layer: estimate.state_dict() for layer, estimate in self.estimates.items()}}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        for layer, estimate in self.estimates.items():
            estimate.load_state_dict(state["estimates"][layer])

    def _compute(self, x: Tensor) -> None:
        inputs: tuple[Tensor, ...] = (x,)
        for layer, unit in enumerate(self.path[: max(self.estimates) + 1]):
            estimate = self.estimates.get(layer)
            output: Tensor = unit(*inputs) if estimate is None else estimate(unit, *inputs)
            inputs = (output, output) if layer == 0 else (inputs[-1], output)


class Seu(StagedStrategy):
    """Lifelong learning with searchable extension units.

    Args:
        model: an empty super model.
        searcher: makes the search stage of a task; ``None`` with a fixed ``genotype``.
        creator: makes the creation stage of a task.
        search_schedule, creation_schedule: the protocol's budgets, handed to searcher and creator.
        genotype: for every task, in place of a search.
        warm_start: whether training starts from the weights of the creation stage.
        statistics: whether a task keeps the running statistics of units that it reuses, or has its own.
        adaptation: what a task trains for itself of units that it reuses.
        options: those of :class:`~seu_bench.training.strategy.StagedStrategy`.
    """

    model: SuperModel

    def __init__(
        self,
        *,
        model: SuperModel,
        searcher: Callable[[SearchTask], Stage[Genotype]] | None,
        creator: Callable[[CreationTask], Stage[tuple[int, ...]]],
        search_schedule: SearchSchedule,
        creation_schedule: CreationSchedule,
        genotype: Genotype | None = None,
        warm_start: bool = True,
        statistics: Statistics = "frozen",
        adaptation: Adaptation = "none",
        **options: Any,
    ) -> None:
        super().__init__(model=model, **options)
        if searcher is None and genotype is None:
            raise ValueError("SEU needs a searcher or a fixed genotype")
        self.searcher = searcher
        self.creator = creator
        self.search_schedule = search_schedule
        self.creation_schedule = creation_schedule
        self.genotype = genotype
        self.warm_start = warm_start
        self.statistics: Statistics = statistics
        self.adaptation: Adaptation = adaptation
        self.genotypes: dict[int, Genotype] = {}
        #: Paths as they were chosen; the model's own change while a creator tries some.
        self.chosen: dict[int, tuple[int, ...]] = {}

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Search, creation and perhaps statistics of its own (from the second task on), and training."""
        creation = Phase(lambda: self._creation(task), lambda path: self._keep(task, path))
        training = Phase(lambda: self._training(task), lambda _: self.model.freeze())
        statistics = Phase(
            lambda: self._estimation(task), lambda estimates: self.model.statistics.add(task.index, estimates)
        )
        phases = [training]
        if task.index > 0:
            phases = [creation, *([statistics] if self.statistics == "per_task" else []), training]
        if self.genotype is None:
            return [Phase(lambda: self._search(task), lambda genotype: self._expand(task, genotype)), *phases]
        return [_after(partial(self._expand, task, self.genotype), phases[0]), *phases[1:]]

    def get_extra_state(self) -> dict[str, Any]:
        """Genotypes and paths."""
        return {
            "genotypes": {task: genotype.to_dict() for task, genotype in self.genotypes.items()},
            "chosen": {task: list(path) for task, path in self.chosen.items()},
        }

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        self.genotypes = {task: Genotype.from_dict(value) for task, value in state["genotypes"].items()}
        self.chosen = {task: tuple(path) for task, path in state["chosen"].items()}

    def describe(self) -> dict[str, Any]:
        """Genotypes and paths per task whose path was chosen, and the task that each unit was made for."""
        chosen = sorted(self.chosen)
        return {
            "genotypes": tuple(self.genotypes[task].to_dict() for task in chosen),
            "paths": tuple(self.chosen[task] for task in chosen),
            "unit_tasks": tuple(tuple(tasks) for tasks in self.model.unit_tasks),
        }

    def _search(self, task: TaskData) -> Stage[Genotype]:
        if self.searcher is None:
            raise ValueError("SEU needs a searcher")
        return self.searcher(
            SearchTask(
                images=task.train,
                task=task.index,
                num_classes=self.model.classes_per_task[task.index],
                space=self.model.space,
                schedule=self.search_schedule,
                seed=self.seed_for("search", task.index),
                device=self.device,
                earlier=tuple(self.genotypes[earlier] for earlier in sorted(self.genotypes) if earlier < task.index),
            )
        )

    def _expand(self, task: TaskData, genotype: Genotype) -> None:
        self.genotypes[task.index] = genotype
        with RandomState(self.seed_for("expand", task.index), self.device).active():
            self.model.expand(genotype, task.index)
        if task.index == 0:
            # One candidate per layer: there is nothing to choose.
            self._keep(task, (0,) * len(self.model.layers))

    def _creation(self, task: TaskData) -> Stage[tuple[int, ...]]:
        return self.creator(
            CreationTask(
                model=self.model,
                images=task.train,
                task=task.index,
                schedule=self.creation_schedule,
                seed=self.seed_for("creation", task.index),
                device=self.device,
            )
        )

    def _keep(self, task: TaskData, path: tuple[int, ...]) -> None:
        self.model.keep(task.index, path)
        self.chosen[task.index] = self.model.paths[task.index]

    def _estimation(self, task: TaskData) -> StatisticsStage:
        seed = self.seed_for("statistics", task.index)
        return StatisticsStage(self.model, task, self.schedule.batch_size, seed, self.device)

    def _training(self, task: TaskData) -> TrainingStage:
        if self.adaptation == "norms":
            self.model.adapt(task.index)
        if not self.warm_start:
            with RandomState(self.seed_for("renew", task.index), self.device).active():
                self.model.renew(task.index)
                head = self.model.heads[task.index]
                if isinstance(head, nn.Linear):
                    head.reset_parameters()
        return self.training_stage(task)


def _after(prepare: Callable[[], None], phase: Phase) -> Phase:
    """``phase``, with something to do before its stage is made."""

    def make() -> Stage[Any]:
        prepare()
        return phase.make()

    return Phase(make, phase.apply)


def seu_options(context: StrategyContext) -> SeuOptions:
    """The context's options as SEU's."""
    return checked_options(context, SeuOptions)


def make_super_model(context: StrategyContext) -> SuperModel:
    """An empty super model for the stream."""
    options, size, plan = seu_options(context), context.protocol.model, context.plan
    cells = options.cells or (options.code_cells if options.preset == "code" else None) or size.cells
    channels = options.channels or max(1, round(options.width * size.channels))
    space = SearchSpace(options.edges, options.cell_types, options.factorized_reduce_norm)
    return SuperModel(plan.channels, plan.classes_per_task, cells, channels, space, options.stem)


def build_seu(context: StrategyContext) -> Seu:
    """The strategy of a run.

    Raises:
        RequestError: no searcher or no creator was chosen.
    """
    options, protocol = seu_options(context), context.protocol
    searcher, creator = context.searcher, context.creator
    if searcher is None or creator is None:
        raise RequestError("strategy 'seu' needs a searcher and a creator", remedy="give --searcher and --creator")
    training = options.applied_to(protocol.training)
    search_schedule, creation_schedule = protocol.search, protocol.creation
    if options.tie_weight_decay:
        decay = {"weight_decay": training.weight_decay}
        search_schedule = search_schedule.model_copy(update=decay)
        creation_schedule = creation_schedule.model_copy(update=decay)

    def search(task: SearchTask) -> Stage[Genotype]:
        return guarded_stage(searcher, task, task.space.fault)

    def create(task: CreationTask) -> Stage[tuple[int, ...]]:
        before = model.frozen_state()
        return guarded_stage(creator, task, lambda path: model.path_fault(path) or model.frozen_fault(before))

    with RandomState(derive_seed(context.seed, "model")).active():
        model = make_super_model(context)
    return Seu.of(
        context,
        model=model,
        searcher=search,
        creator=create,
        search_schedule=search_schedule,
        creation_schedule=creation_schedule,
        genotype=named_genotype(options.genotype) if options.genotype else None,
        warm_start=options.warm_start,
        statistics=options.statistics,
        adaptation=options.adaptation,
    )


def seu_cost(context: StrategyContext) -> Cost:
    """At most: every task brings a new unit to each layer; at least: every later task reuses the first one's.

    Without ``genotype`` the range also spans the units: pooling everywhere to 5x5 separable convolutions everywhere.
    """
    options, plan = seu_options(context), context.plan
    if options.genotype:
        least = most = named_genotype(options.genotype)
    else:
        least = uniform_genotype("max_pool_3x3", options.edges)
        most = uniform_genotype("sep_conv_5x5", options.edges)
    tasks = len(plan.tasks)
    small, macs_min = _first_task(context, least)
    large, macs = (small, macs_min) if least == most else _first_task(context, most)
    empty = on_meta(lambda: make_super_model(context))
    # What a task brings at most: a column, which may lack the stem, and then perhaps has statistics for it.
    column, column_bytes = (count(large) - count(empty) for count in (count_parameters, state_bytes))
    # What it has of its own where it reuses everything.
    own = [module for layer in range(len(small.layers)) for module in _own(context, small, layer)]
    if options.stem == "shared":
        stem = _own(context, large, 0)
        column += count_parameters(*stem) - stem_parameters(plan.channels, large.channels)
        column_bytes += state_bytes(*stem) - state_bytes(large.unit(0, 0))
    first, first_bytes = count_parameters(small), state_bytes(small)
    return Cost(
        tuple(count_parameters(large) + column * task for task in range(tasks)),
        tuple(first + count_parameters(*own) * task for task in range(tasks)),
        macs,
        macs_min,
        _stages(context),
        tuple(state_bytes(large) + column_bytes * task for task in range(tasks)),
        tuple(first_bytes + state_bytes(*own) * task for task in range(tasks)),
    )


def _first_task(context: StrategyContext, genotype: Genotype) -> tuple[SuperModel, tuple[int, ...]]:
    """The super model after one task, and multiply-accumulates of each task on its path."""
    plan = context.plan
    model = on_meta(lambda: make_super_model(context))
    with torch.device("meta"):
        model.expand(genotype, 0)
    for task in range(len(plan.tasks)):
        model.set_path(task, [0] * len(model.layers))
    return model, task_macs(model, plan, one_path=True)


def _own(context: StrategyContext, model: SuperModel, layer: int) -> list[UnitStatistics]:
    """What a task has of its own where it reuses the first unit of a layer."""
    options = seu_options(context)
    kinds = [UnitStatistics] * (options.statistics == "per_task") or [UnitNorms] * (options.adaptation == "norms")
    return [kind(model.unit(layer, 0)) for kind in kinds]


def _stages(context: StrategyContext) -> tuple[StageCost, ...]:
    options, plan, protocol = seu_options(context), context.plan, context.protocol
    searcher, creator = context.searcher, context.creator
    if searcher is None or creator is None:
        raise RequestError("strategy 'seu' needs a searcher and a creator", remedy="give --searcher and --creator")
    stages: list[StageCost] = []
    for index, task in enumerate(plan.tasks):
        if not options.genotype:
            train, score = component_passes(searcher, protocol.search, task.num_train)
            stages.append(StageCost("search", index, train, score))
        if index:
            train, score = component_passes(creator, protocol.creation, task.num_train)
            stages.append(StageCost("creation", index, train, score))
            if options.statistics == "per_task":
                # At most: a path that reuses nothing takes no pass.
                stages.append(StageCost("statistics", index, 0, task.num_train))
    training = options.applied_to(protocol.training)
    stages += training_passes(plan, training, validate=options.restore == "best_valid")
    return tuple(stages + evaluation_passes(plan))
