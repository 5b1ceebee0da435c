"""``seu-bench tune``: what is written and said, what is refused, and what is left where it is stopped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.commands import Command, Install
from support.tuning import MODULES, POINTS

from seu_bench.config.tuned import TunedFile

ASKED = ("tune", "--strategy", "tiny", "--benchmark", "sealed", "--method", "first-tasks:2", "--executor", "in_turn")


@pytest.fixture(autouse=True)
def stranger(install: Install) -> None:
    """A stranger's strategy, executor and sealed data set."""
    install("a-stranger", POINTS, MODULES)


def test_tune_then_run(command: Command, tmp_path: Path) -> None:
    """Trials, the choice and its cost are shown; the file is used by its id, and marked in the record."""
    tried = ("-g", "learning_rate=0.00001,0.0001,0.2", "--seeds", "100", "-o", "epochs=4")
    asked = (*ASKED, *tried, "--results", tmp_path)
    planned = command(*asked, "--dry-run")
    assert planned.status == 0
    assert "3 jobs: 0 finished, 3 pending" in planned.out
    assert not tmp_path.exists() or not list(tmp_path.iterdir())
    answer = command(*asked)
    assert answer.status == 0, answer.err
    file = TunedFile.read(tmp_path / "tuned" / "sealed-paper-tiny.toml")
    assert re.search(
        rf"^chosen: learning_rate={file.options['learning_rate']} \(first-tasks:2", answer.out, re.MULTILINE
    )
    assert f"cost: 3 runs, {file.cost.image_passes:,} image passes" in answer.out
    assert re.search(r"^ 0\.2 +\d+\.\d\d % +\*", answer.out, re.MULTILINE)
    again = command(*asked)
    assert "3 jobs: 3 finished, 0 pending" in again.out
    evaluated = ("run", "--strategy", "tiny", "--benchmark", "sealed", "--tuned", file.id)
    refused = command(*evaluated, "--seed", 100, "--results", tmp_path)
    assert (refused.status, "seed 100 was tuned on" in refused.err) == (2, True)
    (run, *_) = sorted(path.name for path in (tmp_path / "tuning" / "runs").iterdir())
    shown = command("show", run, "--results", tmp_path / "tuning").out
    assert "measured on withheld validation images" in shown


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "space"),
        (("-g", "learning_rate"), "is not an assignment"),
        (("-g", "epochs=1..9"), "a range, which a grid has not"),
        (("-g", "epoch=1,2"), "did you mean 'epochs'"),
        (("-g", "searcher.epochs=1,2"), "takes no searcher"),
    ],
)
def test_refused(given: tuple[str, ...], message: str, command: Command, tmp_path: Path) -> None:
    """Exit status 2, a message that says what to do, and nothing written."""
    answer = command(*ASKED, *given, "--results", tmp_path / "new")
    assert answer.status == 2
    assert message in answer.err
    assert not (tmp_path / "new").exists()


def test_failing_trials(command: Command, tmp_path: Path) -> None:
    """Exit status 1 where no trial has a score."""
    answer = command(*ASKED, "-g", "fault=diverge", "--seeds", "100", "--results", tmp_path)
    assert answer.status == 1
    assert "no file was written: a run of every trial failed" in answer.out
    assert not (tmp_path / "tuned").exists()
