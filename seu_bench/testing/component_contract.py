"""Contracts of searchers and creators: subclass :class:`SearcherContract` or :class:`CreatorContract` in a pytest file.

Stages run inside the guard of a run: what fails there fails here, with the same message.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from seu_bench.search_space import Genotype, SearchSpace
from seu_bench.testing.components import ComponentTrial, alone, creation_tasks, fresh, search_task, stream_of
from seu_bench.testing.trial import Contract, drawn, from_file, require, same
from seu_bench.training.components import CreationTask, SearchTask
from seu_bench.training.costing import component_passes
from seu_bench.training.guard import GuardedStage
from seu_bench.utils.seeding import RandomState

#: Every space that SEU can be asked to search.
SPACES = {
    "two-edges": SearchSpace("top2", 2),
    "two-edges-one-form": SearchSpace("top2", 1),
    "all-edges": SearchSpace("all14", 2),
    "all-edges-one-form": SearchSpace("all14", 1),
}


class _ComponentContract(Contract):
    """Tests of searchers and creators alike. Subclasses have a fixture ``asked``, the task of these tests."""

    kind: ClassVar[str]

    @pytest.fixture
    def trial(self) -> ComponentTrial:
        """The component on trial."""
        return ComponentTrial(self.kind, getattr(self, self.kind), self.options, self.plugins, self.exact_passes)

    def make(self, trial: ComponentTrial, asked: Any, *, seed: int = 0, clean: bool = True) -> GuardedStage[Any]:
        """Build a fresh stage; unless ``clean``, images of other tasks, of validation and of tests are NaN."""
        images = asked.images if clean else alone(asked.images)
        return trial.stage(replace(fresh(asked), seed=seed, images=images))

    def test_uses_the_current_task_only(self, trial: ComponentTrial, asked: Any) -> None:
        """With NaN in all other images (validation, tests, other tasks) the result is the same."""
        results = [self.make(trial, asked, clean=clean).run() for clean in (True, False)]
        require(
            results[0] == results[1],
            f"the result depends on images that are not the task's training images: {results[0]} with them, "
            f"{results[1]} where they are NaN",
        )

    def test_depends_on_the_seed_alone(self, trial: ComponentTrial, asked: Any) -> None:
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
        require(results[0] == results[1], f"the same seed gave {results[0]} and then {results[1]}")

    def test_keeps_its_budget(self, trial: ComponentTrial, asked: Any) -> None:
        """It takes the image passes that its factory announced, which is what ``seu-bench cost`` says; never more."""
        stage = self.make(trial, asked)
        stage.run()
        announced = sum(component_passes(trial.component, asked.schedule, len(asked.images)))
        require(
            # The guard has stopped a stage that takes more.
            stage.image_passes == announced or not trial.exact_passes,
            f"{stage.image_passes} images were passed forward and estimate_passes() said {announced}: call "
            "self.passed(n) for every batch. Where the number cannot be known before, set exact_passes = False",
        )

    def test_resumes(self, trial: ComponentTrial, asked: Any) -> None:
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
                found == expected and second.image_passes == whole.image_passes,
                f"stopped after epoch {epochs} of {whole.epochs} and resumed, it gave {found} after "
                f"{second.image_passes} images; uninterrupted {expected} after {whole.image_passes}. get_extra_state() "
                "must hold everything that decides how it resumes",
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

    @pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
    def test_finds_a_genotype_of_the_space(self, trial: ComponentTrial, space: SearchSpace) -> None:
        """Two edges per node or all of them, one genotype for all cells or two."""
        found = trial.stage(search_task(stream_of("tiny_two"), space=space)).run()
        require(space.fault(found) is None, f"{found} is no genotype of the space: {space.fault(found)}")

    @pytest.mark.parametrize(("benchmark", "task"), [("tiny_unequal", 1), ("tiny_lopsided", 0)])
    def test_tasks_of_unusual_shape(self, trial: ComponentTrial, benchmark: str, task: int) -> None:
        """Four classes; a class of a single image."""
        trial.stage(search_task(stream_of(benchmark), task=task)).run()

    def test_leaves_a_whole_record(self, trial: ComponentTrial, tmp_path: Path) -> None:
        """SEU learns three tasks with it, and the record holds a valid genotype and the search of each."""
        record = trial.record("tiny_three", tmp_path)
        require(record.status == "finished", f"the run is {record.status}: {record.error}")
        genotypes = [Genotype.from_dict(value) for value in record.genotypes or ()]
        faults = [SearchSpace().fault(genotype) for genotype in genotypes]
        require(len(genotypes) == 3 and not any(faults), f"the record's genotypes: {genotypes}, faults: {faults}")
        stages = [stage.task for stage in record.stages if stage.name == "search"]
        require(stages == [0, 1, 2], f"the record has searches of tasks {stages}")


class CreatorContract(_ComponentContract):
    """Tests that every creator must pass.

    Attributes:
        creator: registered name.
        options: its own options, without ``creator.``.
        plugins: modules or objects with hooks to register beside the installed plugins.
        exact_passes: whether ``estimate_passes`` is exact rather than an upper bound.

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
    def test_leaves_old_units_untouched(self, trial: ComponentTrial, stem: str) -> None:
        """Units, heads and paths of other tasks keep every bit, BatchNorm's statistics too; the path fits."""
        for creation in creation_tasks("tiny_three", stem=stem):
            model: Any = creation.model
            before = model.frozen_state()
            heads = {index: copy.deepcopy(head.state_dict()) for index, head in enumerate(model.heads)}
            path = trial.stage(creation).run()
            fault = model.frozen_fault(before)
            require(fault is None, f"task {creation.task}, path {path}: {fault}")
            for index, head in enumerate(model.heads):
                require(
                    index == creation.task or same(head.state_dict(), heads[index]),
                    f"creating task {creation.task} changed the head of task {index}",
                )

    def test_uses_few_images(self, trial: ComponentTrial, asked: CreationTask) -> None:
        """Four training images are enough to end."""
        trial.stage(replace(fresh(asked), images=asked.images.part(0, 4))).run()

    def test_leaves_a_whole_record(self, trial: ComponentTrial, tmp_path: Path) -> None:
        """SEU learns three tasks with it, forgets nothing, and the record holds each task's path."""
        record = trial.record("tiny_three", tmp_path)
        require(record.status == "finished", f"the run is {record.status}: {record.error}")
        require(len(record.paths or ()) == 3, f"the record's paths: {record.paths}")
        require(record.metrics.get("forgetting") == 0.0, f"forgetting is {record.metrics.get('forgetting')}")
        stages = [stage.task for stage in record.stages if stage.name == "creation"]
        require(stages == [1, 2], f"the record has creations of tasks {stages}")
