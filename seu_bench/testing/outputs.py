"""Contracts of what uses a run when it is there: metrics, loggers and commands."""

from __future__ import annotations

import math
from pathlib import Path
from typing import ClassVar, Final

import click
import pytest
from click.testing import CliRunner

from seu_bench.config.options import build_options
from seu_bench.errors import RequestError
from seu_bench.plugin.loggers import LoggedRun, LoggedValues, RunLogger
from seu_bench.results.metric import Metric
from seu_bench.results.record import Record, read_record, record_path
from seu_bench.testing.networks import FineTuning
from seu_bench.testing.trial import Contract, Trial, installed, require

#: Streams of one task, of two and of three, whose runs a metric is computed for.
_STREAMS: Final = ("tiny_single", "tiny_two", "tiny_three")


def finished_records(results: Path) -> list[Record]:
    """Make the runs that a metric is computed for; return their records as they are read back from their files."""
    trial = Trial("fine_tuning", plugins=[FineTuning()])
    return [read_record(record_path(results, trial.record(stream, results).run_id)) for stream in _STREAMS]


class MetricContract(Contract):
    """Tests that every metric must pass.

    Attributes:
        metric: registered name.

    Example::

        class TestMine(MetricContract):
            metric = "mine"
    """

    metric: ClassVar[str]

    @pytest.fixture(scope="class")
    @classmethod
    def records(cls, tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
        """Records of finished runs of one, two and three tasks, read from their files."""
        return finished_records(tmp_path_factory.mktemp("results"))

    @pytest.fixture
    def value(self) -> Metric:
        """The metric on trial."""
        return installed(self.plugins).known_metrics[self.metric]

    def test_is_a_number_or_nothing(self, value: Metric, records: list[Record]) -> None:
        """For every finished run: a finite number, or ``None`` where it is not defined."""
        for record in records:
            tasks = len(record.task_names)
            try:
                raw = value.compute(record)
            except Exception as error:
                pytest.fail(
                    f"for a record of {tasks} tasks it raised {type(error).__name__}: {error}; give None where it is "
                    "not defined"
                )
            number = isinstance(raw, int | float) and not isinstance(raw, bool)
            require(
                raw is None or (number and math.isfinite(raw)),
                f"for a record of {tasks} tasks it gave {raw!r}: give a finite number, or None where it is not defined",
            )
            require(bool(value.format(value(record))), "its value cannot be shown")

    def test_is_computed_from_the_record(self, value: Metric, records: list[Record]) -> None:
        """The same value every time, and the record is as it was."""
        if not value.from_record:
            pytest.skip("it is read off the running process (from_record = False)")
        for record in records:
            before = record.model_dump(mode="json")
            found = [value(record), value(record), value(Record.model_validate(before))]
            require(found.count(found[0]) == 3, f"it gave {found} for one record: set from_record = False if it may")
            require(record.model_dump(mode="json") == before, "it changed the record")

    def test_beside_a_reference(self, value: Metric, records: list[Record]) -> None:
        """A relative metric is a number or ``None`` for a record and a reference of the same tasks."""
        if value.relative is None:
            pytest.skip("it is not relative")
        for record in records:
            found = value.beside(record, record)
            require(found is None or math.isfinite(found), f"beside itself, a record has {found!r}")


class LoggerContract(Contract):
    """Tests that every logger must pass which writes to this machine.

    Attributes:
        logger: registered name.
        options: its own options, without ``logger.``.

    Example::

        class TestMine(LoggerContract):
            logger = "mine"
    """

    logger: ClassVar[str]

    def build(self, folder: Path) -> RunLogger:
        """Build the logger; skip the test if it talks to another machine or cannot be had here."""
        factory = installed(self.plugins).loggers.find(self.logger).factory
        options = build_options(factory.options, f"logger {self.logger!r}", self.options)
        if getattr(factory, "is_remote", lambda _: False)(options):
            pytest.skip("it talks to another machine; give options with which it writes to this one")
        try:
            return factory.build(options, folder)
        except RequestError as error:
            pytest.skip(f"it cannot be had here: {error.what}")

    def test_logs_a_run(self, tmp_path: Path) -> None:
        """A run that begins, is measured twice, and finishes; what it writes is in its folder."""
        logger = self.build(tmp_path / "log")
        logger.begin(_run("first"))
        for step in (0, 1):
            logger.log(_values(step))
        logger.end("finished")

    @pytest.mark.parametrize("status", ["failed", "interrupted"])
    def test_goes_on_with_a_resumed_run(self, tmp_path: Path, status: str) -> None:
        """The log of a run that is resumed is found, with the last step that is in it; a restarted run has another."""
        logger = self.build(tmp_path / "log")
        logger.begin(_run("first"))
        require(logger.last_step("tiny/loss") is None, "last_step() of a run that begins must be None")
        for step in (0, 1):
            logger.log(_values(step))
        logger.end(status)
        resumed = self.build(tmp_path / "log")
        resumed.begin(_run("first"))
        found = resumed.last_step("tiny/loss")
        require(
            found == 1, f"step 1 was logged, and last_step() of the resumed run is {found}: it would be logged twice"
        )
        resumed.log(_values(2))
        resumed.end("finished")
        restarted = self.build(tmp_path / "log")
        restarted.begin(_run("second"))
        found = restarted.last_step("tiny/loss")
        require(found is None, f"a run that starts over has last_step() {found}: it needs a log of its own")
        restarted.end("finished")


class CommandContract(Contract):
    """Tests that every command must pass.

    Attributes:
        command: registered name.

    Example::

        class TestMine(CommandContract):
            command = "mine"
    """

    command: ClassVar[str]

    def test_has_help(self) -> None:
        """``seu-bench NAME --help`` says what it does."""
        entry = installed(self.plugins).commands.find(self.command)
        built = entry.factory.build()
        require(isinstance(built, click.Command), f"build() must return a click command, not {built!r:.100}")
        answer = CliRunner().invoke(built, ["--help"])
        if answer.exception is not None and answer.exit_code:
            raise answer.exception
        require(bool(built.help or built.get_short_help_str()), "give its function a docstring, which --help shows")
        require(bool(entry.summary), "give the factory a summary, which seu-bench --help shows")


def _run(attempt: str) -> LoggedRun:
    return LoggedRun("tiny-run", f"tiny-run/{attempt}", {"strategy": "tiny", "seed": 0, "rate": 0.5}, {"kind": "tiny"})


def _values(step: int) -> LoggedValues:
    return LoggedValues({"tiny/loss": 1.0 / (step + 1), "tiny/accuracy": 0.5}, "tiny/epoch", step, step)
