"""A searcher or a creator on trial: made as a strategy makes it, on tiny images, with a guard around it."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import torch

from seu_bench.config.options import Options, build_options
from seu_bench.config.protocol import CreationSchedule, ImageLimits, SearchSchedule
from seu_bench.data.images import TaskImages
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.hookspecs import hookimpl
from seu_bench.plugin.entries import Entry
from seu_bench.plugin.registration import Register
from seu_bench.results.record import Record
from seu_bench.search_space import SearchSpace
from seu_bench.testing.streams import TINY, TinyBenchmark, TinyData
from seu_bench.testing.trial import Trial
from seu_bench.training.costing import component_passes
from seu_bench.training.guard import GuardedStage, guarded_stage
from seu_bench.training.interfaces import Component, CreationTask, CreatorFactory, SearchTask
from seu_bench.training.stage import EpochlessStage, Stage

Found = TypeVar("Found")

SEARCH = SearchSchedule(epochs=2, batch_size=8, cells=3, channels=2)
CREATION = CreationSchedule(epochs=3, batch_size=8, old_unit_epochs=1)
CPU = torch.device("cpu")


@dataclass(frozen=True)
class ComponentTrial:
    """Which searcher or creator is tried, and how.

    Attributes:
        kind: ``searcher`` or ``creator``.
        name: that it is registered under.
        options: its own, without the prefix.
        plugins: to be registered beside those installed.
        exact_passes: whether ``passes`` gives image passes exactly rather than at most.
    """

    kind: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    plugins: Sequence[object] = ()
    exact_passes: bool = True

    @cached_property
    def component(self) -> Component:
        """As a run is given it."""
        registry = Trial("seu", plugins=self.plugins).registry
        kinds: Mapping[str, Any] = {"searcher": registry.searchers, "creator": registry.creators}
        entry: Entry[Any] = kinds[self.kind].find(self.name)
        options = build_options(entry.factory.options, f"{self.kind} {self.name!r}", self.options)
        return Component(self.kind, self.name, entry.factory, options, entry.plugin, entry.package)

    def estimate_passes(self, task: SearchTask | CreationTask) -> int:
        """Image passes that the factory announces."""
        return sum(component_passes(self.component, task.schedule, len(task.images)))

    def stage(self, task: Any, fault: Callable[[object], str | None]) -> GuardedStage[Any]:
        """The stage for a task."""
        return guarded_stage(self.component, task, fault)

    def record(self, benchmark: str, results: Path) -> Record:
        """The record of a brief run of SEU with this component."""
        options = {f"{self.kind}.{name}": value for name, value in self.options.items()}
        searcher, creator = (self.name if self.kind == kind else None for kind in ("searcher", "creator"))
        return Trial("seu", options, self.plugins, searcher=searcher, creator=creator).record(benchmark, results)


def stream_of(benchmark: str) -> TaskStream:
    """One of :data:`~seu_bench.testing.streams.TINY`."""
    shape = TINY[benchmark]
    data = TinyData(benchmark, shape).load(None)
    return build_stream(TinyBenchmark(benchmark, shape).load(), lambda _: data, ImageLimits(), 0)


def alone(images: TaskImages) -> TaskImages:
    """The same images where every other one is NaN: other tasks', validation and test images."""
    store = torch.full_like(images.store, torch.nan)
    store[images.rows] = images.store[images.rows]
    return replace(images, store=store)


def search_task(stream: TaskStream, *, task: int = 0, space: SearchSpace | None = None, seed: int = 0) -> SearchTask:
    """The search of a task of ``stream``."""
    classes = stream.plan.classes_per_task[task]
    return SearchTask(stream.tasks[task].train, task, classes, space or SearchSpace(), SEARCH, seed, CPU)


def creation_tasks(benchmark: str, *, stem: str = "selectable", tasks: int = 3) -> list[CreationTask]:
    """The creations of tasks 1, 2, ... after all tasks before took new units everywhere; each with a model of its own.

    Args:
        stem: SEU's option.
        tasks: length of the stream.
    """
    capture = _Capture()
    trial = Trial("seu", {"stem": stem, "genotype": "darts_v1"}, (capture,), creator="captured")
    learner = trial.learner(benchmark)
    for task in range(tasks):
        learner.learn(task)
    return [replace(task, schedule=CREATION) for task in capture.tasks]


def fresh(task: CreationTask) -> CreationTask:
    """The same with a copy of its model, so that it can be created again."""
    return replace(task, model=copy.deepcopy(task.model))


def saved(state: Mapping[str, Any]) -> Any:
    """A state as it comes back from a file that holds tensors and plain values only."""
    file = io.BytesIO()
    torch.save(dict(state), file)
    file.seek(0)
    return torch.load(file, weights_only=True)


class _NoOptions(Options):
    pass


class _Newest(EpochlessStage[tuple[int, ...]]):
    """Takes the newest unit everywhere."""

    def __init__(self, task: CreationTask) -> None:
        super().__init__("creation", task.task, task.seed, task.device)
        self.model = task.model

    def result(self) -> tuple[int, ...]:
        return tuple(count - 1 for count in self.model.candidates)


class _Capture:
    """A plugin whose creator keeps a copy of each creation that it is asked for."""

    summary = "for tests"
    options: type[Options] = _NoOptions

    def __init__(self) -> None:
        self.tasks: list[CreationTask] = []

    def build(self, options: _NoOptions, task: CreationTask) -> Stage[tuple[int, ...]]:
        self.tasks.append(fresh(task))
        return _Newest(task)

    def estimate_passes(self, options: _NoOptions, schedule: CreationSchedule, train_images: int) -> tuple[int, int]:
        return 0, 0

    @hookimpl
    def register_creators(self, register: Register[CreatorFactory]) -> None:
        register("captured", self)
