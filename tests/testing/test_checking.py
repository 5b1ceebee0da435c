"""Whatever comes with seu-bench passes the checks that ``seu-bench check-plugin`` runs on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from support.tiny import all_threads, one_thread, registry

from seu_bench.errors import OptionError
from seu_bench.plugin.code import Subject, subjects
from seu_bench.plugin.registration import LazyFactory
from seu_bench.plugin.registry import Entry
from seu_bench.testing.checking import check, contract_of

setup_module, teardown_module = one_thread, all_threads

OURS = subjects(registry(), "seu-bench")
#: Contracts of the others are run by tests of their own.
OTHERS = [it for it in OURS if it.kind not in ("strategy", "searcher", "creator") and contract_of(it)]


class Reports:
    """A plugin of pytest that notes how each test ended."""

    def __init__(self) -> None:
        self.ended: dict[str, str] = {}
        self.said = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome, of setting up only where it is the last one."""
        if report.when == "call" or report.outcome != "passed":
            self.ended[report.nodeid.rpartition("::")[2]] = report.outcome
            self.said += str(report.longrepr)


def checked(subject: Subject, options: Mapping[str, Any] | None = None, pattern: str = "") -> Reports:
    """The checks of a subject."""
    found = Reports()
    assert check([(subject, options or {})], pattern, [found]) == int("failed" in found.ended.values())
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    "subject", OTHERS, ids=lambda subject: f"{subject.kind}-{subject.entry.name}".replace(" ", "-")
)
def test_ours(subject: Subject) -> None:
    """Each name holds to the contract of its kind; what needs files that are not there is skipped."""
    assert {*checked(subject).ended.values()} <= {"passed", "skipped"}


def test_every_kind_has_a_contract() -> None:
    """Whatever can be registered can be checked, but for executors and commands."""
    known = {subject.kind: contract_of(subject) for subject in OURS}
    assert known.keys() == {kind.singular for kind in registry().kinds.values()}
    assert {kind for kind, contract in known.items() if contract is None} == {"executor", "command"}
    with pytest.raises(OptionError, match="by which to check command 'run'"):
        check([(subjects(registry(), "run")[0], {})])


def test_checks_of_each_subject() -> None:
    """What ran and how it ended; a name that is not there fails with what the registry says."""
    digits = subjects(registry(), "digits")[0]
    ended = checked(digits, pattern="describes or missing").ended
    assert ended == {"test_holds_what_it_describes": "passed", "test_says_that_it_is_missing": "skipped"}
    absent = digits._replace(entry=Entry("no_such_data", None, "x", "y"))
    assert "no data set is called 'no_such_data'" in checked(absent, pattern="describes").said


def test_options_of_the_factory() -> None:
    """A factory says with which options it is checked; those that are given come first."""
    naive = subjects(registry(), "naive")[0]
    slow = LazyFactory("slow", options=naive.entry.factory.options, build="x:y", check_options={"epochs": -1})
    subject = naive._replace(entry=Entry("naive", slow, "naive", "seu-bench"))
    found = checked(subject, pattern="learns and not scenarios")
    assert found.ended == {"test_learns": "failed"} and "epochs" in found.said
    assert checked(subject, {"epochs": 10}, "learns and not scenarios").ended == {"test_learns": "passed"}
