"""Contracts on what is installed, without a test file: what ``seu-bench check-plugin`` does."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from seu_bench.config.options import did_you_mean
from seu_bench.errors import OptionError, UnknownNameError
from seu_bench.plugin.entries import Entry
from seu_bench.plugin.registry import Registry
from seu_bench.utils.progress import Bar, bar, hidden

#: Which contract belongs to which kind of name.
CONTRACTS = {"strategy": "StrategyContract", "searcher": "SearcherContract", "creator": "CreatorContract"}


@dataclass(frozen=True)
class Subject:
    """A registered name that a contract is to be run on."""

    kind: str
    entry: Entry[Any]

    def __str__(self) -> str:
        return f"{self.kind} {self.entry.name!r} of package {self.entry.package}"


@dataclass(frozen=True)
class Check:
    """What one test of a contract found.

    Attributes:
        name: of the test, e.g. ``resumes`` or ``tasks_of_unusual_shape[tiny_unequal-1]``.
        passed: whether it holds.
        message: why not.
    """

    name: str
    passed: bool
    message: str = ""


def subjects(registry: Registry, name: str) -> list[Subject]:
    """Every strategy, searcher and creator called ``name``; those of the plugin ``name`` where none is.

    Raises:
        UnknownNameError: there is neither.
    """
    everything = [
        Subject(kind.singular, entry)
        for kind in (registry.strategies, registry.searchers, registry.creators)
        for entry in kind.values()
    ]
    found = [subject for subject in everything if subject.entry.name == name]
    found = found or [subject for subject in everything if subject.entry.plugin == name]
    if not found:
        known = sorted({subject.entry.name for subject in everything} | {each.entry.plugin for each in everything})
        raise UnknownNameError(
            f"no strategy, searcher, creator or plugin that offers one is called {name!r}{did_you_mean(name, known)}",
            remedy=f"there are: {', '.join(known)}",
        )
    return found


def check(subject: Subject, options: Mapping[str, Any] | None = None) -> Iterator[Check]:
    """Run the contract of a subject.

    Args:
        options: for its trial, by name.

    Raises:
        OptionError: the contract could not be run with them.
    """
    source = "\n".join(
        [
            f"from seu_bench.testing import {CONTRACTS[subject.kind]}",
            f"class TestSubject({CONTRACTS[subject.kind]}):",
            f"    {subject.kind} = {subject.entry.name!r}",
            f"    options = {dict(options or {})!r}",
            # What a factory announces is an upper bound where it says so itself; that it is exact is not asked here.
            "    exact_passes = False",
        ]
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "test_subject.py"
        file.write_text(source + "\n", encoding="utf-8")
        # No configuration of the folder that we are called in, and nothing written beside the test.
        settings = ["-c", os.devnull, "--rootdir", folder, "-p", "no:cacheprovider", "--basetemp", f"{folder}/tmp"]
        output = io.StringIO()
        with bar(f"checking {subject}") as drawn:
            collector = _Collector(drawn)
            with hidden(), contextlib.redirect_stdout(output):  # what the checks do is not worth bars of its own
                status = pytest.main([*settings, str(file)], plugins=[collector])
    if not collector.checks:
        raise OptionError(
            f"the contract of {subject} could not be run: pytest ended with {int(status)}",
            where=output.getvalue().strip()[-500:] or None,
        )
    yield from collector.checks


class _Collector:
    """A plugin of pytest that keeps the outcome of each test."""

    def __init__(self, drawn: Bar) -> None:
        self.checks: list[Check] = []
        self._bar = drawn

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """How many there are."""
        self._bar.expect(len(session.items))

    def pytest_runtest_logfinish(self) -> None:
        """One more is done."""
        self._bar.advance()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One report for a test that ran, or for one whose fixtures failed."""
        if report.when == "call" or report.failed:
            name = report.nodeid.rpartition("::")[2].removeprefix("test_")
            self.checks.append(Check(name, report.passed, "" if report.passed else _message(report)))


def _message(report: pytest.TestReport) -> str:
    """The last sentence of a failure, without the traceback."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash is not None else report.longrepr)
    return re.sub(r"^(Failed|seu_bench\.errors\.\w+): ", "", text).strip()


def failures(checks: Sequence[Check]) -> int:
    """How many do not hold."""
    return sum(not found.passed for found in checks)
