"""A metric is registered once, core's or a stranger's, and then is wherever metrics are."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import FEW_IMAGES, Command, Install, folder_of_run

from seu_bench.plugin.registry import Registry
from seu_bench.results.metric import Metric
from seu_bench.results.record import read_record
from seu_bench.results.record_metrics import METRICS, without_times

#: A stranger's metrics: one with all that can be said of it, a plain object that says some of it, one that is read off
#: the process; and a logger that keeps what it is given.
PLUGIN = """
import json
import random

from seu_bench import hookimpl
from seu_bench.config.options import Options
from seu_bench.results import Metric


def worst(record):
    return min(value for value in record.accuracy_matrix[-1] if value is not None)


def naps(record):
    return 3 * len(record.stages)


@hookimpl
def register_metrics(register):
    register("worst", Metric(worst, "lowest final accuracy", "fraction", True, column="worst task (%)"))
    register("naps", Metric(naps, "naps taken while it learned", higher_is_better=False, machine_dependent=True))
    register("battery", Metric(lambda record: random.random(), "power left", from_record=False))


class Keeping:
    summary = "keeps numbers"
    options = Options

    def build(self, options, folder):
        self.file, self.values = folder / "values.json", {}
        return self

    def begin(self, run):
        pass

    def last_step(self, name):
        return None

    def log(self, measured):
        self.values |= measured.values

    def end(self, status):
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps(self.values))


@hookimpl
def register_loggers(register):
    register("keeping", Keeping())
"""


@pytest.fixture
def stranger(install: Install) -> None:
    """The stranger's package, installed."""
    install("more-metrics", {"more": "more_metrics"}, {"more_metrics": PLUGIN})


@pytest.fixture
def folder(stranger: None, command: Command, tmp_path: Path) -> Path:
    """The folder of a run that is ranked and logged, with the stranger's package installed."""
    (tmp_path / "few.toml").write_text(FEW_IMAGES, encoding="utf-8")
    asked = ("--strategy", "naive", "--benchmark", tmp_path / "few.toml", "--device", "cpu", "-o", "backbone=mlp")
    return folder_of_run(command, *asked, "--log", "keeping", "--results", tmp_path / "results")


def test_registered_once(folder: Path, command: Command, tmp_path: Path) -> None:
    """Record, columns, Pareto front, budgets, loggers, verify, and every table of metrics."""
    results = tmp_path / "results"
    record = read_record(folder)
    worst = min(value for value in record.accuracy_matrix[-1] if value is not None)
    naps = 3 * len(record.stages)
    assert (record.metrics["worst"], record.metrics["naps"]) == (worst, naps)

    (page,) = (results / "leaderboards").glob("*.md")
    assert "| worst task (%) |" in page.read_text(encoding="utf-8")
    assert "- worst task (%): lowest final accuracy\n" in page.read_text(encoding="utf-8")
    (row,) = csv.DictReader(io.StringIO(page.with_suffix(".csv").read_text(encoding="utf-8")))
    assert float(row["worst_mean"]) == worst and "naps_mean" not in row

    def shown(*words: object) -> str:
        answer = command(*words, "--results", results)
        assert (answer.status, answer.err) == (0, "")
        return " ".join(answer.out.split())

    front = shown("leaderboard", "--pareto", "worst,naps")
    assert "Pareto front of worst task (%) and naps" in front and f"{100 * worst:.2f}" in front
    assert "excluded (" not in shown("leaderboard", "--budget", f"naps={naps}")
    assert "1 row excluded (" in shown("leaderboard", "--budget", f"naps={naps - 1}")
    assert command("leaderboard", "--pareto", "worst,battery", "--results", results).status == 2
    assert command("leaderboard", "--budget", "worst=1", "--results", results).status == 2

    logged = json.loads((results / "logs" / "keeping" / "values.json").read_text(encoding="utf-8"))
    assert (logged["final/worst"], logged["final/naps"]) == (worst, naps)
    assert "final/battery" not in logged and record.metrics["battery"] is not None

    assert f"{100 * worst:.2f} % lowest final accuracy" in shown("show", folder)
    assert "lowest final accuracy" in command("list", "metrics").out
    assert f"worst {100 * worst:.2f} % {100 * worst:.2f} % 0.00" in shown("compare", folder, folder)


def test_verified_as_core_s_are(folder: Path, command: Command, tmp_path: Path) -> None:
    """A value that does not follow from the record is a fault; one that was read off the process is not asked for."""
    words = ("verify", folder, "--benchmark", tmp_path / "few.toml", "--device", "cpu")
    answer = command(*words)
    assert answer.status == 0 and "not compared" not in answer.out
    path = folder / "record.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    for name, is_fault in (("worst", True), ("naps", True), ("acc", True), ("battery", False)):
        changed = document | {"metrics": document["metrics"] | {name: 0.123}, "record_sha256": None}
        path.write_text(json.dumps(changed), encoding="utf-8")
        answer = command(*words)
        assert (f"{name}: recorded 0.123, found" in answer.out) == is_fault, name


def test_what_depends_on_the_machine_is_no_difference(folder: Path) -> None:
    record, metrics = read_record(folder), Registry().known_metrics
    slower = record.model_copy(update={"metrics": record.metrics | {"naps": 99, "train_seconds": 9e9}})
    assert without_times(slower, metrics) == without_times(record, metrics)
    other = record.model_copy(update={"metrics": record.metrics | {"worst": 0.123}})
    assert without_times(other, metrics) != without_times(record, metrics)


@pytest.mark.parametrize(
    ("correct", "wrong", "said"),
    [
        ('"fraction"', '"furlongs"', "unknown unit 'furlongs'"),
        (
            'Metric(worst, "lowest final accuracy"',
            'Metric("lowest", worst',
            "compute is 'lowest'",
        ),
    ],
)
def test_a_wrong_one_is_refused_with_the_package(install: Install, correct: str, wrong: str, said: str) -> None:
    install("more-metrics", {"more": "more_metrics"}, {"more_metrics": PLUGIN.replace(correct, wrong)})
    fault = Registry().faults["more"].what
    assert "package more-metrics failed in register_metrics" in fault and said in fault


def test_results_are_read_where_a_plugin_is_broken(folder: Path, install: Install, command: Command) -> None:
    """The broken plugin is named, and the metrics of others are shown as ever."""
    install("broken", {"broken": "broken_module"}, {"broken_module": "1 / 0"})
    results = folder.parent.parent
    for words in (("show", folder), ("compare", folder, folder), ("leaderboard",)):
        answer = command(*words, "--results", results)
        assert answer.status == 0 and answer.err.count("\n") == 1
        assert "unavailable: plugin 'broken'" in answer.err
    (page,) = (results / "leaderboards").glob("*.md")
    assert "worst task" in page.read_text(encoding="utf-8")


class TestMetric:
    @pytest.mark.parametrize("value", ["many", True, [1]])
    def test_no_number(self, value: Any) -> None:
        with pytest.raises(TypeError, match="no number"):
            Metric(lambda record: value)(None)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("name", "value", "shown"),
        [
            ("acc", 0.5, "50.00"),
            ("forgetting", -0.00001, "0.00"),
            ("mixed_score", 0.51282, "0.5128"),
            ("params_total", 3_750_123, "3.750"),
            ("train_seconds", 65.25, "65.2"),
            ("peak_memory_bytes", 3_145_728, "3.146"),
        ],
    )
    def test_cells(self, name: str, value: float, shown: str) -> None:
        assert METRICS[name].format_cell(value) == shown
