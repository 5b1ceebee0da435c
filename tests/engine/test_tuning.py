"""Tuned options of runs: laid below the user's own, refused where they were tuned for something else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.tiny import registry
from support.tuning import tuned_file

from seu_bench.config.run import Request
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.errors import RequestError, SpecError

FILE = """
name = "mine"
[stream]
kind = "classes"
dataset = "digits"
classes_per_task = 2
[protocols.quick.strategies.ewc]
ewc_lambda = 3.0
momentum = 0.5
[protocols.quick.tuned]
ewc = "chosen/ewc.toml"
seu-darts = "chosen/seu.toml"
"""
OF_MINE = {"benchmark": "mine", "benchmark_version": 1, "protocol": "quick", "id": "of-mine"}


def found(tmp_path: Path, **fields: Any) -> ResolvedRun:
    known = {"strategy": "ewc", "protocol": "smoke", "results": tmp_path, "tuned": "split_digits-smoke-ewc"}
    return resolve(registry(), Request(**{**known, **fields}))


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    path = tmp_path / "tuned" / "split_digits-smoke-ewc.toml"
    tuned_file(options={"ewc_lambda": 10.0, "learning_rate": 0.2}).write(path)
    return path


def test_below_the_users_own(tuned: Path, tmp_path: Path) -> None:
    """The file's options, but for those given; the run id is that of the options, the record names the file."""
    run = found(tmp_path)
    assert (run.spec.options["ewc_lambda"], run.spec.options["learning_rate"]) == (10.0, 0.2)
    by_hand = found(tmp_path, tuned=None, options={"ewc_lambda": 10.0, "learning_rate": 0.2})
    assert by_hand.spec.run_id == run.spec.run_id
    assert run.tuned is not None
    assert by_hand.tuned is None
    mixed = found(tmp_path, options={"ewc_lambda": 7.0})
    assert (mixed.spec.options["ewc_lambda"], mixed.spec.options["learning_rate"]) == (7.0, 0.2)
    assert mixed.tuned is not None
    assert found(tmp_path, options={"ewc_lambda": 7.0, "learning_rate": 0.1}).tuned is None
    assert found(tmp_path, tuned=str(tuned)).spec.run_id == run.spec.run_id
    assert found(tmp_path, tuned=str(tuned.parent)).spec.run_id == run.spec.run_id


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"strategy": "naive"}, "ewc on split_digits version"),
        ({"protocol": "quick"}, "no run is what a tuned file was tuned for"),
        ({"benchmark": "pmnist"}, "no run is what a tuned file was tuned for"),
        ({"tuned": "nothing"}, "the tuned file does not exist"),
    ],
)
def test_tuned_for_something_else(asked: dict[str, Any], message: str, tuned: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=message):
        found(tmp_path, **asked)


def test_folders(tuned: Path, tmp_path: Path) -> None:
    """One file of a folder may fit a run, and another one may be for something else."""
    tuned_file(strategy="naive", configuration="naive", options={"learning_rate": 0.1}).write(tuned.parent / "b.toml")
    assert found(tmp_path, tuned=str(tuned.parent)).spec.options["ewc_lambda"] == 10.0
    with pytest.raises(SpecError, match="no run is what"):
        found(tmp_path, strategy="pnn", tuned=str(tuned.parent))
    tuned_file().write(tuned.parent / "c.toml")
    with pytest.raises(SpecError, match="2 tuned files are for ewc on split_digits"):
        found(tmp_path, tuned=str(tuned.parent))
    (tmp_path / "none").mkdir()
    with pytest.raises(SpecError, match="the folder holds no tuned file"):
        found(tmp_path, tuned=str(tmp_path / "none"))


def test_seeds_differ(tuned: Path, tmp_path: Path) -> None:
    """A seed of the tuning is refused, unless nothing is left of the file, or no test images are read."""
    with pytest.raises(RequestError, match="seed 100 was tuned on"):
        found(tmp_path, seed=100)
    assert found(tmp_path, seed=100, evaluation="validation").tuned is not None
    assert found(tmp_path, seed=100, options={"ewc_lambda": 1.0, "learning_rate": 0.1}).tuned is None


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(FILE, encoding="utf-8")
    return path


def of_mine(benchmark: Path, **fields: Any) -> ResolvedRun:
    known = {"strategy": "ewc", "benchmark": str(benchmark), "protocol": "quick"}
    return resolve(registry(), Request(**{**known, **fields}))


def test_defaults_of_a_protocol(benchmark: Path, tmp_path: Path) -> None:
    """The values stand in the tuned file alone; presets and the user replace them; so does a file that is given."""
    chosen = tmp_path / "chosen" / "ewc.toml"
    tuned_file(**OF_MINE, options={"ewc_lambda": 10.0}).write(chosen)
    run = of_mine(benchmark)
    assert (run.spec.options["ewc_lambda"], run.spec.options["momentum"]) == (10.0, 0.5)
    assert run.tuned is not None
    assert of_mine(benchmark, options={"ewc_lambda": 4.0}).tuned is None
    with pytest.raises(RequestError, match="seed 100 was tuned on"):
        of_mine(benchmark, seed=100)
    other = tmp_path / "other.toml"
    tuned_file(**OF_MINE, options={"learning_rate": 0.3}, seeds=(7,)).write(other)
    given = of_mine(benchmark, tuned=str(other), seed=100)
    assert (given.spec.options["ewc_lambda"], given.spec.options["learning_rate"]) == (3.0, 0.3)
    chosen.write_text(chosen.read_text(encoding="utf-8").replace("10.0", "20.0"), encoding="utf-8")
    with pytest.raises(SpecError, match="was changed"):
        of_mine(benchmark)
    assert of_mine(benchmark, strategy="naive").tuned is None  # which reads no file


def test_defaults_of_components(benchmark: Path, tmp_path: Path) -> None:
    """A file with options of a searcher is that of one searcher."""
    options = {"searcher.epochs": 3, "epochs": 4}
    place = {"strategy": "seu", "configuration": "seu-darts", "searcher": "darts", "creator": "mdl"}
    tuned_file(**OF_MINE, **place, options=options).write(tmp_path / "chosen" / "seu.toml")
    run = of_mine(benchmark, strategy="seu", searcher="darts")
    assert run.searcher is not None
    assert (run.searcher.options.epochs, run.spec.options["epochs"]) == (3, 4)  # type: ignore[attr-defined]
    assert of_mine(benchmark, strategy="seu").tuned is None
    with pytest.raises(SpecError, match="no run is what"):
        tuned_file(**OF_MINE, options={"epochs": 4}).write(tmp_path / "chosen" / "seu.toml")
        of_mine(benchmark, strategy="seu", searcher="darts")
