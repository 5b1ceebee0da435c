"""Answers of the evidence: every verdict again by SciPy's own tests, and what each kind of test says."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from scipy import stats
from support.records import a_record

from scripts.evidence.questions import Kind, Question, answers, p_value, read_pool, read_questions, row_name
from seu_bench.results.record import Record

PAGES = ("reproduction", "contest", "inheritance")


def by_scipy(kind: Kind, margin: float, one: Sequence[float], other: Sequence[float]) -> float:
    """The p value of the paired test."""
    differences = [a - b for a, b in zip(one, other, strict=True)]
    if kind == "difference":
        return float(stats.ttest_rel(one, other).pvalue)
    worse = stats.ttest_1samp(differences, -margin, alternative="greater").pvalue
    other_way = stats.ttest_1samp(differences, margin, alternative="less").pvalue
    return float(worse if kind == "not worse" else max(worse, other_way))


def by_definition(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: the largest, over all that are no larger, of p times how many are no smaller."""
    ranked = sorted(p_values)
    steps = [min(1.0, (len(ranked) - at) * p) for at, p in enumerate(ranked)]
    return [max(steps[: ranked.index(p) + 1]) for p in p_values]


@pytest.mark.parametrize("page", PAGES)
def test_every_published_verdict_again(page: str) -> None:
    """Also the intervals; each question is a family by itself."""
    pool = read_pool()
    for question in read_questions(page):
        found = answers(question, pool)
        told = [each for each in found if each.p_holm is not None]
        assert {each.verdict for each in found if each.p_holm is None} <= {"too few seeds"}
        pairs = []
        for each in told:
            rows = pool[each.place]
            seeds = sorted(rows[question.one].keys() & rows[each.other].keys())
            values = [
                [rows[name][seed].metrics[question.metric] for seed in seeds] for name in (question.one, each.other)
            ]
            pairs.append(values)
        expected = by_definition([by_scipy(question.kind, question.margin, *pair) for pair in pairs])  # type: ignore[arg-type]
        for each, p_holm, (one, other) in zip(told, expected, pairs, strict=True):
            assert each.p_holm == pytest.approx(p_holm, rel=1e-6, abs=0)
            low, high = stats.ttest_rel(one, other).confidence_interval()
            assert (each.low, each.high) == pytest.approx((low, high), rel=1e-9)
            significant = p_holm < 0.05
            if question.kind == "difference":
                assert each.verdict == (("above" if sum(one) > sum(other) else "below") if significant else "not told")
            else:
                assert (each.verdict == "shown") == significant


@pytest.mark.parametrize(
    ("kind", "differences", "verdict"),
    [
        ("difference", (0.02, 0.021, 0.019), "above"),
        ("difference", (-0.02, -0.021, -0.019), "below"),
        ("difference", (0.02, -0.02, 0.01), "not told"),
        ("difference", (0.02, 0.02), "too few seeds"),
        ("not worse", (-0.004, -0.0041, -0.0039), "shown"),
        ("not worse", (-0.004, 0.02, -0.03), "not shown"),
        ("not worse", (-0.03, -0.031, -0.029), "worse"),
        ("equivalent", (0.004, 0.0041, 0.0039), "shown"),
        ("equivalent", (0.03, 0.031, 0.029), "not shown"),
        ("equivalent", (0.0, 0.0, 0.0), "shown"),
    ],
)
def test_what_a_test_says(kind: Kind, differences: Sequence[float], verdict: str) -> None:
    """By a margin of half a point; no difference that is seen is taken for one that is shown."""
    runs = {
        name: {seed: a_run(name, seed, 0.5 + gain * (name == "a")) for seed, gain in enumerate(differences)}
        for name in ("a", "b")
    }
    question = Question(
        "q",
        "p",
        datetime(2026, 1, 1, tzinfo=UTC),
        "?",
        kind,
        "a",
        ("b", "c"),
        (("quick", "one"), ("quick", "two")),
        margin=0.005,
    )
    (found,) = answers(question, {("quick", "one"): runs})
    assert found.verdict == verdict and found.seeds == len(differences) and not found.was_known
    assert answers(question, {}) == []


def a_run(name: str, seed: int, acc: float = 0.5, **fields: Any) -> Record:
    """A record that a question can be asked of."""
    return a_record(strategy=name, seed=seed, metrics={"acc": acc}, started="2026-02-01T00:00:00+00:00", **fields)


def test_equal_samples() -> None:
    """Without any deviation a test still says what is so."""
    assert p_value("difference", 0.0, [0.0] * 3) == 1 and p_value("difference", 0.0, [0.1] * 3) == 0
    assert p_value("not worse", 0.01, [0.0] * 3) == 0 and p_value("equivalent", 0.01, [0.02] * 3) == 1


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"strategy": "ewc", "options": {"backbone": "alexnet", "width": 0.1}}, "ewc"),
        ({"strategy": "ewc", "options": {"backbone": "conv4", "width": 0.25}}, "ewc on conv4"),
        ({"strategy": "replay", "options": {"backbone": "conv4", "width": 1.0, "memory": 620}},
         "replay on conv4, width 1, 620 images"),
        ({"strategy": "seu", "searcher": "mdl", "creator": "mdl", "options": {}}, "seu"),
        ({"strategy": "seu", "searcher": "mdl", "creator": "mdl", "options": {"width": 0.5}},
         "seu: mdl, mdl, width 0.5"),
        ({"strategy": "seu", "searcher": "inherit", "creator": "inherit", "options": {"width": 0.5},
          "creator_options": {"copies": False}}, "seu: inherit, inherit, width 0.5, no copies"),
    ],
)  # fmt: skip
def test_names_of_rows(fields: dict[str, Any], name: str) -> None:
    """Two configurations have two names."""
    assert row_name(a_record(**fields)) == name
