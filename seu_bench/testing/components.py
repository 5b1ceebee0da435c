"""Trials of searchers and creators: built as a strategy builds them, on tiny images, inside the guard of a run."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from seu_bench.config.options import Options, build_options
from seu_bench.config.protocol import CreationSchedule, ImageLimits, SearchSchedule
from seu_bench.data.images import TaskImages
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.hookspecs import hookimpl
from seu_bench.plugin.entries import Entry
from seu_bench.plugin.registration import LazyFactory, Register
from seu_bench.results.record import Record
from seu_bench.search_space import SearchSpace
from seu_bench.testing.streams import TINY
from seu_bench.testing.trial import Trial, installed
from seu_bench.training.components import Component, CreationTask, CreatorFactory, SearchTask
from seu_bench.training.guard import GuardedStage, guarded_stage
from seu_bench.training.stage import EpochlessStage

SEARCH = SearchSchedule(epochs=2, batch_size=8, cells=3, channels=2)
CREATION = CreationSchedule(epochs=3, batch_size=8, old_unit_epochs=1)
CPU = torch.device("cpu")


@dataclass(frozen=True)
class ComponentTrial:
    """A searcher or creator on trial.

    Attributes:
        kind: ``searcher`` or ``creator``.
        name: registered name.
        options: its own options, without the prefix.
        plugins: modules or objects to register beside the installed plugins.
        exact_passes: whether ``estimate_passes`` is exact rather than an upper bound.
    """

    kind: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    plugins: Sequence[object] = ()
    exact_passes: bool = True

    @cached_property
    def component(self) -> Component:
        """The component as a run is given it."""
        registry = installed(self.plugins)
        kinds: Mapping[str, Any] = {"searcher": registry.searchers, "creator": registry.creators}
        entry: Entry[Any] = kinds[self.kind].find(self.name)
        options = build_options(entry.factory.options, f"{self.kind} {self.name!r}", self.options)
        return Component(self.kind, self.name, entry.factory, options, entry.plugin, entry.package)

    def stage(self, task: Any) -> GuardedStage[Any]:
        """Build the stage for a task."""
        fault = task.space.fault if isinstance(task, SearchTask) else task.model.path_fault
        return guarded_stage(self.component, task, fault)

    def record(self, benchmark: str, results: Path) -> Record:
        """Run briefly the strategy that takes such components, and return the record."""
        options = {f"{self.kind}.{name}": value for name, value in self.options.items()}
        chosen: dict[str, Any] = {self.kind: self.name}
        return Trial(host(self.kind), options, self.plugins, **chosen).record(benchmark, results)


def host(kind: str) -> str:
    """Return the name of the installed strategy that takes components of this kind."""
    return next(name for name, entry in installed().strategies.items() if kind in entry.factory.components)


def stream_of(benchmark: str) -> TaskStream:
    """Build a tiny stream.

    Args:
        benchmark: one of :data:`~seu_bench.testing.streams.TINY`, e.g. ``tiny_two``.

    Returns:
        Its tasks, of made-up images; the same at every call.
    """
    tiny = TINY[benchmark]
    return build_stream(tiny.load(), lambda _: tiny.data.load(None), ImageLimits(), 0)


def alone(images: TaskImages) -> TaskImages:
    """Return the same images in a store whose others, of other tasks, validation and tests, are NaN."""
    store = torch.full_like(images.store, torch.nan)
    store[images.rows] = images.store[images.rows]
    return replace(images, store=store)


def search_task(stream: TaskStream, *, task: int = 0, space: SearchSpace | None = None, seed: int = 0) -> SearchTask:
    """Build the task of a searcher.

    Args:
        stream: where the images come from, e.g. ``stream_of("tiny_two")``.
        task: index in the stream.
        space: the default space if ``None``.

    Returns:
        What a searcher's ``build`` is given.

    Example:
        ``stage = MySearch(MyOptions(), search_task(stream_of("tiny_two")))``
    """
    classes = stream.plan.classes_per_task[task]
    return SearchTask(stream.tasks[task].train, task, classes, space or SearchSpace(), SEARCH, seed, CPU)


def creation_tasks(benchmark: str, *, stem: str = "selectable", tasks: int = 3) -> list[CreationTask]:
    """Build tasks of a creator, each with a model of its own; earlier tasks took new units everywhere.

    Args:
        benchmark: as of :func:`stream_of`.
        stem: the option ``stem`` of the strategy.
        tasks: how many tasks the strategy learns.

    Returns:
        What a creator's ``build`` is given, for tasks 1, 2, ..., ``tasks - 1``.
    """
    capture = _Capture()
    trial = Trial(host("creator"), {"stem": stem, "genotype": "darts_v1"}, (capture,), creator="captured")
    learner = trial.learner(benchmark)
    for task in range(tasks):
        learner.learn(task)
    return [replace(task, schedule=CREATION) for task in capture.tasks]


def fresh(task: Any) -> Any:
    """Return the same search, or the same creation with a copy of its model."""
    return replace(task, model=copy.deepcopy(task.model)) if isinstance(task, CreationTask) else task


class _Newest(EpochlessStage[tuple[int, ...]]):
    """Takes the newest unit everywhere."""

    def __init__(self, task: CreationTask) -> None:
        super().__init__("creation", task.task, task.seed, task.device)
        self.model = task.model

    def result(self) -> tuple[int, ...]:
        return tuple(count - 1 for count in self.model.candidates)


class _Capture:
    """A plugin whose creator keeps a copy of each creation that it is asked for."""

    def __init__(self) -> None:
        self.tasks: list[CreationTask] = []

    def _build(self, options: Options, task: CreationTask) -> _Newest:
        self.tasks.append(fresh(task))
        return _Newest(task)

    @hookimpl
    def register_creators(self, register: Register[CreatorFactory]) -> None:
        register("captured", LazyFactory("for tests", options=Options, build=self._build))
