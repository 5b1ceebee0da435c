"""docs/evidence/reference_numbers.md is what the published records say beside what is stated elsewhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the scripts are no installed package

from scripts.evidence.reference_numbers import PAGE, rendered
from scripts.evidence.reference_runs import (
    RATES,
    SET,
    Beside,
    Number,
    accuracy,
    read_source,
    resolved,
)
from scripts.evidence.runs import EVIDENCE, ROOT, records
from scripts.evidence.sweeps import FOLDER, sweep
from seu_bench.results.record import Record

SOURCE = read_source()
NUMBERS = {f"{number.sweep}-{number.strategy}": number for number in SOURCE.numbers}
SWEEPS = sorted(path.stem for path in (ROOT / FOLDER).glob("reference_*.toml"))


def a_run(accuracies: tuple[float, ...], images: tuple[int, ...], **fields: Any) -> Record:
    """A finished record with these accuracies after the last task."""
    tasks = len(accuracies)
    given = {
        "run_id": "one",
        "status": "finished",
        "strategy": "gem",
        "benchmark": "one",
        "benchmark_version": 1,
        "protocol": "gem",
        "seed": 0,
        "accuracy_matrix": [[None] * tasks] * (tasks - 1) + [accuracies],
        "task_images": [(10, 1, count) for count in images],
    }
    return Record.model_validate(given | fields)


@pytest.mark.long
def test_page_comes_from_the_records() -> None:
    """To the letter: no number of ours is typed, and no verdict."""
    assert PAGE.read_text(encoding="utf-8") == rendered()


def test_accuracy_is_the_mean_over_images() -> None:
    """By hand: 90 of 100 and 10 of 20 images, while the mean over tasks is .7."""
    assert accuracy(a_run((0.9, 0.5), (100, 20))) == pytest.approx(100 / 120)


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [((0.8,), "within"), ((0.77, 0.83), "within"), ((0.83,), "within"), ((0.769,), "below"), ((0.831,), "above")],
)
def test_verdicts(ours: tuple[float, ...], verdict: str) -> None:
    """The mean over seeds, either way; the tolerance itself is within."""
    number = Number(
        sweep="one", setting="", strategy="gem", theirs=0.8, tolerance=0.03, files=("a",), schedule="", differs=("b",)
    )
    spec = sweep("reference_gem_pmnist")
    runs = tuple(a_run((value,), (10,), seed=seed) for seed, value in enumerate(ours))
    found = Beside(number, spec, "domain", runs, ())
    assert found.verdict == verdict
    assert found.missing == tuple(seed for seed in spec.seeds if seed >= len(ours))
    assert Beside(number, spec, "domain", (), ()).verdict == "not run"


def test_every_sweep_is_of_a_number() -> None:
    """And each number's strategy is in its sweep, on a benchmark that is called as its file."""
    named = {number.sweep for number in SOURCE.numbers} | {each.sweep for each in SOURCE.elsewhere if each.sweep}
    rates = [name for name in SWEEPS if name.startswith("reference_rates")]
    assert sorted(named | {*rates}) == SWEEPS
    for number in SOURCE.numbers:
        spec = sweep(number.sweep)
        assert number.strategy in spec.strategy
        assert resolved(spec, number.strategy).spec.benchmark.name == Path(spec.benchmark[0]).stem
        assert all(len(values) == 1 for values in spec.axes.values())


@pytest.mark.parametrize("name", SWEEPS)
def test_sweeps_write_into_their_set(name: str) -> None:
    """By schedules that no leaderboard ranks; rates are tried on validation images, and on seeds of their own."""
    spec = sweep(name)
    is_rates = name.startswith("reference_rates")
    assert spec.results.resolve() == ROOT / "results" / "evidence" / (RATES if is_rates else SET)
    assert spec.evaluation == ("validation" if is_rates else "test")
    assert (min(spec.seeds) >= 100) == is_rates
    assert not resolved(spec, spec.strategy[0]).spec.protocol.ranked


def test_published_runs_are_whole() -> None:
    """On all test images, on one thread, and on as many training images as theirs but for those held out."""
    found = records(EVIDENCE / SET)
    assert found
    for record in found:
        assert (record.evaluation, record.limit, record.first_tasks, record.threads) == ("test", None, None, 1)
        if record.benchmark == "reference_pmnist":
            assert {test for _, _, test in record.task_images} == {10_000}
            assert {train for train, *_ in record.task_images} == {1_000 if record.protocol == "mir" else 59_994}
        elif record.benchmark.startswith("reference_split_mnist"):
            assert sum(test for _, _, test in record.task_images) == 10_000
    assert all(record.evaluation == "validation" for record in records(EVIDENCE / RATES))
