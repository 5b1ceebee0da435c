"""Loggers hear all of a run once, whatever happens to it, and can do it no harm."""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from support.commands import Command, Install
from support.logged import EPOCHS, Keeping, Witness, draw, due, logged_run

from seu_bench.engine.logging.loggers import describe_run, epoch_values, final_values, row_values
from seu_bench.errors import Interruption, RunError
from seu_bench.results.record import Record, read_record
from seu_bench.results.record_metrics import without_times
from seu_bench.training.stage import EpochReport, StageProgress


def fail() -> None:
    raise OSError(28, "No space left on device")


def leave() -> None:
    sys.exit(3)


def test_everything_is_told_once(tiny: Path, tmp_path: Path) -> None:
    """Epochs, rows, sizes and metrics, in order; the configuration before, the status after."""
    keeping = Keeping()
    record, witness = logged_run(tmp_path, ["keeping"], plugins={"keeping": keeping})
    assert [what for what, _ in keeping.told if what != "log"] == ["build", "begin", "end"]
    assert keeping.told[0] == ("build", tmp_path / "logs" / "keeping")
    assert keeping.told[-1] == ("end", "finished")
    run = keeping.told[1][1]
    assert run.run_id == record.run_id
    assert run.parameters["options.epochs"] == EPOCHS
    assert (run.parameters["strategy"], run.parameters["seed"], run.parameters["limit"]) == ("tiny", 0, 8)
    assert run.parameters["protocol_settings.eval_batch_size"] == record.protocol_settings["eval_batch_size"]
    assert "searcher" not in run.parameters
    assert (run.tags["benchmark"], run.tags["ranked"]) == ("split_digits", "no")
    assert keeping.kept(run.attempt) == due(record, witness.curves)
    told = [values for what, values in keeping.told if what == "log"]
    assert all(a.position <= b.position for a, b in itertools.pairwise(told))
    assert [values.position for values in told if values.axis == "tasks"] == [4, 8, 12, 16, 20, 21]
    assert witness.notices == []


def test_records_are_equal(tiny: Path, tmp_path: Path) -> None:
    """A logger that draws random numbers at every turn changes no bit of the record, nor of the caller's generators."""
    expected, _ = logged_run(tmp_path / "without")
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    keeping = Keeping({"build": draw, "begin": draw, "log": draw, "end": draw})
    record, _ = logged_run(tmp_path / "with", ["keeping"], plugins={"keeping": keeping})
    after = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    assert record.run_id == expected.run_id
    assert without_times(record) == without_times(expected)
    assert after == before
    assert len(keeping.told) > 20


@pytest.mark.parametrize("harm", [fail, leave])
@pytest.mark.parametrize("when", ["begin", "log", "end"])
@pytest.mark.long
def test_failing_logger_is_switched_off(tiny: Path, tmp_path: Path, when: str, harm: Callable[[], None]) -> None:
    """One notice, and nothing more is told; the run is what it is without a logger."""
    expected, _ = logged_run(tmp_path / "without")
    keeping = Keeping({when: harm})
    record, witness = logged_run(tmp_path / "with", ["keeping"], plugins={"keeping": keeping})
    assert keeping.told[-1][0] == when
    assert [what for what, _ in keeping.told].count(when) == 1
    reason = "OSError: [Errno 28] No space left on device" if harm is fail else "SystemExit: 3"
    said = f"logger 'keeping' of package keeping failed in {when} and is switched off: {reason}; the run continues"
    assert witness.notices == [said]
    assert without_times(record) == without_times(expected)


def test_interrupting_is_no_failure(tiny: Path, tmp_path: Path) -> None:
    """Ctrl-C while a logger writes stops the run as anywhere else."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    keeping = Keeping({"log": interrupt})
    with pytest.raises(KeyboardInterrupt):
        logged_run(tmp_path, ["keeping"], plugins={"keeping": keeping})
    (folder,) = (tmp_path / "runs").iterdir()
    assert read_record(folder).status == "interrupted"
    assert keeping.told[-1] == ("end", "interrupted")


def test_failed_run(tiny: Path, tmp_path: Path) -> None:
    """A run that fails is logged as far as it came, without final metrics."""
    keeping = Keeping()
    with pytest.raises(RunError):
        logged_run(tmp_path, ["keeping"], plugins={"keeping": keeping}, options={"fault": "raise"})
    assert keeping.told[-1] == ("end", "failed")
    names = set(keeping.kept(keeping.attempts[0]))
    assert "accuracy/task-0" in names
    assert not any(name.startswith("final/") for name in names)


@pytest.mark.parametrize("lost", [0, 1])
def test_run_that_goes_on(tiny: Path, tmp_path: Path, lost: int) -> None:
    """The same attempt, and nothing twice, though a run that was killed is behind what it logged."""
    keeping = Keeping()
    stopped = Witness(stop_after=8)
    with pytest.raises(Interruption):
        logged_run(tmp_path, ["keeping"], plugins={"keeping": keeping}, witness=stopped)
    for checkpoint in sorted(tmp_path.glob("runs/*/checkpoints/*.ckpt"), reverse=True)[:lost]:
        checkpoint.unlink()
    record, witness = logged_run(tmp_path, ["keeping"], plugins={"keeping": keeping})
    assert len(set(keeping.attempts)) == 1 and len(keeping.attempts) == 2
    assert [value for what, value in keeping.told if what == "end"] == ["interrupted", "finished"]
    whole = {**stopped.curves, **witness.curves}
    for name in set(stopped.curves) & set(witness.curves):  # the stage that was interrupted
        whole[name] = list(dict(stopped.curves[name] + witness.curves[name]).items())
    assert keeping.kept(keeping.attempts[0]) == due(record, whole)


def test_logger_that_comes_later(tiny: Path, tmp_path: Path) -> None:
    """Evaluations from before the logger was asked for are logged when the run resumes."""
    with pytest.raises(Interruption):
        logged_run(tmp_path, witness=Witness(stop_after=8))
    keeping = Keeping()
    record, _ = logged_run(tmp_path, ["keeping"], plugins={"keeping": keeping})
    kept = keeping.kept(keeping.attempts[0])
    rows = due(record, {})
    assert {name: kept[name] for name in rows} == rows


@pytest.mark.long
def test_run_that_begins_anew(tiny: Path, tmp_path: Path) -> None:
    """It has another log; a run that is finished and only shown again has none."""
    keeping = Keeping()
    plugins = {"keeping": keeping}
    logged_run(tmp_path, ["keeping"], plugins=plugins)
    told = len(keeping.told)
    logged_run(tmp_path, ["keeping"], plugins=plugins)
    assert [what for what, _ in keeping.told[told:]] == ["build"]
    time.sleep(1.1)  # attempts are told apart by the second in which they were begun
    logged_run(tmp_path, ["keeping"], plugins=plugins, restart=True)
    assert len(set(keeping.attempts)) == 2
    first, second = (keeping.kept(attempt) for attempt in keeping.attempts)
    assert first.keys() == second.keys()


def test_link_in_the_results_folder(tiny: Path, tmp_path: Path) -> None:
    """Nothing is written through a link that somebody put into a results folder."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "logs").symlink_to(tmp_path / "elsewhere")
    keeping = Keeping()
    record, witness = logged_run(tmp_path / "results", ["keeping"], plugins={"keeping": keeping})
    assert record.status == "finished"
    assert [what for what, _ in keeping.told] == ["build"]
    assert "this is a link" in witness.notices[0]


def test_names_and_numbers_of_strangers() -> None:
    """Names have nothing that a store refuses; what is no finite number is left out."""
    progress = StageProgress("../<b>ä search", 3, 2, 4, EpochReport(float("nan"), None), 8, 1.0)
    assert epoch_values(progress, 9, 12).values == {}
    progress = StageProgress("../<b>ä search", 3, 2, 4, EpochReport(0.5, 0.25), 8, 1.0)
    values = epoch_values(progress, 9, 12)
    assert values.values == {"____b__ search/task-03/loss": 0.5, "____b__ search/task-03/accuracy": 0.25}
    assert (values.axis, values.step, values.position) == ("____b__ search/task-03/epoch", 2, 9)
    record = Record(
        run_id="x",
        status="finished",
        strategy="joint",
        options={"depth.of": {"a/b": [1, 2], "c": None}},
        benchmark="b",
        benchmark_version=1,
        protocol="p",
        seed=0,
        task_names=("one", "two"),
        accuracy_matrix=((None, None), (0.25, 0.75)),
        metrics={"acc": 0.5, "mine": float("inf"), "peak_memory_bytes": 3, "fwt": None},
        params_total=(7,),
    )
    assert row_values(record, 1, 5).values == {
        "accuracy/task-0": 0.25,
        "accuracy/task-1": 0.75,
        "accuracy/average": 0.5,
        "size/params_total": 7.0,
    }
    assert final_values(record, 6).values == {"final/acc": 0.5}
    assert describe_run(record).parameters["options.depth.of.a_b"] == "[1, 2]"
    assert "options.depth.of.c" not in describe_run(record).parameters


def test_opened_before_the_forecast_begins(tiny: Path, tmp_path: Path, command: Command, install: Install) -> None:
    """The display hears of the run when the log is open, and has closed its bars when the log is closed."""
    plugin = """
import click
from seu_bench import hookimpl
from seu_bench.config.options import Options


class Speaking:
    summary = "says when it is called"
    options = Options

    def build(self, options, folder):
        return self

    def begin(self, run):
        click.echo("opened", err=True)

    def last_step(self, name):
        return None

    def log(self, measured):
        pass

    def end(self, status):
        click.echo("closed", err=True)


@hookimpl
def register_loggers(register):
    register("speaking", Speaking())
"""
    install("speaking-stranger", {"speaking_stranger": "speaking_stranger"}, {"speaking_stranger": plugin})
    asked = ("--strategy", "tiny", "--protocol", "smoke", "--limit", 8, "--results", tmp_path)
    lines = command("run", *asked, "--log", "speaking").err.splitlines()
    assert (lines[0], lines[-1]) == ("opened", "closed")
    assert lines[1].startswith("tiny on split_digits") and lines[-2].startswith("finished after")
