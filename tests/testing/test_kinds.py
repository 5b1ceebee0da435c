"""Contracts of backbones, data sets, benchmarks, metrics and loggers: broken ones fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from seu_bench import hookimpl
from seu_bench.config import BenchmarkSpec
from seu_bench.config.options import Options
from seu_bench.data.dataset import DatasetInfo, DatasetState, InputShape, RawDataset
from seu_bench.data.synthetic import synthetic_dataset
from seu_bench.errors import DataMissingError
from seu_bench.plugin.loggers import LoggedRun, LoggedValues
from seu_bench.plugin.registration import LazyFactory
from seu_bench.results.metric import Metric
from seu_bench.testing import BackboneContract, BenchmarkContract, DatasetContract, LoggerContract, MetricContract
from seu_bench.testing.streams import TINY, TinyData


class Broken:
    """A plugin that offers one thing of one kind under the name ``broken``."""

    def __init__(self, kind: str, factory: object) -> None:
        setattr(self, f"register_{kind}", hookimpl(lambda register: register("broken", factory)))


def broken(contract: type[Any], attribute: str, factory: object, **more: Any) -> Any:
    """The contract for it."""
    return type("Trial", (contract,), {attribute: "broken", "plugins": [Broken(f"{attribute}s", factory)], **more})()


def fails(match: str) -> Any:
    return pytest.raises(pytest.fail.Exception, match=match)


@dataclass
class Network:
    """A backbone."""

    make: Callable[[int], tuple[Any, int]]
    summary = "broken"

    def build(self, sample: InputShape, factor: float) -> tuple[nn.Module, int]:
        """Build it for so many pixels."""
        return self.make(math.prod(sample.shape))


class Beside(nn.Module):
    """Subtracts the mean of the batch."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Features of images."""
        return (images - images.mean(0)).flatten(1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda pixels: (nn.Flatten(), pixels + 1), r"gave \(4, 64\); features must be finite and of shape \(4, 65\)"),
        (lambda pixels: ("nothing", pixels), "must return a torch module"),
        (lambda pixels: (Beside(), pixels), "with the images beside it"),
    ],
)
def test_broken_backbones(make: Callable[[int], tuple[Any, int]], said: str) -> None:
    with fails(said):
        broken(BackboneContract, "backbone", Network(make)).test_maps_images_to_features(InputShape("image", (1, 8, 8)))


@dataclass
class Data:
    """A data set whose files are there, or are missing below any folder."""

    data: RawDataset
    status: Any = "embedded"
    error: Exception | None = None
    described: DatasetInfo | None = None
    summary = "broken"

    def info(self, root: Path | None) -> DatasetInfo:
        return self.described or self.data.info

    def state(self, root: Path | None) -> DatasetState:
        return DatasetState(self.status)

    def load(self, root: Path | None) -> RawDataset:
        if self.error is not None:
            raise self.error
        return self.data

    def fetch(self, root: Path) -> None: ...


def test_broken_data_sets(tmp_path: Path) -> None:
    """A description that is not so; missing files, of which an error with a remedy has to tell."""
    textures = TinyData("broken", (4, 4), 3).load(None)
    trial = broken(DatasetContract, "dataset", Data(textures))
    trial.test_holds_what_it_describes(Data(textures))
    with fails("and info\\(\\) says"):
        trial.test_holds_what_it_describes(Data(textures, described=replace(textures.info, num_classes=3)))
    with pytest.raises(pytest.skip.Exception, match="needs no files"):
        trial.test_says_that_it_is_missing(Data(textures), tmp_path)
    with fails("load\\(\\) raises no DataMissingError"):
        trial.test_says_that_it_is_missing(Data(textures, "missing"), tmp_path)
    with fails("gives no hint: gone"):
        trial.test_says_that_it_is_missing(Data(textures, "missing", DataMissingError("gone")), tmp_path)
    trial.test_says_that_it_is_missing(Data(textures, "missing", DataMissingError("gone", remedy="fetch")), tmp_path)


@pytest.mark.parametrize("kind", ["features", "tokens"])
def test_data_sets_without_pixels(kind: Any) -> None:
    """They and benchmarks over them pass, where the source says what they are."""
    info = DatasetInfo("broken", 6, 1, 1, 4, 160, 80, kind=kind, vocabulary=20)
    source: Any = Data(synthetic_dataset(info, 0, scale=1.0))
    with fails(f"its samples are {kind}: give the source an attribute kind"):
        broken(DatasetContract, "dataset", source).test_holds_what_it_describes(source)
    source.kind = kind
    broken(DatasetContract, "dataset", source).test_holds_what_it_describes(source)
    spec = BenchmarkSpec.of({"kind": "classes", "dataset": "broken", "classes_per_task": 2}, name="broken")
    contract = type("Trial", (BenchmarkContract,), {"benchmark": "broken"})
    contract.plugins = [Broken("datasets", source), Broken("benchmarks", spec)]
    contract().test_tasks_are_as_planned()


def test_a_benchmark_of_another_name() -> None:
    with fails("registered as 'broken' and calls itself 'tiny_two'"):
        broken(BenchmarkContract, "benchmark", TINY["tiny_two"]).test_tasks_are_as_planned()


@pytest.mark.parametrize(
    ("compute", "said"),
    [
        (lambda record: record.accuracy_matrix[1][0], "for a record of 1 tasks it raised IndexError"),
        (lambda _: float("nan"), "give a finite number, or None"),
        (lambda _: True, "it gave True, which is no number"),
        (lambda _: torch.rand(()).item(), "set from_record = False"),
    ],
)
def test_broken_metrics(compute: Any, said: str, tmp_path: Path) -> None:
    with fails(said):
        broken(MetricContract, "metric", Metric(compute)).test_is_a_number_or_nothing(tmp_path)


class InTurn:
    """A logger that writes steps into a file of each attempt, or wrongly of each run, or finds none again."""

    def __init__(self, options: Any, folder: Path) -> None:
        self.folder, self.options = folder, options

    def begin(self, run: LoggedRun) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.known = self.folder / (run.run_id if self.options.clings else run.attempt.replace("/", "-"))

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
        return broken(LoggerContract, "logger", factory, options=options)

    trial().test_logs_a_run_that_is_resumed(tmp_path / "sound")
    with fails("last_step\\(\\) is None, where 1 was logged last"):
        trial(forgets=True).test_logs_a_run_that_is_resumed(tmp_path / "a")
    with fails("last_step\\(\\) is 2, where None was logged last"):
        trial(clings=True).test_logs_a_run_that_is_resumed(tmp_path / "b")
    with pytest.raises(pytest.skip.Exception, match="another machine"):
        trial(remote=True).test_logs_a_run_that_is_resumed(tmp_path)
