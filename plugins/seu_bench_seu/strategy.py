"""SEU as an Avalanche strategy: search a unit, expand, create a path, train it, freeze (paper, algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from torch import nn

from seu_bench.config import CreationSchedule, SearchSchedule
from seu_bench.training import Phase, Stage, StagedStrategy, TaskData, TrainingStage
from seu_bench.utils import RandomState
from seu_bench_kit import CreationTask, Genotype, SearchTask
from seu_bench_seu.estimating import StatisticsStage
from seu_bench_seu.options import Adaptation, Statistics
from seu_bench_seu.super_model import SuperModel


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
