"""Contracts on installed plugins without a test file, for ``seu-bench check-plugin``."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from seu_bench.config.options import did_you_mean
from seu_bench.errors import OptionError, UnknownNameError
from seu_bench.plugin.entries import Entry
from seu_bench.plugin.registry import Registry
from seu_bench.utils.progress import Bar, bar, hidden


class Subject(NamedTuple):
    """A registered name to run a contract on."""

    kind: str
    entry: Entry[Any]

    def __str__(self) -> str:
        return f"{self.kind} {self.entry.name!r} of package {self.entry.package}"


class Check(NamedTuple):
    """Result of one test of a contract, e.g. ``tasks_of_unusual_shape[tiny_unequal-1]``, and why it did not pass."""

    name: str
    passed: bool
    message: str


def subjects(registry: Registry, name: str) -> list[Subject]:
    """Return every strategy, searcher and creator called ``name``, or else those of the plugin ``name``.

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
        known = sorted({word for _, entry in everything for word in (entry.name, entry.plugin)})
        raise UnknownNameError(
            f"no strategy, searcher, creator or plugin that offers one is called {name!r}{did_you_mean(name, known)}",
            remedy=f"there are: {', '.join(known)}",
        )
    return found


def check(subject: Subject, options: Mapping[str, Any] | None = None) -> list[Check]:
    """Run the contract of a subject, with ``options`` by name, in pytest, and return the result of each test.

    Raises:
        OptionError: the contract could not be run with them.
    """
    contract = f"{subject.kind.title()}Contract"
    output = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, bar(f"checking {subject}") as drawn:
        file = Path(folder) / "test_subject.py"
        file.write_text(
            f"from seu_bench.testing import {contract}\n"
            f"class TestSubject({contract}):\n"
            f"    {subject.kind} = {subject.entry.name!r}\n"
            f"    options = {dict(options or {})!r}\n"
            # Estimates may be upper bounds; only the author's own test can ask for exact ones.
            "    exact_passes = False\n",
            encoding="utf-8",
        )
        # Ignore the configuration of the working folder, and write nothing into it.
        settings = ["-c", os.devnull, "--rootdir", folder, "-p", "no:cacheprovider", "--basetemp", f"{folder}/tmp"]
        collector = _Collector(drawn)
        with hidden(), contextlib.redirect_stdout(output):
            status = pytest.main([*settings, str(file)], plugins=[collector])
    if not collector.checks:
        raise OptionError(
            f"the contract of {subject} could not be run: pytest ended with {int(status)}",
            where=output.getvalue().strip()[-500:] or None,
        )
    return collector.checks


class _Collector:
    """Plugin of pytest that collects the result of each test."""

    def __init__(self, drawn: Bar) -> None:
        self.checks: list[Check] = []
        self._bar = drawn

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._bar.expect(len(session.items))

    def pytest_runtest_logfinish(self) -> None:
        self._bar.advance()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the result of a test that ran, or whose fixtures failed."""
        if report.when == "call" or report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            said = "" if report.passed else str(crash.message if crash is not None else report.longrepr)
            said = re.sub(r"^(Failed|seu_bench\.errors\.\w+): ", "", said).strip()
            self.checks.append(Check(report.nodeid.rpartition("::")[2].removeprefix("test_"), report.passed, said))
