"""Loggers hear all of a run once, whatever happens to it, and can do it no harm."""

from __future__ import annotations

import itertools
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from support.commands import Command, Install
from support.logged import EPOCHS, Keeping, Witness, draw, due, logged_run

import seu_bench
from seu_bench.engine.logging.loggers import describe_run, epoch_values, final_values, row_values
from seu_bench.errors import Interruption, OptionError, RunError, UnknownNameError
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


# ------------------------------------------------------------------ how they are asked for


def test_nothing_is_logged_unasked(tiny: Path, tmp_path: Path, command: Command) -> None:
    """An ordinary run makes no log."""
    answer = command("run", "--strategy", "tiny", "--protocol", "smoke", "--limit", 8, "--results", tmp_path)
    assert answer.status == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


def test_refused_before_anything_runs(tiny: Path, tmp_path: Path, command: Command, install: Install) -> None:
    """An unknown logger, one that is not installed, options that do not fit, one that cannot be built."""
    plugin = """
from seu_bench import hookimpl
from seu_bench.plugin.registration import offered
from seu_bench.config.options import Options


class Broken:
    summary = "cannot be built"
    options = Options

    def build(self, options, folder):
        raise ImportError("libwhatever.so.3 is missing")


@hookimpl
def register_loggers(register):
    register("broken", Broken())
    register("absent", offered(Broken(), "absent", "no_such_module", "json"))
"""
    install("logging-stranger", {"logging_stranger": "logging_stranger"}, {"logging_stranger": plugin})

    def refused(*asked: object) -> str:
        answer = command("run", "--strategy", "tiny", "--protocol", "smoke", "--results", tmp_path / "none", *asked)
        assert (answer.status, answer.out) == (2, "")
        assert not (tmp_path / "none").exists()
        return answer.err

    assert "no logger is called 'tensorbord' (did you mean 'tensorboard'?)" in refused("--log", "tensorbord")
    said = refused("--log", "tensorboard,absent")
    assert "the logger 'absent' cannot be used: not installed: no_such_module\n" in said
    assert "to do: pip install 'seu-bench[absent]'" in said
    assert "logger 'broken' of package logging-stranger cannot be used: ImportError: libwhatever" in refused(
        "--log", "broken"
    )
    assert "'color' is not an option" in refused("--log", "tensorboard", "--log-option", "tensorboard.color=red")
    assert "is of no logger that was asked for" in refused("--log-option", "tensorboard.folder=x")
    assert "--log-option 'tensorboard.folder' is not an assignment" in refused(
        "--log", "tensorboard", "--log-option", "tensorboard.folder"
    )


def test_listed(command: Command) -> None:
    """``list loggers`` shows them, and each by its name with its options."""
    answer = command("list", "loggers")
    assert answer.status == 0 and all(name in answer.out for name in ("tensorboard", "wandb", "mlflow"))
    assert re.search(r"^ +mode .*offline", command("list", "loggers", "wandb").out, re.MULTILINE)


def test_from_python(tiny: Path, tmp_path: Path) -> None:
    """``seu_bench.run`` takes the same names and options."""
    seu_bench.run(
        "tiny",
        protocol="smoke",
        limit=8,
        results=tmp_path / "results",
        device="cpu",
        log=["tensorboard"],
        log_options={"tensorboard.folder": str(tmp_path / "events")},
    )
    assert list((tmp_path / "events").glob("*/*/events.out.tfevents.*"))
    assert not (tmp_path / "results" / "logs").exists()
    with pytest.raises(UnknownNameError):
        seu_bench.run("tiny", results=tmp_path, log=["nothing"])
    with pytest.raises(OptionError):
        seu_bench.run("tiny", results=tmp_path, log=["tensorboard"], log_options={"wandb.mode": "online"})


def test_looking_names_up_imports_none_of_them() -> None:
    """Neither the libraries nor torch are imported before a logger is asked for."""
    code = (
        "import sys; from seu_bench.plugin.registry import Registry; Registry().loggers; "
        "print([name for name in ('torch', 'tensorboard', 'mlflow', 'wandb') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("key", "value"),
    [("uri", "http://ann:secret@host"), ("uri", "postgresql://ann@host/db"), ("api_key", "1"), ("Password", "x")],
)
def test_secrets_are_refused(tiny: Path, tmp_path: Path, key: str, value: str) -> None:
    """Options are printed and stored, so that none of them may be a secret; the message does not hold it either."""
    with pytest.raises(OptionError, match="options are printed and stored") as refused:
        logged_run(tmp_path, ["keeping"], plugins={"keeping": Keeping()}, log_options={f"keeping.{key}": value})
    assert "secret@" not in str(refused.value) and "ann" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_secrets_are_masked_in_notices(tiny: Path, tmp_path: Path) -> None:
    """A library's message may hold the address that it was given by the environment."""

    def away() -> None:
        raise ConnectionError("no answer from https://ann:secret@host/api")

    _, witness = logged_run(tmp_path, ["keeping"], plugins={"keeping": Keeping({"begin": away})})
    assert len(witness.notices) == 1
    assert "https://***@host/api" in witness.notices[0] and "secret" not in witness.notices[0]
