"""Contracts of searchers and creators, and the tasks that they are tried on.

Subclass :class:`SearcherContract` or :class:`CreatorContract` in a pytest file. Stages run inside the guard of a run:
what fails there fails here, with the same message.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from seu_bench.config.options import Options
from seu_bench.config.protocol import CreationSchedule, SearchSchedule
from seu_bench.data.streams import TaskStream
from seu_bench.errors import RequestError, RunError
from seu_bench.hookspecs import hookimpl
from seu_bench.plugin.registration import Register
from seu_bench.testing.streams import alone, stream_of
from seu_bench.testing.trial import Contract, Trial, drawn, from_file, load_registry, require, same
from seu_bench.training.stage import EpochlessStage
from seu_bench.utils.seeding import RandomState
from seu_bench_kit.cells import CellSpace
from seu_bench_kit.components import CreationTask, CreatorFactory, SearchTask, component_passes
from seu_bench_kit.dense import DenseSpace
from seu_bench_kit.guard import GuardedStage
from seu_bench_kit.mbconv import MBConvSpace
from seu_bench_kit.search_space import SearchSpace
from seu_bench_kit.units import Adapted

SEARCH = SearchSchedule(epochs=2, batch_size=8, cells=3, channels=2)
CREATION = CreationSchedule(epochs=3, batch_size=8, old_unit_epochs=1)
CPU = torch.device("cpu")
#: Every space that SEU can be asked to search.
SPACES = {
    "two-edges": CellSpace("top2", 2),
    "two-edges-one-form": CellSpace("top2", 1),
    "all-edges": CellSpace("all14", 2),
    "all-edges-one-form": CellSpace("all14", 1),
    "mbconv": MBConvSpace(),
    "dense": DenseSpace(),
}
#: Spaces and streams that searchers are tried on.
SEARCHES = {
    **{name: (space, "tiny_two") for name, space in SPACES.items()},
    "features": (SPACES["dense"], "tiny_features"),
    "tokens": (SPACES["dense"], "tiny_tokens"),
}


def component_trial(
    kind: str, name: str, options: Mapping[str, Any], plugins: Sequence[object] = (), exact_passes: bool = True
) -> Trial:
    """A searcher or creator on trial, with its own ``options``, in the installed strategy that takes such."""
    host = next(name for name, entry in load_registry().strategies.items() if kind in entry.factory.components)
    own = {f"{kind}.{key}": value for key, value in options.items()}
    chosen: dict[str, Any] = {kind: name}
    return Trial(host, own, plugins, exact_passes, **chosen)


def component_of(trial: Trial, kind: str) -> Any:
    """The :class:`~seu_bench.training.interfaces.Component` on trial, as a run is given it."""
    return getattr(trial.resolved("tiny_two"), kind)


def stage_of(trial: Trial, task: Any) -> GuardedStage[Any]:
    """Build the stage for a task of the searcher or of the creator on trial."""
    if isinstance(task, SearchTask):
        return GuardedStage(component_of(trial, "searcher"), task, task.space.fault)
    creator, before = component_of(trial, "creator"), task.model.frozen_state()
    task.model.wrap = getattr(creator.factory, "wrap", None)  # the model was grown for any creator
    return GuardedStage(creator, task, lambda path: task.model.result_fault(path, before))


def search_task(stream: TaskStream, *, task: int = 0, space: SearchSpace | None = None, seed: int = 0) -> SearchTask:
    """Build the task of a searcher.

    Args:
        stream: where the images come from, e.g. ``stream_of("tiny_two")``.
        task: index in the stream.
        space: the paper's if ``None``.

    Returns:
        What a searcher's ``build`` is given.

    Example:
        ``stage = MySearch(MyOptions(), search_task(stream_of("tiny_two")))``
    """
    classes, images = stream.plan.classes_per_task[task], stream.tasks[task].train
    return SearchTask(images, task, classes, stream.plan.input, space or CellSpace(), SEARCH, seed, CPU)


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
    trial = component_trial("creator", "captured", {}, (capture,))
    learner = replace(trial, options={"stem": stem, "genotype": "darts_v1"}).learner(benchmark)
    for task in range(tasks):
        learner.learn(task)
    return [replace(task, schedule=CREATION) for task in capture.tasks]


def fresh(task: Any) -> Any:
    """The same search, or the same creation with a copy of its model."""
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
        register("captured", CreatorFactory("for tests", options=Options, build=self._build))


def _alike(found: Any, other: Any) -> bool:
    """Whether two results are equal, with the weights of what a path adapts."""
    first, second = (
        [it.module.state_dict() for it in path if isinstance(it, Adapted)] if isinstance(path, Sequence) else []
        for path in (found, other)
    )
    return bool(found == other) and all(map(same, first, second))


class _ComponentContract(Contract):
    """Tests of searchers and creators alike. Subclasses have a fixture ``asked``, the task of these tests."""

    kind: ClassVar[str]

    @pytest.fixture
    def trial(self) -> Trial:
        """The component on trial."""
        return component_trial(self.kind, getattr(self, self.kind), self.options, self.plugins, self.exact_passes)

    def make(self, trial: Trial, asked: Any, *, seed: int = 0, clean: bool = True) -> GuardedStage[Any]:
        """Build a fresh stage; unless ``clean``, images of other tasks, of validation and of tests are NaN."""
        images = asked.images if clean else alone(asked.images)
        return stage_of(trial, replace(fresh(asked), seed=seed, images=images))

    def test_uses_the_current_task_only(self, trial: Trial, asked: Any) -> None:
        """With NaN in all other images (validation, tests, other tasks) the result is the same."""
        results = [self.make(trial, asked, clean=clean).run() for clean in (True, False)]
        require(
            _alike(*results),
            f"the result depends on images that are not the task's training images: {results[0]} with them, "
            f"{results[1]} where they are NaN",
        )

    def test_depends_on_the_seed_alone(self, trial: Trial, asked: Any) -> None:
        """The same seed gives the same result, wherever the global generators stand, and leaves them there."""
        results = []
        for noise in (1, 1000):
            with RandomState(noise).active():
                before = drawn()
                results.append(self.make(trial, asked).run())
                require(
                    before == drawn(),
                    "the stage drew from the global generators outside its own randomness: what is drawn when it is "
                    "made belongs inside `with self.randomness.active():`",
                )
        require(
            _alike(*results),
            f"the same seed gave {results[0]} and then {results[1]}, or adapted units differ in weights",
        )

    def test_keeps_its_budget(self, trial: Trial, asked: Any) -> None:
        """It takes the image passes that its factory announced, which is what ``seu-bench cost`` says; never more."""
        stage = self.make(trial, asked)
        stage.run()
        announced = sum(component_passes(component_of(trial, self.kind), asked.schedule, len(asked.images)))
        require(
            # The guard has stopped a stage that takes more.
            stage.image_passes == announced or not trial.exact_passes,
            f"{stage.image_passes} images were passed forward and estimate_passes() said {announced}: call "
            "self.count_images(n) for every batch. Where the number cannot be known before, set exact_passes = False",
        )

    def test_resumes(self, trial: Trial, asked: Any) -> None:
        """Stopped after any epoch, saved as tensors and plain values, loaded into a fresh stage: the same result."""
        whole = self.make(trial, asked)
        expected = whole.run()
        for epochs in sorted({0, (whole.epochs + 1) // 2, whole.epochs}):
            first = self.make(trial, asked)
            for _ in range(epochs):
                first.advance()
            state = from_file(first.state_dict())
            second = self.make(trial, asked, seed=1)
            second.load_state_dict(state)
            found = second.run()
            require(
                _alike(found, expected) and second.image_passes == whole.image_passes,
                f"stopped after epoch {epochs} of {whole.epochs} and resumed, it gave {found} after "
                f"{second.image_passes} images; uninterrupted {expected} after {whole.image_passes}, or with other "
                "weights of adapted units. get_extra_state() must hold everything that decides how it resumes",
            )


class SearcherContract(_ComponentContract):
    """Tests that every searcher must pass.

    Attributes:
        searcher: registered name.
        options: its own options, without ``searcher.``.
        plugins: modules or objects with hooks to register beside the installed plugins.
        exact_passes: whether ``estimate_passes`` is exact rather than an upper bound.

    Example::

        class TestMine(SearcherContract):
            searcher = "mine"
    """

    kind = "searcher"
    searcher: ClassVar[str]

    @pytest.fixture(scope="class")
    @classmethod
    def asked(cls) -> SearchTask:
        """The search of the second of three tasks."""
        return search_task(stream_of("tiny_three"), task=1)

    @pytest.mark.parametrize(("space", "stream"), SEARCHES.values(), ids=SEARCHES)
    def test_finds_a_genotype_of_the_space(self, trial: Trial, space: SearchSpace, stream: str) -> None:
        """Each of the built-in spaces, the paper's in all its forms, on all samples that it takes, interrupted or not;
        what the searcher cannot search it refuses by a :class:`~seu_bench.errors.RequestError`, with a hint."""
        task = search_task(stream_of(stream), space=space)
        try:
            found = stage_of(trial, task).run()
        except RunError as error:
            if isinstance(error.__cause__, RequestError) and error.__cause__.remedy:
                pytest.skip(f"it refuses: {error.what}")
            raise
        require(space.fault(found) is None, f"{found} is no genotype of the space: {space.fault(found)}")
        first, second = stage_of(trial, task), stage_of(trial, replace(task, seed=1))
        for _ in range(first.epochs // 2):
            first.advance()
        second.load_state_dict(from_file(first.state_dict()))
        require((resumed := second.run()) == found, f"resumed halfway it found {resumed}; uninterrupted {found}")

    @pytest.mark.parametrize(("benchmark", "task"), [("tiny_unequal", 1), ("tiny_lopsided", 0)])
    def test_tasks_of_unusual_shape(self, trial: Trial, benchmark: str, task: int) -> None:
        """Four classes; a class of a single image."""
        stage_of(trial, search_task(stream_of(benchmark), task=task)).run()

    def test_leaves_a_complete_record(self, trial: Trial, tmp_path: Path) -> None:
        """SEU learns three tasks with it, and the record holds a valid genotype and the search of each."""
        record = trial.record("tiny_three", tmp_path)
        require(record.status == "finished", f"the run is {record.status}: {record.error}")
        genotypes = [CellSpace().from_dict(value) for value in record.genotypes or ()]
        faults = [CellSpace().fault(genotype) for genotype in genotypes]
        require(len(genotypes) == 3 and not any(faults), f"the record's genotypes: {genotypes}, faults: {faults}")
        stages = [stage.task for stage in record.stages if stage.name == "search"]
        require(stages == [0, 1, 2], f"the record has searches of tasks {stages}")


class CreatorContract(_ComponentContract):
    """Tests that every creator must pass.

    Attributes:
        creator: registered name.
        options: its own options, without ``creator.``.
        plugins, exact_passes: as of :class:`SearcherContract`.

    Example::

        class TestMine(CreatorContract):
            creator = "mine"
    """

    kind = "creator"
    creator: ClassVar[str]

    @pytest.fixture(scope="class")
    @classmethod
    def asked(cls) -> CreationTask:
        """The creation of the third of three tasks."""
        return creation_tasks("tiny_three")[1]

    @pytest.mark.parametrize("stem", ["selectable", "shared"])
    def test_leaves_old_units_untouched(self, trial: Trial, stem: str) -> None:
        """Units, heads and paths of other tasks keep every bit, BatchNorm's statistics too, also while adapted ones are
        trained; the path fits."""
        for creation in creation_tasks("tiny_three", stem=stem):
            model: Any = creation.model
            before = model.frozen_state()
            heads = {index: copy.deepcopy(head.state_dict()) for index, head in enumerate(model.heads)}
            path = stage_of(trial, creation).run()
            model.keep(creation.task, path)
            model.train()
            model.forward_single_task(creation.images.gather(torch.arange(8))[0], creation.task).sum().backward()
            fault = model.frozen_fault(before)
            require(fault is None, f"task {creation.task}, path {path}: {fault}")
            for index, head in enumerate(model.heads):
                require(
                    index == creation.task or same(head.state_dict(), heads[index]),
                    f"creating task {creation.task} changed the head of task {index}",
                )

    def test_uses_few_images(self, trial: Trial, asked: CreationTask) -> None:
        """Four training images are enough to end."""
        stage_of(trial, replace(fresh(asked), images=asked.images.part(0, 4))).run()

    def test_leaves_a_complete_record(self, trial: Trial, tmp_path: Path) -> None:
        """SEU learns three tasks with it, forgets nothing, and the record holds each task's path."""
        record = trial.record("tiny_three", tmp_path)
        require(record.status == "finished", f"the run is {record.status}: {record.error}")
        require(len(record.paths or ()) == 3, f"the record's paths: {record.paths}")
        require(record.metrics.get("forgetting") == 0.0, f"forgetting is {record.metrics.get('forgetting')}")
        stages = [stage.task for stage in record.stages if stage.name == "creation"]
        require(stages == [1, 2], f"the record has creations of tasks {stages}")
