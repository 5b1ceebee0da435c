"""Contracts of what is no strategy: backbones, data sets, benchmarks, metrics and loggers.

Tests that need files of a data set are skipped where these are missing.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seu_bench.config.options import build_options
from seu_bench.config.run import Request
from seu_bench.data.dataset import DatasetSource, InputShape
from seu_bench.data.streams import build_stream
from seu_bench.engine.encoders import named_encoder
from seu_bench.engine.resolve import named_backbone, resolve, taken_inputs
from seu_bench.errors import DataError, DataMissingError, RequestError
from seu_bench.hookspecs import hookimpl
from seu_bench.plugin.loggers import LoggedRun, LoggedValues
from seu_bench.plugin.methods import MethodFactory
from seu_bench.plugin.registration import Register
from seu_bench.results.record import Record, read_record, record_path
from seu_bench.testing.trial import Contract, Trial, check_sizes, load_registry, require
from seu_bench.training.interfaces import StrategyFactory
from seu_bench.training.method import Method

#: What a backbone is tried with: tiny images, MNIST's, CIFAR's, and not square; features, and tokens.
SAMPLES: Final = (
    *(InputShape("image", shape) for shape in ((1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 24, 32))),
    InputShape("features", (30,)),
    InputShape("tokens", (12,), vocabulary=50),
)


class FineTuning(Method):
    """Train one network on every task in turn."""


class OffersFineTuning:
    """The plugin that offers ``fine_tuning``; registered by hand, where a contract runs."""

    @hookimpl
    def register_strategies(self, register: Register[StrategyFactory]) -> None:
        factory: Any = MethodFactory(FineTuning)
        register("fine_tuning", factory)


class BackboneContract(Contract):
    """Tests that every backbone must pass.

    Attributes:
        backbone: registered name, or ``KIND:NAME``.
    """

    backbone: ClassVar[str]

    def _name(self) -> str:
        """The backbone; of one that stands for many, its example."""
        if ":" in self.backbone:
            return self.backbone
        example = getattr(load_registry(self.plugins).backbones.find(self.backbone).factory, "example", None)
        return self.backbone if example is None else f"{self.backbone}:{example}"

    @pytest.mark.parametrize("shape", SAMPLES, ids=lambda it: "x".join(map(str, it.shape)))
    def test_maps_images_to_features(self, shape: InputShape) -> None:
        """Images ``[N, C, H, W]`` become finite features ``[N, F]``; in evaluation each image's by itself. So do other
        samples that it takes."""
        factory, images = named_backbone(load_registry(self.plugins), self._name()), torch.randn(4, *shape.shape)
        if shape.kind not in taken_inputs(factory):
            pytest.skip(f"it does not take {shape.kind}")
        if shape.vocabulary is not None:
            images = torch.randint(shape.vocabulary, images.shape)
        try:
            network, features = factory.build(shape, 0.5)
        except RequestError as error:
            pytest.skip(f"it refuses {shape}: {error.what}")
        require(isinstance(network, nn.Module), f"build() must return a torch module first, not {network!r:.100}")
        for training in (True, False):
            found = network.train(training)(images)
            told = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            require(
                told == (4, features) and bool(torch.isfinite(found).all()),
                f"4 {shape} gave {told}; features must be finite and of shape {(4, features)}, as build() "
                "says by the number that it returns second",
            )
        apart = torch.cat([network(image[None]) for image in images])
        require(
            torch.allclose(found, apart, rtol=1e-4, atol=1e-5),
            f"an image's features change by {(found - apart).abs().max():.2g} with the images beside it",
        )

    def test_is_learned_with(self, tmp_path: Path) -> None:
        """Fine-tuning on it learns three tasks; sizes are those that the cost estimate said."""
        if "image" not in taken_inputs(named_backbone(load_registry(self.plugins), self._name())):
            pytest.skip("the tiny streams are of images")
        trial = Trial("fine_tuning", {"backbone": self._name(), **self.options}, [*self.plugins, OffersFineTuning()])
        learner = trial.learner("tiny_three")
        for task in range(learner.tasks):
            learner.learn(task)
            check_sizes(learner, task)
        record = trial.record("tiny_three", tmp_path)
        require(record.status == "finished", f"the run is {record.status}: {record.error}")


class EncoderContract(Contract):
    """Tests that every pretrained network must pass.

    Attributes:
        encoder: registered name, or ``KIND:NAME``.
    """

    encoder: ClassVar[str]

    def test_makes_features_as_it_says(self) -> None:
        """Of as many numbers as its description has, the same whenever it is built, one image at a time or several."""
        registry = load_registry(self.plugins)
        if ":" not in self.encoder and hasattr(registry.encoders.find(self.encoder).factory, "select"):
            pytest.skip(f"it stands for many networks: give encoder = '{self.encoder}:NAME'")
        factory = named_encoder(registry, self.encoder)
        info, network, again = factory.info(), factory.load(), factory.load()
        require(network.info == info, "info() and load().info differ")
        images = torch.randn(4, 3, info.size, info.size)
        found, last = network.readings(images), network(images)
        told = (4, sum(info.widths)), (4, info.widths[-1])
        shapes = tuple(found.shape), tuple(last.shape)
        require(shapes == told, f"4 images gave readings and features of {shapes}, and its widths say {told}")
        require(bool(torch.isfinite(found).all()), "features must be finite")
        require(torch.equal(found, again.readings(images)), "it differs when it is loaded again")
        apart = torch.cat([network.readings(image[None]) for image in images])
        require(torch.allclose(found, apart, rtol=1e-4, atol=1e-5), "features hang on the images beside an image")
        require(not any(it.requires_grad for it in network.parameters()), "its parameters must be frozen")


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
        return load_registry(self.plugins).datasets.find(self.dataset).factory

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

    def test_holds_what_it_describes(self, source: DatasetSource) -> None:
        """What ``info`` says, in arrays of that shape and range, and the same each time: records have its checksum."""
        _skip_without_files(self.dataset, source, self.root)
        loaded, info = source.load(self.root).check(), source.info(self.root)
        kind = getattr(source, "kind", "image")
        require(info.kind == kind, f"its samples are {info.kind}: give the source an attribute kind; it says {kind}")
        require(loaded.info == info, f"what is loaded says that it is {loaded.info}, and info() says {info}")
        for name in ("train", "test"):
            labels, said = getattr(loaded, name).labels, getattr(info, f"{name}_per_class")
            counts = np.bincount(labels, minlength=info.num_classes).tolist()
            require(said is None or counts == [*said], f"{name}_per_class is {said}, and there are {counts}")
        again = source.load(self.root).check()
        require(again.checksum() == loaded.checksum(), "a second load() gave other images or labels")


class BenchmarkContract(Contract):
    """Test that every benchmark must pass.

    Attributes:
        benchmark: registered name.
        root: folder of data sets, as after ``--data-root``; ``None``: the default.
    """

    benchmark: ClassVar[str]
    root: ClassVar[Path | None] = None

    def test_tasks_are_as_planned(self) -> None:
        """By every protocol each task has images to train on, to select by and to test with; with a few images of each
        class it has what the plan says, equal at each time."""
        registry = load_registry([*self.plugins, OffersFineTuning()])
        factory = registry.benchmarks.find(self.benchmark).factory
        spec = factory.load()
        require(spec.name == self.benchmark, f"it is registered as {self.benchmark!r} and calls itself {spec.name!r}")
        require(factory.load() == spec, "a second load() gave another benchmark")
        common: dict[str, Any] = {"strategy": "fine_tuning", "benchmark": self.benchmark, "data_root": self.root}
        runs = [resolve(registry, Request(protocol=protocol, **common)) for protocol in spec.protocols]
        try:
            for run in runs:
                run.plan()  # refuses tasks without images
        except DataMissingError as error:
            pytest.skip(f"its data sets are described by their files, which are missing: {error.what}")
        run = resolve(registry, Request(limit=8, **common))
        for name, source in run.sources.items():
            _skip_without_files(name, source, self.root)
        streams = [build_stream(run.spec.benchmark, run.load, run.limits, run.spec.seed, **run.part) for _ in range(2)]
        require(streams[0].fingerprint == streams[1].fingerprint, "the tasks differ from one time to the next")
        require(streams[0].plan == run.plan(), "the tasks are not those of the plan that was made without images")


def _skip_without_files(name: str, source: DatasetSource, root: Path | None) -> None:
    state = source.state(root)
    if state.status not in ("embedded", "complete"):
        at = f" in {state.where}" if state.where is not None else ""
        pytest.skip(f"the files of data set {name!r} are {state.status}{at}: seu-bench data fetch {name}")


class MetricContract(Contract):
    """Test that every metric must pass.

    Attributes:
        metric: registered name.
    """

    metric: ClassVar[str]

    def test_is_a_number_or_nothing(self, tmp_path: Path) -> None:
        """For finished runs of one, two and three tasks, and beside itself: a finite number, or ``None`` where it is
        not defined; the same every time, and the record is as it was."""
        trial = Trial("fine_tuning", plugins=[OffersFineTuning()])
        value = load_registry(self.plugins).known_metrics[self.metric]
        for tasks, stream in enumerate(("tiny_single", "tiny_two", "tiny_three"), start=1):
            record = read_record(record_path(tmp_path, trial.record(stream, tmp_path).run_id))
            before = record.model_dump(mode="json")
            try:
                found = [value.compute(record), value(Record.model_validate(before))]
            except Exception as error:
                pytest.fail(
                    f"for a record of {tasks} tasks it raised {type(error).__name__}: {error}; give None where it is "
                    "not defined"
                )
            if value.relative is not None:
                found.append(value.beside(record, record))
            for raw in found:
                number = isinstance(raw, int | float) and not isinstance(raw, bool) and math.isfinite(raw)
                require(
                    raw is None or number,
                    f"for a record of {tasks} tasks it gave {raw!r}: give a finite number, or None where it is not "
                    "defined",
                )
            require(
                found[0] == found[1] or not value.from_record,
                f"it gave {found[:2]} for one record: set from_record = False if it may",
            )
            require(record.model_dump(mode="json") == before, "it changed the record")


class LoggerContract(Contract):
    """Test that every logger must pass which writes to this machine.

    Attributes:
        logger: registered name.
        options: its own options, without ``logger.``.
    """

    logger: ClassVar[str]

    def test_logs_a_run_that_is_resumed(self, tmp_path: Path) -> None:
        """The log of a resumed run is found, with the last step that is in it; a restarted run has another."""
        factory = load_registry(self.plugins).loggers.find(self.logger).factory
        options = build_options(factory.options, f"logger {self.logger!r}", self.options)
        if getattr(factory, "is_remote", lambda _: False)(options):
            pytest.skip("it talks to another machine; give options with which it writes to this one")
        for attempt, last, steps, status in (
            ("first", None, (0, 1), "interrupted"),
            ("first", 1, (2,), "finished"),
            ("second", None, (0,), "failed"),
        ):
            try:
                logger = factory.build(options, tmp_path / "log")
            except RequestError as error:
                pytest.skip(f"it cannot be had here: {error.what}")
            logger.begin(LoggedRun("tiny-run", f"tiny-run/{attempt}", {"seed": 0, "rate": 0.5}, {"kind": "tiny"}))
            found = logger.last_step("tiny/loss")
            require(found == last, f"last_step() is {found}, where {last} was logged last in this attempt of the run")
            for step in steps:
                logger.log(LoggedValues({"tiny/loss": 1.0 / (step + 1)}, "tiny/epoch", step, step))
            logger.end(status)
