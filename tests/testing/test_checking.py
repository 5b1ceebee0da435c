"""Whatever comes with seu-bench passes the checks that ``seu-bench check-plugin`` runs on it."""

from __future__ import annotations

import pytest
from support.tiny import all_threads, one_thread, registry

from seu_bench.plugin.code import Subject, subjects
from seu_bench.plugin.registration import LazyFactory
from seu_bench.plugin.registry import Entry
from seu_bench.testing.checking import CONTRACTS, check, names_of_checks

setup_module, teardown_module = one_thread, all_threads

OURS = subjects(registry(), "seu-bench")
#: Contracts of the others are run by tests of their own.
OTHERS = [it for it in OURS if it.kind not in ("strategy", "searcher", "creator")]


@pytest.mark.long
@pytest.mark.parametrize(
    "subject", OTHERS, ids=lambda subject: f"{subject.kind}-{subject.entry.name}".replace(" ", "-")
)
def test_ours(subject: Subject) -> None:
    """Each kind has a contract, and each name holds to it; what needs files that are not there is skipped."""
    found = check(subject)
    assert [each for each in found if each.outcome == "failed"] == []
    assert {each.name.partition("[")[0] for each in found} == set(names_of_checks(subject))


def test_every_kind_has_a_contract() -> None:
    """Whatever can be registered can be checked."""
    assert {*CONTRACTS} == {kind.singular for kind in registry().kinds.values()}
    assert {subject.kind for subject in OURS} == {*CONTRACTS}


def test_checks_of_each_subject() -> None:
    """What ran and how it ended; of each subject as itself, though names of checks repeat."""
    digits, run = (subjects(registry(), name)[0] for name in ("digits", "run"))
    ended = [(it.name, it.outcome) for it in check(digits, pattern="describes or missing")]
    assert sorted(ended) == [("holds_what_it_describes", "passed"), ("says_that_it_is_missing", "skipped")]
    assert [each.name for each in check(run)] == ["has_help"]
    absent = run._replace(entry=Entry("no_such_command", None, "cli", "seu-bench"))
    (found,) = check(absent)
    assert found.outcome == "failed" and "no command is called 'no_such_command'" in found.message


def test_options_of_the_factory() -> None:
    """A factory says with which options it is checked; those that are given come first."""
    naive = subjects(registry(), "naive")[0]
    slow = LazyFactory("slow", options=naive.entry.factory.options, build="x:y", check_options={"epochs": -1})
    subject = naive._replace(entry=Entry("naive", slow, "naive", "seu-bench"))
    (found,) = check(subject, pattern="learns and not scenarios")
    assert found.outcome == "failed" and "epochs" in found.message
    (found,) = check(subject, {"epochs": 10}, pattern="learns and not scenarios")
    assert found.outcome == "passed"
