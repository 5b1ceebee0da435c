"""Search spaces: how values and ranges are written, and what is drawn from them."""

from __future__ import annotations

from typing import Any

import pytest
from support.tiny import registry

from seu_bench.errors import SpecError, UnknownNameError
from seu_bench.sweeps.tune_spec import Choices, Range, TuneSpec, make_tune_spec, parse_dimension
from seu_bench.sweeps.tuning import Study


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("10,100,1000", Choices((10, 100, 1000))),
        ("0.5", Choices((0.5,))),
        ("a,b", Choices(("a", "b"))),
        ("[1, 2],[3]", Choices(([1, 2], [3]))),
        ([1, "x"], Choices((1, "x"))),
        (True, Choices((True,))),
        ("1..100", Range(1, 100)),
        (" 1 .. 100 : log", Range(1, 100, log=True)),
        ("1e-4..0.1:log", Range(1e-4, 0.1, log=True)),
        ("-1.5..2", Range(-1.5, 2)),
    ],
)
def test_written(given: Any, expected: Choices | Range) -> None:
    assert parse_dimension(given) == expected
    assert parse_dimension(str(expected)) == expected or not isinstance(given, str)


@pytest.mark.parametrize("given", ["5..1", "0..1:log", "-1..1:log", "1,1", "", []])
def test_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"range|twice|no value|empty"):
        parse_dimension(given)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "space"),
        ({"space": {"a": "1..2"}}, "'a' is a range, which a grid has not"),
        ({"space": {"a": "1,2"}, "trials": 3}, "a number of trials is given"),
        ({"space": {"a": "1..2"}, "sampler": "tpe"}, "needs a number of trials"),
        ({"space": {"a": "1,2"}, "options": {"a": 1}}, "'a' is given as an option and is to be tuned"),
        ({"space": {"executor.jobs": "1,2"}}, "cannot be tuned"),
        ({"space": {"a": "1,2"}, "options": {"benchmark.stream.validation": 0.3}}, "changes no benchmark"),
        ({"space": {"a": "1,2"}, "method": "first-tasks"}, "there is no method 'first-tasks'"),
        ({"space": {"a": "1,2"}, "method": "first-tasks:0"}, "there is no method"),
        ({"space": {"a": "1,2"}, "seeds": "3-1"}, "ends before it begins"),
        ({"space": {"a": "1,2"}, "id": "../x"}, "id"),
    ],
)
def test_spec_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make_tune_spec(fields)


def drawn(spec: TuneSpec, rounds: int = 99) -> list[dict[str, Any]]:
    """All values that a sampler draws, which is told a score of each."""
    sampler, values = Study(spec), []
    while rounds and (asked := sampler.ask()):
        values += asked
        sampler.tell([None if one["b"] == 3 else 1 / (1 + one["a"]) for one in asked])
        rounds -= 1
    return values


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_optuna_draws_again(sampler: str) -> None:
    """With one seed the same values in the same order, also where it is stopped in between; inside of their ranges."""
    pytest.importorskip("optuna")
    space = {"a": "0.001..10:log", "b": "1..5", "c": [[1, 2], "x"]}
    spec = make_tune_spec({"space": space, "sampler": sampler, "trials": 14, "batch": 3})
    values = drawn(spec)
    assert len(values) == 14
    assert drawn(spec) == values
    assert drawn(spec, rounds=2) == values[:6]
    assert all(0.001 <= one["a"] <= 10 and one["b"] in range(1, 6) and one["c"] in ([1, 2], "x") for one in values)
    assert all(isinstance(one["b"], int) and len(f"{one['a']:g}") <= 8 for one in values)
    other = make_tune_spec({"space": space, "sampler": sampler, "trials": 14, "batch": 3, "seeds": "7"})
    assert drawn(other) != values


def test_without_a_space_the_strategys_own_grid_is_tried() -> None:
    """All of it but what is fixed by an option; what is given replaces it as a whole."""
    own = registry().strategies.find("ewc").factory.options.tuning_grid
    spec = make_tune_spec({"strategy": "ewc", "space": {}}, registry())
    assert {key: part.values for key, part in spec.space.items() if isinstance(part, Choices)} == dict(own)
    fixed = make_tune_spec({"strategy": "ewc", "options": {"learning_rate": 0.1}}, registry())
    assert fixed.space.keys() == own.keys() - {"learning_rate"}
    assert make_tune_spec({"strategy": "ewc", "space": {"epochs": "1,2"}}, registry()).space.keys() == {"epochs"}
    with pytest.raises(UnknownNameError, match="ewcc"):
        make_tune_spec({"strategy": "ewcc"}, registry())
