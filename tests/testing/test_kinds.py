"""Contracts of backbones, data, metrics, loggers and commands: ours hold to them, broken ones do not."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from seu_bench import hookimpl
from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.options import Options
from seu_bench.data.dataset import DatasetInfo, DatasetSource, DatasetState, RawDataset, RawSplit
from seu_bench.errors import DataMissingError, RequestError
from seu_bench.plugin.loggers import LoggedRun, LoggedValues
from seu_bench.plugin.registration import LazyCommand, LazyFactory, Register
from seu_bench.results.metric import Metric
from seu_bench.results.record import Record
from seu_bench.testing import (
    BackboneContract,
    BenchmarkContract,
    CommandContract,
    DatasetContract,
    LoggerContract,
    MetricContract,
)
from seu_bench.testing.kinds import FineTuning, finished_records
from seu_bench.testing.streams import TINY, TinyData, benchmark, class_split
from seu_bench.testing.trial import installed

# --- ours ---------------------------------------------------------------------------------------------------------


class TestBackbone(BackboneContract):
    """The one without hidden layers, which is the quickest; ``make test-long`` tries the others."""

    backbone = "linear"


class TestDataset(DatasetContract):
    """The one that needs no files."""

    dataset = "digits"


class TestBenchmark(BenchmarkContract):
    """The one of that data set."""

    benchmark = "split_digits"


class TestMetric(MetricContract):
    """One that every record has."""

    metric = "forgetting"


class TestCommand(CommandContract):
    """The shortest."""

    command = "list"


# --- broken ones --------------------------------------------------------------------------------------------------


class Broken:
    """A plugin that offers one thing of one kind under the name ``broken``."""

    def __init__(self, kind: str, factory: object) -> None:
        setattr(self, f"register_{kind}", hookimpl(lambda register: register("broken", factory)))


def broken(contract: type[Any], attribute: str, kind: str, factory: object) -> Any:
    """The contract for it."""
    return type("Trial", (contract,), {attribute: "broken", "plugins": [Broken(kind, factory)]})()


def fails(match: str) -> AbstractContextManager[pytest.ExceptionInfo[BaseException]]:
    return pytest.raises(pytest.fail.Exception, match=match)


@dataclass
class Network:
    """A backbone."""

    make: Callable[[int], tuple[Any, int]]
    summary = "broken"

    def build(self, channels: int, height: int, width: int, factor: float) -> tuple[nn.Module, int]:
        """Build it for so many pixels."""
        return self.make(channels * height * width)


class Beside(nn.Module):
    """Subtracts the mean of the batch."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Features of images."""
        return (images - images.mean(0)).flatten(1)


def unseeded(pixels: int) -> tuple[nn.Module, int]:
    layer = nn.Linear(pixels, 2)
    nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(torch.seed() & 0xFFFF))
    return nn.Sequential(nn.Flatten(), layer), 2


@pytest.mark.long
def test_broken_backbones() -> None:
    """Features of another width than was said, that depend on their neighbours, of weights that no seed decides."""

    def trial(make: Callable[[int], tuple[Any, int]]) -> Any:
        return broken(BackboneContract, "backbone", "backbones", Network(make))

    wrong_width, shape = trial(lambda pixels: (nn.Flatten(), pixels + 1)), (1, 8, 8)
    with fails(r"gave \(4, 64\) with width 0.5; features must be finite and of shape \(4, 65\)"):
        wrong_width.test_maps_images_to_features(shape, 0.5)
    with fails("must return a torch module"):
        trial(lambda pixels: ("nothing", pixels)).test_maps_images_to_features(shape, 0.5)
    with fails("with the images beside it"):
        trial(lambda pixels: (Beside(), pixels)).test_looks_at_each_image_alone()
    with fails("two networks of one seed have other weights"):
        trial(unseeded).test_depends_on_the_seed_alone()
    with pytest.raises(pytest.skip.Exception, match="no weights"):
        trial(lambda pixels: (nn.Flatten(), pixels)).test_depends_on_the_seed_alone()


@dataclass
class Data:
    """A data set whose files are there, or are missing below any folder."""

    data: RawDataset
    status: Any = "embedded"
    error: Exception | None = None
    described: DatasetInfo | None = None
    summary = "broken"

    def info(self, root: Path | None) -> DatasetInfo:
        """What it says."""
        return self.described or self.data.info

    def state(self, root: Path | None) -> DatasetState:
        """What the test says."""
        return DatasetState(self.status)

    def load(self, root: Path | None) -> RawDataset:
        """What the test says."""
        if self.error is not None:
            raise self.error
        return self.data

    def fetch(self, root: Path) -> None:
        """Do nothing."""


@pytest.fixture
def textures() -> RawDataset:
    """A sound data set."""
    return TinyData("broken", (4, 4), 3).load(None)


def test_broken_data_sets(textures: RawDataset, tmp_path: Path) -> None:
    """Descriptions that do not add up, other numbers of images, another order."""

    def trial(data: Data) -> Any:
        return broken(DatasetContract, "dataset", "datasets", data)

    sound = trial(Data(textures))
    sound.test_describes_itself(Data(textures))
    sound.test_holds_what_it_describes(Data(textures), textures)
    with fails(r"train_per_class is \(4, 5\), for 2 classes and 8 images"):
        sound.test_describes_itself(Data(textures, described=replace(textures.info, train_per_class=(4, 5))))
    with fails("num_classes is 0"):
        sound.test_describes_itself(Data(textures, described=replace(textures.info, num_classes=0)))
    with fails("the status 'here' is none of"):
        sound.test_says_whether_it_is_there(Data(textures, status="here"), tmp_path)
    images, labels = textures.train.images, textures.train.labels
    data = replace(textures, train=RawSplit(images, labels * 0))
    with fails(r"train_per_class is \(4, 4\), and there are \[8, 0\]"):
        sound.test_holds_what_it_describes(Data(data), data)
    with fails("a second load"):
        sound.test_is_the_same_at_each_load(
            Data(textures), replace(textures, train=RawSplit(images[::-1], labels[::-1]))
        )


def test_missing_files(textures: RawDataset, tmp_path: Path) -> None:
    """Where files are missing that must be said by an error with a remedy; where none are needed it is skipped."""
    trial = broken(DatasetContract, "dataset", "datasets", Data(textures))
    with pytest.raises(pytest.skip.Exception, match="needs no files"):
        trial.test_says_that_it_is_missing(Data(textures), tmp_path)
    with fails("load\\(\\) raises no DataMissingError"):
        trial.test_says_that_it_is_missing(Data(textures, "missing"), tmp_path)
    with fails("gives no hint: gone"):
        trial.test_says_that_it_is_missing(Data(textures, "missing", DataMissingError("gone")), tmp_path)
    trial.test_says_that_it_is_missing(Data(textures, "missing", DataMissingError("gone", remedy="fetch")), tmp_path)


@dataclass
class Source:
    """A benchmark."""

    spec: BenchmarkSpec
    summary = "broken"

    def load(self, overrides: object = None) -> BenchmarkSpec:
        """Load it."""
        return self.spec


def test_broken_benchmarks() -> None:
    """One that calls itself otherwise than it is registered, and one with a task that nothing is left for."""
    mine = TINY["tiny_two"].load()
    trial = broken(BenchmarkContract, "benchmark", "benchmarks", Source(mine))
    with fails("registered as 'broken' and calls itself 'tiny_two'"):
        trial.test_is_the_same_at_each_load(_registry(trial), mine)
    empty = benchmark(class_split(((0, 1), (2, 3)), "lean"), "broken")
    trial = broken(BenchmarkContract, "benchmark", "benchmarks", Source(empty))
    trial.plugins.append(Lean())
    with pytest.raises(RequestError, match="has no validation images"):
        trial.test_every_protocol_can_be_run(_registry(trial), empty)


class Lean:
    """A data set of one training image of each class."""

    @hookimpl
    def register_datasets(self, register: Register[DatasetSource]) -> None:
        """Offer it."""
        register("lean", TinyData("lean", (1,) * 4, 4))


def _registry(trial: Any) -> Any:
    return installed([*trial.plugins, FineTuning()])


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """Records of finished runs."""
    return finished_records(tmp_path_factory.mktemp("results"))


def test_broken_metrics(records: list[Record]) -> None:
    """Those that fail for a stream of one task, give no number, or another one each time."""
    trial, calls = broken(MetricContract, "metric", "metrics", Metric(lambda _: 0.0)), iter(range(100))
    assert [len(record.task_names) for record in records] == [1, 2, 3]
    with fails("for a record of 1 tasks it raised IndexError"):
        trial.test_is_a_number_or_nothing(Metric(lambda record: record.accuracy_matrix[1][0]), records)
    for wrong in (float("nan"), True, "much"):
        with fails("give a finite number, or None"):
            trial.test_is_a_number_or_nothing(Metric(lambda _, wrong=wrong: wrong), records)  # type: ignore[misc]
    with fails("set from_record = False"):
        trial.test_is_computed_from_the_record(Metric(lambda _: next(calls)), records)
    trial.test_is_a_number_or_nothing(Metric(lambda _: None), records)


class InTurn:
    """A logger that writes steps into a file of each attempt, or wrongly of each run, or finds none again."""

    def __init__(self, options: Any, folder: Path) -> None:
        self.folder, self.options = folder, options

    def begin(self, run: LoggedRun) -> None:
        name = run.run_id if self.options.clings else run.attempt.replace("/", "-")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.known = self.folder / name

    def last_step(self, name: str) -> int | None:
        return int(self.known.read_text()) if self.known.exists() and not self.options.forgets else None

    def log(self, measured: LoggedValues) -> None:
        self.known.write_text(str(measured.step))

    def end(self, status: str) -> None: ...


class InTurnOptions(Options):
    """What is wrong with it."""

    clings: bool = False
    forgets: bool = False


def test_loggers(tmp_path: Path) -> None:
    """Steps that would be logged twice, and two attempts in one log; remote ones are skipped."""

    def trial(remote: bool = False, **options: bool) -> Any:
        factory = LazyFactory("x", options=InTurnOptions, build=InTurn, is_remote=lambda _: remote)
        made = broken(LoggerContract, "logger", "loggers", factory)
        made.options = options
        return made

    trial().test_logs_a_run_that_is_resumed(tmp_path / "sound")
    with fails("last_step\\(\\) is None, where 1 was logged last"):
        trial(forgets=True).test_logs_a_run_that_is_resumed(tmp_path / "a")
    with fails("last_step\\(\\) is 2, where None was logged last"):
        trial(clings=True).test_logs_a_run_that_is_resumed(tmp_path / "b")
    with pytest.raises(pytest.skip.Exception, match="another machine"):
        trial(remote=True).test_logs_a_run_that_is_resumed(tmp_path)


def test_broken_commands() -> None:
    """One without a summary, one whose module is missing."""
    with fails("give the factory a summary"):
        broken(CommandContract, "command", "commands", LazyCommand("seu_bench.cli.list:list_")).test_has_help()
    with pytest.raises(ModuleNotFoundError):
        broken(CommandContract, "command", "commands", LazyCommand("seu_bench.nowhere:x", "x")).test_has_help()
