"""Contracts of data sets and benchmarks. Tests that need files of a data set are skipped where these are missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np
import pytest

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.run import Request
from seu_bench.data.dataset import DatasetInfo, DatasetSource, DatasetState, RawDataset, Status
from seu_bench.data.streams import build_stream
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.errors import DataError, DataMissingError
from seu_bench.plugin.registry import Registry
from seu_bench.testing.networks import FineTuning
from seu_bench.testing.trial import Contract, installed, require


class DatasetContract(Contract):
    """Tests that every data set must pass.

    Attributes:
        dataset: registered name.
        root: folder of data sets, as after ``--data-root``; ``None``: the default.

    Example::

        class TestMine(DatasetContract):
            dataset = "mine"
    """

    dataset: ClassVar[str]
    root: ClassVar[Path | None] = None

    @pytest.fixture
    def source(self) -> DatasetSource:
        """The data set on trial."""
        return installed(self.plugins).datasets.find(self.dataset).factory

    @pytest.fixture
    def loaded(self, source: DatasetSource) -> RawDataset:
        """It in memory; the test is skipped where its files are missing."""
        _skip_without_files(self.dataset, source, self.root)
        return source.load(self.root).checked()

    def test_describes_itself(self, source: DatasetSource) -> None:
        """Sizes are positive, and numbers of images per class add up."""
        try:
            info = source.info(self.root)
        except DataMissingError as error:
            pytest.skip(f"it is described by its files, which are missing: {error.what}")
        require(isinstance(info, DatasetInfo), f"info() must return a DatasetInfo, not {info!r:.100}")
        for name in ("channels", "height", "width", "num_classes", "num_train", "num_test"):
            require(getattr(info, name) > 0, f"{name} is {getattr(info, name)}")
        names = info.class_names
        require(names is None or len(names) == info.num_classes, f"{info.num_classes} classes have the names {names}")
        for split in ("train", "test"):
            counts, total = getattr(info, f"{split}_per_class"), getattr(info, f"num_{split}")
            require(
                counts is None or (len(counts) == info.num_classes and sum(counts) == total),
                f"{split}_per_class is {counts}, for {info.num_classes} classes and {total} images",
            )

    def test_says_whether_it_is_there(self, source: DatasetSource, tmp_path: Path) -> None:
        """``state`` has a status that is known, and writes nothing."""
        for root in (self.root, tmp_path):
            state = source.state(root)
            require(isinstance(state, DatasetState), f"state() must return a DatasetState, not {state!r:.100}")
            require(state.status in get_args(Status), f"the status {state.status!r} is none of {get_args(Status)}")
        require(not [*tmp_path.iterdir()], "state() wrote into the folder of data sets")

    def test_says_that_it_is_missing(self, source: DatasetSource, tmp_path: Path) -> None:
        """From a folder without its files, ``load`` raises an error that says so."""
        if source.state(tmp_path).status in ("embedded", "complete"):
            pytest.skip("it needs no files below the folder of data sets")
        try:
            source.load(tmp_path)
        except DataError as error:
            require(bool(error.remedy), f"the error gives no hint: {error.what}")
            return
        pytest.fail("state() says that files are missing, and load() raises no DataMissingError")

    def test_holds_what_it_describes(self, source: DatasetSource, loaded: RawDataset) -> None:
        """What ``info`` says; that arrays are of that shape and range, was checked before."""
        info = source.info(self.root)
        require(loaded.info == info, f"what is loaded says that it is {loaded.info}, and info() says {info}")
        for name in ("train", "test"):
            labels = getattr(loaded, name).labels
            counts, said = np.bincount(labels, minlength=info.num_classes), getattr(info, f"{name}_per_class")
            require(
                said is None or counts.tolist() == list(said),
                f"{name}_per_class is {said}, and there are {counts.tolist()}",
            )

    def test_is_the_same_at_each_load(self, source: DatasetSource, loaded: RawDataset) -> None:
        """Order and pixels: leaderboards compare runs by a checksum of them."""
        require(source.load(self.root).checksum() == loaded.checksum(), "a second load() gave other images or labels")


class BenchmarkContract(Contract):
    """Tests that every benchmark must pass.

    Attributes:
        benchmark: registered name.
        root: folder of data sets, as after ``--data-root``; ``None``: the default.

    Example::

        class TestMine(BenchmarkContract):
            benchmark = "mine"
    """

    benchmark: ClassVar[str]
    root: ClassVar[Path | None] = None

    @pytest.fixture
    def registry(self) -> Registry:
        """Everything that is installed."""
        return installed([*self.plugins, FineTuning()])

    @pytest.fixture
    def spec(self, registry: Registry) -> BenchmarkSpec:
        """The benchmark on trial."""
        return registry.benchmarks.find(self.benchmark).factory.load()

    def resolved(self, registry: Registry, spec: BenchmarkSpec, **fields: Any) -> Iterator[ResolvedRun]:
        """Resolve a run of fine-tuning by each protocol."""
        for protocol in spec.protocols:
            request = Request(
                strategy="fine_tuning", benchmark=self.benchmark, protocol=protocol, data_root=self.root, **fields
            )
            yield resolve(registry, request)

    def test_is_the_same_at_each_load(self, registry: Registry, spec: BenchmarkSpec) -> None:
        """Under the name that it is registered by: records name it so."""
        require(isinstance(spec, BenchmarkSpec), f"load() must return a BenchmarkSpec, not {spec!r:.100}")
        require(spec.name == self.benchmark, f"it is registered as {self.benchmark!r} and calls itself {spec.name!r}")
        again = registry.benchmarks.find(self.benchmark).factory.load()
        require(again == spec, "a second load() gave another benchmark")

    def test_every_protocol_can_be_run(self, registry: Registry, spec: BenchmarkSpec) -> None:
        """Data sets are installed, and every task has images to train on, to select by and to test with."""
        for run in self.resolved(registry, spec):
            try:
                run.plan()  # refuses tasks without images
            except DataMissingError as error:
                pytest.skip(f"its data sets are described by their files, which are missing: {error.what}")

    def test_tasks_are_as_planned(self, registry: Registry, spec: BenchmarkSpec) -> None:
        """With a few images of each class, every task has what the plan says, equal at each time."""
        run = next(self.resolved(registry, spec, limit=8))
        for name, source in run.sources.items():
            _skip_without_files(name, source, self.root)
        streams = [build_stream(run.spec.benchmark, run.load, run.limits, 0) for _ in range(2)]
        require(streams[0].fingerprint == streams[1].fingerprint, "the tasks differ from one time to the next")
        require(streams[0].plan == run.plan(), "the tasks are not those of the plan that was made without images")


def _skip_without_files(name: str, source: DatasetSource, root: Path | None) -> None:
    state = source.state(root)
    if state.status not in ("embedded", "complete"):
        at = f" in {state.where}" if state.where is not None else ""
        pytest.skip(f"the files of data set {name!r} are {state.status}{at}: seu-bench data {name}")
