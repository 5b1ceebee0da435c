"""Contracts on installed plugins without a test file, for ``seu-bench check-plugin``."""

from __future__ import annotations

import io
import linecache
import os
import pkgutil
import sys
import tempfile
import traceback
from collections.abc import Generator, Mapping, Set
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import pytest

from seu_bench.errors import OptionError, SeuBenchError
from seu_bench.plugin.code import Subject
from seu_bench.utils.progress import Bar, bar, hide_progress

Outcome: TypeAlias = Literal["passed", "failed", "skipped"]

#: Class in ``seu_bench.testing`` of each kind's contract, and the attribute that takes the registered name. Factories
#: of searchers, creators and spaces name their own, ``contract``.
CONTRACTS: Final[Mapping[str, tuple[str, str]]] = {
    "strategy": ("StrategyContract", "strategy"),
    "searcher": ("", "searcher"),
    "creator": ("", "creator"),
    "space": ("", "space"),
    "backbone": ("BackboneContract", "backbone"),
    "benchmark": ("BenchmarkContract", "benchmark"),
    "data set": ("DatasetContract", "dataset"),
    "metric": ("MetricContract", "metric"),
    "logger": ("LoggerContract", "logger"),
    "executor": ("ExecutorContract", "executor"),
    "command": ("CommandContract", "command"),
}


class Place(NamedTuple):
    """A line of source code, in an absolute path without links, and its text without indentation."""

    file: str
    line: int
    function: str
    code: str

    def __str__(self) -> str:
        path = Path(self.file)
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        return f"{shown}:{self.line}, in {self.function}"


class Check(NamedTuple):
    """Result of one test of a contract.

    Attributes:
        name: e.g. ``streams_of_unusual_shape[tiny_unequal]``.
        outcome: ``skipped``: the contract does not ask this of this plugin.
        message: why it failed or was skipped.
        raised: the deepest line of the plugin's own code in the traceback; ``None``: it raised nothing.
        traceback: all of it, with causes; empty unless it failed.
    """

    name: str
    outcome: Outcome
    seconds: float
    message: str = ""
    raised: Place | None = None
    traceback: str = ""


def check(subject: Subject, options: Mapping[str, Any] | None = None, *, pattern: str = "") -> list[Check]:
    """Run the contract of a subject in pytest.

    Args:
        subject: of a kind of :data:`CONTRACTS`.
        options: by name; they come over the factory's own ``check_options``.
        pattern: run only checks whose names match, as pytest's ``-k`` does; empty: all.

    Returns:
        The result of each test that ran, in order; none where the pattern matches no name.

    Raises:
        OptionError: the contract could not be run with the options, or the pattern cannot be read.
    """
    module, contract = _contract(subject)
    factory, output = subject.entry.factory, io.StringIO()
    scenarios: tuple[str, ...] = getattr(factory, "scenarios", ())
    attributes = {
        CONTRACTS[subject.kind][1]: subject.entry.name,
        "options": {**getattr(factory, "check_options", {}), **(options or {})},
        "scenario": scenarios[0] if scenarios and "task" not in scenarios else "task",
        "exact_passes": False,  # only the author's own test can ask for exact estimates
    }
    body = "".join(f"    {name} = {value!r}\n" for name, value in attributes.items())
    with tempfile.TemporaryDirectory() as folder, bar(f"checking {subject}") as drawn:
        # A name of its own: Python keeps modules by name, and a second subject would be taken for the first one's.
        file = Path(folder) / f"test_{Path(folder).name}.py"
        file.write_text(f"from {module} import {contract}\nclass TestSubject({contract}):\n{body}", encoding="utf-8")
        # Ignore the configuration of the working folder, and write nothing into it; leave sys.path as it is.
        settings = ["-c", os.devnull, "--rootdir", folder, "-p", "no:cacheprovider", "--basetemp", f"{folder}/tmp"]
        settings += ["--import-mode=importlib", *(["-k", pattern] if pattern else [])]
        collector = _Collector(subject, Path(folder), drawn)
        with hide_progress(), pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(output):
            patch.delenv("PYTEST_ADDOPTS", raising=False)
            status = pytest.main([*settings, str(file)], plugins=[collector])
        sys.modules.pop(file.stem, None)
    if collector.interrupted:
        raise KeyboardInterrupt
    if status == pytest.ExitCode.USAGE_ERROR and pattern:
        raise OptionError(
            f"the pattern {pattern!r} cannot be read", where="-k", remedy="write it as for pytest: 'learns or resumes'"
        )
    if not collector.checks and status != pytest.ExitCode.NO_TESTS_COLLECTED:
        raise OptionError(
            f"the contract of {subject} could not be run: pytest ended with {int(status)}",
            where=output.getvalue().strip()[-500:] or None,
        )
    return collector.checks


def _contract(subject: Subject) -> tuple[str, str]:
    """Module and name of the class that checks a subject."""
    own = getattr(subject.entry.factory, "contract", None)
    if own is None and not CONTRACTS[subject.kind][0]:
        raise OptionError(
            f"nothing is known by which to check {subject}",
            remedy="give its factory the attribute contract, 'package.module:Class', or make it by a factory of a kit "
            "that has one",
        )
    module, _, name = (own or f"seu_bench.testing:{CONTRACTS[subject.kind][0]}").partition(":")
    return module, name


def names_of_checks(subject: Subject) -> list[str]:
    """Return the names of the tests of a subject's contract, without parameters."""
    contract = pkgutil.resolve_name(":".join(_contract(subject)))
    return [name.removeprefix("test_") for name in dir(contract) if name.startswith("test_")]


class _Collector:
    """Plugin of pytest that collects the result of each test."""

    def __init__(self, subject: Subject, folder: Path, drawn: Bar) -> None:
        self.checks: list[Check] = []
        self.interrupted = False
        self._subject, self._folder, self._bar = subject, folder, drawn
        self._phases: list[Check] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._bar.expect(len(session.items))

    def pytest_keyboard_interrupt(self) -> None:
        self.interrupted = True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Note how setting up, the test itself, or tearing down ended."""
        report = yield
        found = Check(item.nodeid.rpartition("::")[2].removeprefix("test_"), report.outcome, call.duration)
        if call.excinfo is not None:
            found = self._explain(found, call.excinfo.value)
        self._phases.append(found)
        return report

    def pytest_runtest_logfinish(self) -> None:
        """Enter a test: it failed, or was skipped, if a part of it was."""
        phases, self._phases = self._phases, []
        worst = min(phases, key=lambda phase: ("failed", "skipped", "passed").index(phase.outcome))
        self.checks.append(worst._replace(seconds=sum(phase.seconds for phase in phases)))
        self._bar.advance()

    def _explain(self, found: Check, error: BaseException) -> Check:
        found = found._replace(message=self._message(error))
        if found.outcome == "skipped":
            return found
        told = traceback.TracebackException.from_exception(error)
        kept = [frame for frame in told.stack if not {*Path(frame.filename).parts} & {"_pytest", "pluggy"}]
        told.stack = traceback.StackSummary.from_list(kept)
        raised = _place_raised(error, self._subject.modules)
        return found._replace(raised=raised, traceback="".join(told.format()).rstrip())

    def _message(self, error: BaseException) -> str:
        """What is wrong, and what the first error of ours says to do about it; no advice to choose another plugin."""
        if isinstance(error, pytest.fail.Exception | pytest.skip.Exception):
            return str(error.msg)
        if not isinstance(error, SeuBenchError):
            return f"{type(error).__name__}: {error}".strip().removesuffix(":")
        lines, first = [error.what], _chain(error)[-1]
        # Files of the runs of a check are gone by the time that somebody reads this.
        if error.where and not Path(error.where).is_relative_to(self._folder):
            lines.append(f"where: {error.where}")
        if isinstance(first, SeuBenchError) and first.remedy:
            lines.append(f"hint: {first.remedy}")
        return "\n".join(lines)


def _place_raised(error: BaseException, modules: Set[str]) -> Place | None:
    """The deepest line of a plugin's own code that an exception, or the first of its causes, came through."""
    for each in reversed(_chain(error)):
        for frame, line in reversed(list(traceback.walk_tb(each.__traceback__))):
            if str(frame.f_globals.get("__name__", "")).partition(".")[0] in modules:
                file, code = frame.f_code.co_filename, linecache.getline(frame.f_code.co_filename, line).strip()
                return Place(str(Path(file).resolve()), line, frame.f_code.co_qualname, code)
    return None


def _chain(error: BaseException) -> list[BaseException]:
    """The exception, what it was raised from or in the handling of, and so on: what happened first comes last."""
    found: list[BaseException] = []
    pending: BaseException | None = error
    while pending is not None and not any(pending is seen for seen in found):
        found.append(pending)
        pending = pending.__cause__ or (None if pending.__suppress_context__ else pending.__context__)
    return found
