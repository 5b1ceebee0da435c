"""Contracts of what is no strategy: backbones, data sets and benchmarks; metrics, loggers, executors and commands.

Tests that need files of a data set are skipped where these are missing.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Final, get_args

import click
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.common_options import BackboneOptions
from seu_bench.config.options import build_options
from seu_bench.config.run import Request
from seu_bench.config.streams import SCENARIOS
from seu_bench.data.dataset import DatasetInfo, DatasetSource, DatasetState, RawDataset, Status
from seu_bench.data.streams import build_stream
from seu_bench.engine.resolve import ResolvedRun, named_backbone, resolve
from seu_bench.errors import DataError, DataMissingError, RequestError
from seu_bench.hookspecs import hookimpl
from seu_bench.plugin.executors import Ended, Event, Job
from seu_bench.plugin.loggers import LoggedRun, LoggedValues, RunLogger
from seu_bench.plugin.registration import LazyFactory, Register
from seu_bench.plugin.registry import Registry
from seu_bench.results.metric import Metric
from seu_bench.results.record import Record, read_record, record_path
from seu_bench.testing.sizes import check_sizes
from seu_bench.testing.trial import Contract, Trial, installed, require, same
from seu_bench.training.backbones import backbone_model
from seu_bench.training.costing import fixed_size_cost
from seu_bench.training.interfaces import StrategyContext, StrategyFactory
from seu_bench.training.strategy import StagedStrategy
from seu_bench.utils.seeding import RandomState

#: Channels, height and width of the images that a backbone is tried with: tiny, MNIST's, CIFAR's, and not square.
SHAPES: Final = ((1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 24, 32))


class FineTuning:
    """The plugin that offers ``fine_tuning``, which trains one network on every task in turn; registered by hand."""

    @hookimpl
    def register_strategies(self, register: Register[StrategyFactory]) -> None:
        register(
            "fine_tuning",
            LazyFactory(
                "for contracts",
                options=BackboneOptions,
                build=self._build,
                cost=fixed_size_cost,
                scenarios=SCENARIOS,  # benchmarks of any scenario are checked by it
            ),
        )

    @staticmethod
    def _build(context: StrategyContext) -> StagedStrategy:
        return StagedStrategy.of(context, model=backbone_model(context))


class BackboneContract(Contract):
    """Tests that every backbone must pass.

    Attributes:
        backbone: registered name, or ``KIND:NAME``.
    """

    backbone: ClassVar[str]

    def network(self, shape: tuple[int, int, int], *, seed: int = 0, width: float = 0.5) -> tuple[nn.Module, int]:
        """Build the network for images of a shape ``(C, H, W)``; skip the test if the backbone refuses the shape."""
        factory = named_backbone(installed(self.plugins), self._name())
        try:
            with RandomState(seed).active():
                network, features = factory.build(*shape, width)
        except RequestError as error:
            pytest.skip(f"it refuses images of {shape}: {error.what}")
        return network, features

    def _name(self) -> str:
        """The backbone; of one that stands for many, its example."""
        if ":" in self.backbone:
            return self.backbone
        example = getattr(installed(self.plugins).backbones.find(self.backbone).factory, "example", None)
        return self.backbone if example is None else f"{self.backbone}:{example}"

    @pytest.mark.parametrize("width", [0.125, 0.5, 2.0])
    @pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
    def test_maps_images_to_features(self, shape: tuple[int, int, int], width: float) -> None:
        """Images ``[N, C, H, W]`` become finite features ``[N, F]``, in training and in evaluation mode."""
        network, features = self.network(shape, width=width)
        require(isinstance(network, nn.Module), f"build() must return a torch module first, not {network!r:.100}")
        for training in (True, False):
            found = network.train(training)(_images(shape))
            told = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            require(
                told == (4, features) and bool(torch.isfinite(found).all()),
                f"4 images of {shape} gave {told} with width {width}; features must be finite and of shape "
                f"{(4, features)}, as build() says by the number that it returns second",
            )

    def test_looks_at_each_image_alone(self) -> None:
        """In evaluation mode the features of an image do not depend on the images beside it."""
        network, images = self.network((1, 8, 8))[0].eval(), _images((1, 8, 8))
        with torch.no_grad():
            together, apart = network(images), torch.cat([network(image[None]) for image in images])
        require(
            torch.allclose(together, apart, rtol=1e-4, atol=1e-5),
            f"an image's features change by {(together - apart).abs().max():.2g} with the images beside it",
        )

    def test_depends_on_the_seed_alone(self) -> None:
        """Weights are drawn from torch's generators: equal for one seed, others for another."""
        first, again, other = (self.network((1, 8, 8), seed=seed)[0].state_dict() for seed in (0, 0, 1))
        require(same(first, again), "two networks of one seed have other weights: draw from torch's generators")
        if not first:
            pytest.skip("it has no weights")
        require(not same(first, other), "networks of two seeds have the same weights")

    def test_weights_can_be_loaded(self) -> None:
        """A second network with the weights of the first computes the same."""
        one, two = (self.network((1, 8, 8), seed=seed)[0].eval() for seed in (0, 1))
        two.load_state_dict(one.state_dict())
        images = _images((1, 8, 8))
        with torch.no_grad():
            require(torch.equal(one(images), two(images)), "state_dict() does not hold all that it computes with")

    def test_is_learned_with(self, tmp_path: Path) -> None:
        """Fine-tuning on it learns three tasks; sizes are those that the cost estimate said."""
        trial = Trial("fine_tuning", {"backbone": self._name(), **self.options}, [*self.plugins, FineTuning()])
        learner = trial.learner("tiny_three")
        for task in range(learner.tasks):
            learner.learn(task)
            check_sizes(learner, task)
        record = trial.record("tiny_three", tmp_path)
        require(record.status == "finished", f"the run is {record.status}: {record.error}")


def _images(shape: tuple[int, int, int]) -> Tensor:
    return torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))


class DatasetContract(Contract):
    """Tests that every data set must pass.

    Attributes:
        dataset: registered name.
        root: folder of data sets, as after ``--data-root``; ``None``: the default.
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


class MetricContract(Contract):
    """Tests that every metric must pass.

    Attributes:
        metric: registered name.
    """

    metric: ClassVar[str]

    @pytest.fixture(scope="class")
    @classmethod
    def records(cls, tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
        """Records of finished runs of one, two and three tasks, read from their files."""
        return finished_records(tmp_path_factory.mktemp("results"))

    @pytest.fixture
    def value(self) -> Metric:
        """The metric on trial."""
        return installed(self.plugins).known_metrics[self.metric]

    def test_is_a_number_or_nothing(self, value: Metric, records: list[Record]) -> None:
        """For every finished run, and beside itself: a finite number, or ``None`` where it is not defined."""
        for record in records:
            tasks = len(record.task_names)
            try:
                raw = value.compute(record)
            except Exception as error:
                pytest.fail(
                    f"for a record of {tasks} tasks it raised {type(error).__name__}: {error}; give None where it is "
                    "not defined"
                )
            number = isinstance(raw, int | float) and not isinstance(raw, bool)
            require(
                raw is None or (number and math.isfinite(raw)),
                f"for a record of {tasks} tasks it gave {raw!r}: give a finite number, or None where it is not defined",
            )
            beside = None if value.relative is None else value.beside(record, record)
            require(beside is None or math.isfinite(beside), f"beside itself, a record has {beside!r}")

    def test_is_computed_from_the_record(self, value: Metric, records: list[Record]) -> None:
        """The same value every time, and the record is as it was."""
        if not value.from_record:
            pytest.skip("it is read off the running process (from_record = False)")
        for record in records:
            before = record.model_dump(mode="json")
            found = [value(record), value(record), value(Record.model_validate(before))]
            require(found.count(found[0]) == 3, f"it gave {found} for one record: set from_record = False if it may")
            require(record.model_dump(mode="json") == before, "it changed the record")


def finished_records(results: Path) -> list[Record]:
    """Make the runs that a metric is computed for; return their records as they are read back from their files."""
    trial = Trial("fine_tuning", plugins=[FineTuning()])
    streams = ("tiny_single", "tiny_two", "tiny_three")
    return [read_record(record_path(results, trial.record(stream, results).run_id)) for stream in streams]


class LoggerContract(Contract):
    """Test that every logger must pass which writes to this machine.

    Attributes:
        logger: registered name.
        options: its own options, without ``logger.``.
    """

    logger: ClassVar[str]

    def build(self, folder: Path) -> RunLogger:
        """Build the logger; skip the test if it talks to another machine or cannot be had here."""
        factory = installed(self.plugins).loggers.find(self.logger).factory
        options = build_options(factory.options, f"logger {self.logger!r}", self.options)
        if getattr(factory, "is_remote", lambda _: False)(options):
            pytest.skip("it talks to another machine; give options with which it writes to this one")
        try:
            return factory.build(options, folder)
        except RequestError as error:
            pytest.skip(f"it cannot be had here: {error.what}")

    def test_logs_a_run_that_is_resumed(self, tmp_path: Path) -> None:
        """The log of a resumed run is found, with the last step that is in it; a restarted run has another."""
        for attempt, last, steps, status in (
            ("first", None, (0, 1), "interrupted"),
            ("first", 1, (2,), "finished"),
            ("second", None, (0,), "failed"),
        ):
            logger = self.build(tmp_path / "log")
            parameters: dict[str, str | int | float | bool] = {"strategy": "tiny", "seed": 0, "rate": 0.5}
            logger.begin(LoggedRun("tiny-run", f"tiny-run/{attempt}", parameters, {"kind": "tiny"}))
            found = logger.last_step("tiny/loss")
            require(found == last, f"last_step() is {found}, where {last} was logged last in this attempt of the run")
            for step in steps:
                logger.log(LoggedValues({"tiny/loss": 1.0 / (step + 1)}, "tiny/epoch", step, step))
            logger.end(status)


#: Two tasks of a few images of a data set that needs no files, so that any process can make the run.
_FEW_DIGITS: Final = """
name = "few_digits"
default_protocol = "instant"
stream = { kind = "classes", dataset = "digits", classes_per_task = 5 }

[protocols.instant]
ranked = false
images = { train = 16, valid = 8, test = 16 }
training = { epochs = 1, batch_size = 16 }
"""


class ExecutorContract(Contract):
    """Test that every executor must pass whose jobs run on this machine.

    Attributes:
        executor: registered name.
        options: its own options, without ``executor.``.
    """

    executor: ClassVar[str]

    def test_runs_every_job_once(self, tmp_path: Path) -> None:
        """Two jobs of a second each end once, as finished, with their records; nothing comes of them afterwards."""
        registry = installed(self.plugins)
        factory = registry.executors.find(self.executor).factory
        if factory.detaches:
            pytest.skip("its jobs outlive this process, and may run where this test's folder is not: try it by a sweep")
        (tmp_path / "few.toml").write_text(_FEW_DIGITS, encoding="utf-8")
        # The strategy of ours or of anybody with the fewest options: its runs need none.
        plain = {
            name: len(entry.factory.options.model_fields)
            for name, entry in registry.strategies.items()
            if issubclass(entry.factory.options, BackboneOptions) and not entry.factory.components
        }
        requests = [
            Request(
                strategy=min(plain, key=lambda name: (plain[name], name)),
                benchmark=str(tmp_path / "few.toml"),
                results=tmp_path / "results",
                device="cpu",
                seed=seed,
            )
            for seed in (0, 1)
        ]
        jobs = [Job(run_id=resolve(registry, request).spec.run_id, request=request) for request in requests]
        try:
            executor = factory.build(build_options(factory.options, self.executor, self.options), "cpu", 1)
        except RequestError as error:
            pytest.skip(f"it cannot be had here: {error.what}")
        events: list[Event] = []
        with contextlib.closing(executor):
            executor.submit(jobs)
            for _ in range(300):  # seconds, after which jobs of this size count as stuck
                events += executor.wait(1.0)
                if sum(isinstance(event, Ended) for event in events) >= len(jobs):
                    break
            events += executor.wait(0.0)
        ends = {event.run_id: (event.status, event.message) for event in events if isinstance(event, Ended)}
        last = {event.run_id: isinstance(event, Ended) for event in events}
        count = sum(isinstance(event, Ended) for event in events)
        require(
            ends == {job.run_id: ("finished", "") for job in jobs} and count == len(jobs) and all(last.values()),
            f"two jobs ended as {ends}, with {count} events of an end: each must end once, as finished, at last",
        )
        for job in jobs:
            status = read_record(record_path(tmp_path / "results", job.run_id)).status
            require(status == "finished", f"the record of a finished job is {status}")


class CommandContract(Contract):
    """Test that every command must pass.

    Attributes:
        command: registered name.
    """

    command: ClassVar[str]

    def test_has_help(self) -> None:
        """``seu-bench NAME --help`` says what it does."""
        entry = installed(self.plugins).commands.find(self.command)
        built = entry.factory.build()
        require(isinstance(built, click.Command), f"build() must return a click command, not {built!r:.100}")
        answer = CliRunner().invoke(built, ["--help"])
        if answer.exception is not None and answer.exit_code:
            raise answer.exception
        require(bool(built.help or built.get_short_help_str()), "give its function a docstring, which --help shows")
        require(bool(entry.summary), "give the factory a summary, which seu-bench --help shows")
