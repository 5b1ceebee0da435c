"""Loggers that talk to a server: whatever it does, the run does not wait."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.commands import Command
from support.logged import EPOCHS, Keeping, Log, due, logged_run

from seu_bench.engine.logging.log_record import log_record, logged_values
from seu_bench.engine.logging.logger_process import LoggerProcess, LoggerProcessError
from seu_bench.engine.logging.loggers import choose_loggers
from seu_bench.errors import OptionError, PluginError, RequestError
from seu_bench.plugin.loggers import LoggedRun, LoggedValues
from seu_bench.plugin.manager import load_plugins
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, read_record, record_path
from seu_bench.results.record_metrics import METRICS, without_times

#: A run must not wait for the one logger of ours that talks to a server.
needs_mlflow = pytest.mark.skipif(find_spec("mlflow") is None, reason="needs MLflow")

ASKED = ("--strategy", "tiny", "--protocol", "smoke", "--limit", 8, "--device", "cpu")
RUN = LoggedRun("a-run", "a-run/begun", {"a": 1}, {"b": "c"})


def rounded(log: Log) -> Log:
    """A log as a record gives it: losses have six digits there."""
    return {name: [(step, float(f"{value:.6g}")) for step, value in values] for name, values in log.items()}


@pytest.fixture
def dead_server() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        taken = []

        def take() -> None:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(listener.accept()[0])

        threading.Thread(target=take, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        for connection in taken:
            connection.close()


@needs_mlflow
def test_run_does_not_wait(tiny: Path, tmp_path: Path, dead_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record is what it is without the logger; one notice says what was not sent, and how it can be."""
    monkeypatch.setattr("seu_bench.engine.logging.logger_process.END_WITHIN", (0.5, 0.1))
    expected, _ = logged_run(tmp_path / "without")
    record, witness = logged_run(tmp_path / "with", ["mlflow"], log_options={"mlflow.tracking_uri": dead_server})
    assert without_times(record) == without_times(expected)
    (notice,) = witness.notices
    assert "is switched off: not all was sent within 0.5 seconds; the run continues" in notice
    assert notice.endswith("send it with seu-bench log RUN --to mlflow")


@needs_mlflow
@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="signals of Unix")
def test_signal_stops_the_run(tmp_path: Path, dead_server: str) -> None:
    """SIGTERM while the server keeps silent: the record says so, and no process is left."""
    words = ["run", "--strategy", "naive", "--protocol", "quick", "--benchmark", "split_digits", "-o", "epochs=500"]
    log = ["--log", "mlflow", "--log-option", f"mlflow.tracking_uri={dead_server}", "--results", str(tmp_path)]
    run = subprocess.Popen(
        [sys.executable, "-m", "seu_bench.cli.main", *words, *log], stderr=subprocess.PIPE, text=True
    )
    assert run.stderr is not None
    assert "tasks" in run.stderr.readline()
    run.send_signal(signal.SIGTERM)
    said = run.communicate(timeout=120)[1]
    assert run.returncode == 128 + signal.SIGTERM, said
    (folder,) = (tmp_path / "runs").iterdir()
    assert read_record(folder).status == "interrupted"


@needs_mlflow
def test_silence_is_given_up(tmp_path: Path, dead_server: str) -> None:
    """A message that is not answered in time ends the process, and the next call says why."""
    logger = LoggerProcess("mlflow", {"tracking_uri": dead_server}, tmp_path, answer_within=0.05)
    with pytest.raises(LoggerProcessError, match=r"no answer within 0\.05 seconds"):
        logger.begin(RUN)
        logger.end("finished")
    assert logger._process.poll() is not None


@needs_mlflow
def test_more_than_the_queue_holds(tmp_path: Path, dead_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The queue is bounded: what a dead server is owed does not fill the memory."""
    monkeypatch.setattr("seu_bench.engine.logging.logger_process.WAITING", 3)
    logger = LoggerProcess("mlflow", {"tracking_uri": dead_server}, tmp_path)
    with pytest.raises(LoggerProcessError, match="3 messages wait to be sent"):
        for step in range(10):
            logger.log(LoggedValues({"a": 1.0}, "tasks", step, step))
    logger.close()


@needs_mlflow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")  # MLflow's, where it is read
def test_process_does_what_the_logger_does(tiny: Path, tmp_path: Path) -> None:
    """A local store written by the process holds what one written by the run holds."""
    from mlflow import MlflowClient

    record, witness = logged_run(tmp_path)
    logger = LoggerProcess("mlflow", {"tracking_uri": f"sqlite:///{tmp_path}/mlflow.db"}, tmp_path / "logs")
    logger.begin(RUN)
    for _ in range(2):  # the second time nothing is new
        for values in logged_values(record, METRICS):
            logger.log(values)
    logger.end("finished")
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    (run,) = client.search_runs([client.get_experiment_by_name("seu-bench").experiment_id])
    found = {
        name: [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }
    assert rounded(found) == rounded(due(record, witness.curves))
    assert run.info.status == "FINISHED"


@pytest.mark.long
@needs_mlflow
def test_error_of_the_process(tmp_path: Path) -> None:
    """What the logger says is told, with the call that failed."""
    (tmp_path / "file").write_text("no database")
    logger = LoggerProcess("mlflow", {"tracking_uri": f"sqlite:///{tmp_path}/file"}, tmp_path)
    with pytest.raises(LoggerProcessError) as failed:
        logger.begin(RUN)
        logger.end("finished")
    assert failed.value.call == "begin"


class TestSending:
    """``seu-bench log``."""

    def test_all_that_a_logger_would_have_been_told(self, tiny: Path, tmp_path: Path) -> None:
        """The same values in the same order, once, from the record alone."""
        told, later = Keeping(), Keeping()
        record, witness = logged_run(tmp_path, ["keeping"], plugins={"keeping": told})
        manager = load_plugins()
        manager.register(later, name="keeping")
        log_record(Registry(manager), record, "keeping", tmp_path)
        assert rounded(later.kept(later.told[1][1].attempt)) == rounded(due(record, witness.curves))
        assert [what for what, _ in later.told] == [what for what, _ in told.told]
        places = [
            [(values.axis, values.step, values.position) for what, values in each.told if what == "log"]
            for each in (told, later)
        ]
        assert places[0] == places[1]

    @pytest.mark.long
    @pytest.mark.skipif(find_spec("tensorboard") is None, reason="needs TensorBoard")
    def test_command(self, tiny: Path, tmp_path: Path, command: Command) -> None:
        """To a local logger; twice is once."""
        assert command("run", *ASKED, "-o", f"epochs={EPOCHS}", "--results", tmp_path).status == 0
        for _ in range(2):
            answer = command("log", "split_digits", "--to", "tensorboard", "--results", tmp_path)
            assert answer.status == 0, answer.err
            assert answer.out.endswith(": sent to tensorboard\n")
        assert list((tmp_path / "logs" / "tensorboard").rglob("events.out.*"))

    def test_refused(self, tiny: Path, tmp_path: Path) -> None:
        """A run that goes on, another logger's option, and a logger that fails, which is named."""
        record, _ = logged_run(tmp_path)
        with pytest.raises(RequestError, match="is not finished"):
            log_record(Registry(), record.model_copy(update={"status": "running"}), "mlflow", tmp_path)
        with pytest.raises(OptionError):
            log_record(Registry(), record, "mlflow", tmp_path, {"wandb.mode": "online"})

        def away() -> None:
            raise ConnectionError("no answer from https://ann:secret@host")

        manager = load_plugins()
        manager.register(Keeping({"log": away}), name="keeping")
        with pytest.raises(PluginError, match=r"logger 'keeping' of package keeping failed: .* https://\*\*\*@host"):
            log_record(Registry(manager), record, "keeping", tmp_path)


@needs_mlflow
def test_which_loggers_are_remote() -> None:
    """Those that talk to another machine, and no others: a process takes seconds to start."""
    registry = Registry()
    for name, option, remote in (
        ("mlflow", {}, False),
        ("mlflow", {"mlflow.tracking_uri": "sqlite:///x.db"}, False),
        ("mlflow", {"mlflow.tracking_uri": "x/mlruns"}, False),
        ("mlflow", {"mlflow.tracking_uri": "https://host"}, True),
        ("wandb", {}, False),
        ("wandb", {"wandb.mode": "online"}, True),
        ("tensorboard", {}, False),
    ):
        entry, options = choose_loggers(registry, [name], option)[name]
        assert entry.factory.is_remote(options) == remote, (name, option)


def test_records_as_read(tmp_path: Path, tiny: Path) -> None:
    """A record from disk gives what the one in memory gives."""
    record, _ = logged_run(tmp_path)
    read: Record = read_record(record_path(tmp_path, record.run_id))
    assert list(logged_values(read, METRICS)) == list(logged_values(record, METRICS))
