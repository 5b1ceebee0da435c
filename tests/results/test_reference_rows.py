"""Which records are references, and which are missing in a leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.tiny import registry
from support.tried import scenario_of

from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.results.record import Record
from seu_bench.results.reference_rows import REFERENCE_ROWS, REQUIRED, missing_references, reference_of


def record(strategy: str, seed: int = 0, **fields: Any) -> Record:
    given = {"run_id": "x", "status": "finished", "benchmark": "pmnist", "benchmark_version": 1, "protocol": "quick"}
    return Record(**given, strategy=strategy, seed=seed, **fields)


def test_a_record_says_so() -> None:
    """Whatever its name; without a word learners are none."""
    assert reference_of(record("mine", reference="all answers known")) == "all answers known"
    assert reference_of(record("mine")) is reference_of(record("naive")) is None


@pytest.mark.parametrize("strategy", ["joint", "cumulative"])
def test_old_records_are_known_by_name(strategy: str) -> None:
    """They have no such key."""
    assert reference_of(record(strategy)) == REFERENCE_ROWS[strategy]


def test_old_records_of_the_control() -> None:
    """SEU with these two components, and with no others."""
    assert reference_of(record("seu", searcher="random", creator="all_new")) is not None
    assert reference_of(record("seu", searcher="random", creator="mdl")) is None
    assert reference_of(record("seu", searcher="mdl", creator="all_new")) is None


def test_the_backbone_linear_is_the_row_linear() -> None:
    """By whatever name: there is nothing that tasks could share."""
    assert reference_of(record("naive", options={"backbone": "linear"})) == REFERENCE_ROWS["linear"]
    assert reference_of(record("naive", options={"backbone": "mlp"})) is None


def test_strategies_declare_themselves() -> None:
    """Those of the table, and nobody else."""
    declared = {}
    for name in registry().strategies:
        options = {"benchmark.stream.scenario": scenario_of(name)}
        declared[name] = resolve(registry(), Request(strategy=name, protocol="smoke", options=options)).reference
    found = {name: text for name, text in declared.items() if text}
    assert found == {name: REFERENCE_ROWS[name] for name in (*REQUIRED, "nearest_mean")}


@pytest.mark.parametrize(
    ("searcher", "creator", "is_one"), [("random", "all_new", True), ("random", None, False), (None, "all_new", False)]
)
def test_the_control_declares_itself(searcher: str | None, creator: str | None, is_one: bool) -> None:
    """By both of its components."""
    run = resolve(registry(), Request(strategy="seu", searcher=searcher, creator=creator, protocol="smoke"))
    assert (run.reference is not None) == is_one


def test_missing_ones_have_a_command() -> None:
    """On the benchmark, the protocol and the seeds of the others."""
    learners = [record("naive", seed) for seed in (0, 1, 2, 7)]
    assert missing_references([*learners, record("joint"), record("independent")]) == (
        ("linear", "cumulative"),
        "seu-bench sweep --strategy linear,cumulative --benchmark pmnist --protocol quick --seeds 0-2,7",
    )
    assert missing_references([record(name) for name in REQUIRED]) is None
    assert missing_references([]) is None


@pytest.mark.parametrize("file", ["x" * 5000, "\0", "..", "gone.toml"])
def test_no_benchmark_file_of_a_record_is_believed(file: str, tmp_path: Path) -> None:
    found = missing_references([record("naive", benchmark_file=file)], tmp_path)
    assert found is not None and "--benchmark FILE_OF_pmnist.toml --protocol" in found.command
