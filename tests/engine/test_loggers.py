"""Loggers hear all of a run once, whatever happens to it, can do it no harm, and never keep it waiting."""

from __future__ import annotations

import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from support.commands import Command, Install
from support.logged import EPOCHS, Keeping, Log, Witness, draw, due, logged_run

from seu_bench.engine import loggers
from seu_bench.engine.loggers import BackgroundLogger, describe_run, logged_values
from seu_bench.errors import Interruption, OptionError, ResultsError
from seu_bench.plugin.loggers import LoggedRun, LoggedValues
from seu_bench.results.record import Record, StageRecord, read_record
from seu_bench.results.record_metrics import METRICS, without_times

#: The one logger of ours that waits for a server.
needs_mlflow = pytest.mark.skipif(find_spec("mlflow") is None, reason="needs MLflow")
SMALL = ("--strategy", "tiny", "--protocol", "smoke", "--limit", 8)
RUN = LoggedRun("a-run", "a-run/begun", {"a": 1}, {"b": "c"})


def fail() -> None:
    raise OSError(28, "No space left on device")


def leave() -> None:
    sys.exit(3)


def rounded(log: Log) -> Log:
    """A log as a record gives it: losses have six digits there."""
    return {name: [(step, float(f"{value:.6g}")) for step, value in values] for name, values in log.items()}


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
    assert without_times(record) == without_times(expected)
    assert after == before
    assert len(keeping.told) > 20


@pytest.mark.parametrize("harm", [fail, leave])
@pytest.mark.parametrize(
    ("when", "hook"),
    [
        ("log", "stage_progress"),
        *(
            pytest.param(*place, marks=pytest.mark.long)
            for place in (("begin", "run_started"), ("end", "run_finished"))
        ),
    ],
)
def test_failing_logger_is_switched_off(
    tiny: Path, tmp_path: Path, when: str, hook: str, harm: Callable[[], None]
) -> None:
    """One notice, and nothing more is told; the run is what it is without a logger."""
    expected, _ = logged_run(tmp_path / "without")
    keeping = Keeping({when: harm})
    record, witness = logged_run(tmp_path / "with", ["keeping"], plugins={"keeping": keeping})
    assert keeping.told[-1][0] == when
    assert [what for what, _ in keeping.told].count(when) == 1
    (said,) = witness.notices
    assert said.startswith(f"plugin 'logger keeping' of package keeping failed in {hook} and is not called again: ")
    assert ("OSError: [Errno 28] No space left on device" if harm is fail else "SystemExit: 3") in said
    assert without_times(record) == without_times(expected)


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


def test_link_in_the_results_folder(tiny: Path, tmp_path: Path) -> None:
    """Nothing is written through a link that somebody put into a results folder."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "logs").symlink_to(tmp_path / "elsewhere")
    keeping = Keeping()
    with pytest.raises(ResultsError, match="this is a link"):
        logged_run(tmp_path / "results", ["keeping"], plugins={"keeping": keeping})
    assert keeping.told == []


def test_names_and_numbers_of_strangers() -> None:
    """Names have nothing that a store refuses; what is no finite number is left out."""
    stage = StageRecord(
        name="../<b>ä search", task=1, epochs=2, seconds=1, image_passes=8, losses=(0.5, None), accuracies=(0.25, None)
    )
    evaluation = StageRecord(name="evaluation", task=1, epochs=1, seconds=1, image_passes=8)
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
        stages=(stage, evaluation),
    )
    first, second, row, final = logged_values(record, METRICS)
    assert first.values == {"____b__ search/task-1/loss": 0.5, "____b__ search/task-1/accuracy": 0.25}
    assert (first.axis, first.step, first.position) == ("____b__ search/task-1/epoch", 1, 1)
    assert second.values == {}
    accuracies = {"accuracy/task-0": 0.25, "accuracy/task-1": 0.75, "accuracy/average": 0.5}
    assert row.values == accuracies | {"size/params_total": 7.0}
    assert final.values == {"final/acc": 0.5}
    assert describe_run(record).parameters["options.depth.of.a_b"] == "[1, 2]"
    assert "options.depth.of.c" not in describe_run(record).parameters


# ---------------------------------------------------------------------- servers


@pytest.fixture
def dead_server() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)  # connections wait to be accepted, which nobody does
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@needs_mlflow
def test_run_does_not_wait(tiny: Path, tmp_path: Path, dead_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is what it is without the logger; one notice says that not all was sent."""
    monkeypatch.setattr(loggers, "END_WITHIN", (0.5, 0.1))
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "2")  # the thread outlives the test
    expected, _ = logged_run(tmp_path / "without")
    record, witness = logged_run(tmp_path / "with", ["mlflow"], log_options={"mlflow.tracking_uri": dead_server})
    assert without_times(record) == without_times(expected)
    (notice,) = witness.notices
    assert "is not called again: TimeoutError: not all was sent within 0.5 seconds; the run continues" in notice


class Slow(Keeping):
    """A logger whose server answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()
        self.harm = {"begin": self.answers.wait}


def test_background_logger(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is told in order, once; a bounded number of calls waits; what failed is raised by the next call."""
    slow = Slow()
    logger = BackgroundLogger(slow)
    logger.begin(RUN)
    for step in (1, 2, 2):
        logger.log(LoggedValues({"a": 1.0}, "tasks", step, step))
    assert not slow.told or slow.told == [("begin", RUN)]
    slow.answers.set()
    logger.end("finished")
    assert slow.kept(RUN.attempt) == {"a": [(1, 1.0), (2, 1.0)]}
    assert slow.told[-1] == ("end", "finished")

    monkeypatch.setattr(loggers, "WAITING", 3)
    with pytest.raises(TimeoutError, match="3 messages wait to be sent"):
        silent = BackgroundLogger(Slow())
        silent.begin(RUN)
        for step in range(10):
            silent.log(LoggedValues({"a": 1.0}, "tasks", step, step))

    failing = BackgroundLogger(Keeping({"log": fail}))
    with pytest.raises(OSError, match="No space left"):
        failing.begin(RUN)
        failing.log(LoggedValues({"a": 1.0}, "tasks", 1, 1))
        failing.end("finished")


# ---------------------------------------------------------------------- asked for

STRANGERS = """
from seu_bench import hookimpl
from seu_bench.plugin.registration import offer
from seu_bench.config.options import Options


class Broken:
    summary = "cannot be built"
    options = Options

    def build(self, options, folder):
        raise ImportError("libwhatever.so.3 is missing")


@hookimpl
def register_loggers(register):
    register("broken", Broken())
    register("absent", offer(Broken(), "absent", "no_such_module", "json"))
"""


def test_asked_for(tiny: Path, tmp_path: Path, command: Command, install: Install) -> None:
    """Refused before anything runs: an unknown logger, one that is not installed or built, options that do not fit."""
    install("logging-stranger", {"logging_stranger": "logging_stranger"}, {"logging_stranger": STRANGERS})
    for asked, says in (
        (("--log", "tensorbord"), "no logger is called 'tensorbord' (did you mean 'tensorboard'?)"),
        (("--log", "tensorboard,absent"), "hint: pip install 'seu-bench[absent]'"),
        (("--log", "broken"), "ImportError: libwhatever"),
        (("--log", "tensorboard", "--log-option", "tensorboard.color=red"), "'color' is not an option"),
        (("--log-option", "tensorboard.folder=x"), "is of no logger that was asked for"),
        (("--log", "tensorboard", "--log-option", "tensorboard.folder"), "is not an assignment"),
    ):
        answer = command("run", *SMALL, "--results", tmp_path / "none", *asked)
        assert (answer.status, answer.out) == (2, "") and says in answer.err
        assert not (tmp_path / "none").exists()


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


@needs_mlflow
@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="signals of Unix")
def test_signal_stops_the_run(tmp_path: Path, dead_server: str) -> None:
    """SIGTERM while the server keeps silent: the record says so, and the process ends."""
    words = ["run", "--strategy", "naive", "--protocol", "quick", "--benchmark", "split_digits", "-o", "epochs=500"]
    log = ["--log", "mlflow", "--log-option", f"mlflow.tracking_uri={dead_server}", "--results", str(tmp_path)]
    run = subprocess.Popen(
        [sys.executable, "-m", "seu_bench.cli.main", *words, *log], stderr=subprocess.PIPE, text=True
    )
    assert run.stderr is not None
    assert "tasks" in run.stderr.readline()
    run.send_signal(signal.SIGTERM)
    began = time.monotonic()
    said = run.communicate(timeout=120)[1]
    assert run.returncode == 128 + signal.SIGTERM, said
    assert time.monotonic() - began < 30
    (folder,) = (tmp_path / "runs").iterdir()
    assert read_record(folder).status == "interrupted"
