"""Rules between the keys of a benchmark: each is told beside all other faults, and not where its own keys are wrong."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.faults import fault_lines
from seu_bench.config.streams import ClassSplit, DatasetSequence

CLASSES: dict[str, Any] = {"kind": "classes", "dataset": "digits", "classes_per_task": 2}
TASKS: dict[str, Any] = {"kind": "datasets", "tasks": {"a": {"dataset": "digits"}, "b": {"dataset": "mnist"}}}


def document(stream: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": "x", "stream": stream or CLASSES, "protocols": {"paper": {}}, **more}


def faults(value: dict[str, Any]) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        BenchmarkSpec.model_validate(value)
    return fault_lines(caught.value, BenchmarkSpec)


RULES: list[tuple[dict[str, Any], str, str]] = [
    (document({**CLASSES, "groups": [[0, 1]]}), "stream.groups", "give either classes_per_task or groups"),
    (
        document({**CLASSES, "classes_per_task": None}),
        "stream.groups",
        "give either classes_per_task or groups",
    ),
    (
        document({**CLASSES, "classes_per_task": None, "groups": [[0, 1], [1, 1]]}),
        "stream.groups",
        "a group has each class once, but 1 is in one twice",
    ),
    (
        document({**CLASSES, "classes_per_task": None, "first": 2, "groups": [[0, 1], [1]]}),
        "stream.groups",
        "first is for classes_per_task",
    ),
    (
        document({**CLASSES, "classes_per_task": None, "groups": [[0, 1], []]}),
        "stream.groups",
        "each group needs a class",
    ),
    (document({**CLASSES, "input": {"mean": [0.5]}}), "stream.input.std", "mean and std go together"),
    (document({**CLASSES, "input": {"std": [0.5]}}), "stream.input.std", "mean and std go together"),
    (
        document({**CLASSES, "input": {"mean": [0.5], "std": [0.5, 0.5]}}),
        "stream.input.std",
        "mean and std need the same number of channels",
    ),
    (document({**TASKS, "order": ["a"]}), "stream.order", "order must name each of a, b once"),
    (document({**TASKS, "order": ["a", "b", "b"]}), "stream.order", "order must name each of a, b once"),
    (document(default_protocol="quick"), "protocols", "default_protocol 'quick' is not one of paper"),
    (document(protocols={}), "protocols", "default_protocol 'paper' is not one of"),
]


@pytest.mark.parametrize(("value", "place", "said"), RULES, ids=[f"{place}-{said[:20]}" for _, place, said in RULES])
def test_rule_is_told_with_other_faults(value: dict[str, Any], place: str, said: str) -> None:
    """A rule between keys is one line, at the last of its keys, alone or beside a fault of another key."""
    (line,) = faults(value)
    assert line.startswith(f"{place}: ") and said in line
    assert faults({**value, "version": 0, "colour": "red"}) == [
        "version: must be above 0 (given: 0)",
        line,
        "colour: no such key here; there are name, version, summary, citation, default_protocol, stream, datasets, "
        "protocols (given: 'red')",
    ]


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        (document({**CLASSES, "classes_per_task": 0, "groups": [[0]]}), "stream.classes_per_task"),
        (document({**CLASSES, "input": {"mean": ["grey"]}}), "stream.input.mean[0]"),
        (document({**TASKS, "tasks": {}, "order": ["a"]}), "stream.tasks"),
        (document(default_protocol=3), "default_protocol"),
    ],
)
def test_rule_waits_for_its_keys(value: dict[str, Any], wrong: str) -> None:
    """A key that is wrong in itself is the only fault: what a rule would say of it is not known."""
    assert [line.split(": ")[0] for line in faults(value)] == [wrong]


def test_what_fits() -> None:
    """Groups in place of a number, an order of names, another default protocol."""
    spec = BenchmarkSpec.model_validate(document({**CLASSES, "classes_per_task": None, "groups": [[0, 1], [2]]}))
    assert isinstance(spec.stream, ClassSplit) and spec.stream.groups == ((0, 1), (2,))
    named = document({**TASKS, "order": ["b", "a"]}, default_protocol="mine", protocols={"mine": {}})
    spec = BenchmarkSpec.model_validate(named)
    assert isinstance(spec.stream, DatasetSequence) and spec.stream.order == ("b", "a")
