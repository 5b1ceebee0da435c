"""Options: what ``-o key=value`` means, and that every fault of a set of options is named at once."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import Field, PositiveFloat, PositiveInt

from seu_bench.config.options import (
    Options,
    build_options,
    describe_options,
    parse_assignments,
    parse_value,
    split_by_prefix,
)
from seu_bench.errors import OptionError


class Cooking(Options):
    """Options with one field of each kind."""

    minutes: PositiveInt = Field(10, description="how long")
    heat: PositiveFloat | None = Field(None, description="how hot")
    lid: bool = True
    method: Literal["boil", "fry"] = "boil"
    note: str | None = None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("0.1", 0.1),
        ("1e-3", 1e-3),
        ("true", True),
        ("false", False),
        ('"3"', "3"),
        ("[1, 2]", [1, 2]),
        ("{a = 1}", {"a": 1}),
        ("all14", "all14"),
        ("True", "True"),
        ("", ""),
        ("a=b", "a=b"),
        ("1\nother = 2", "1\nother = 2"),
    ],
)
def test_values_are_toml_or_text(text: str, value: object) -> None:
    """TOML values are read as such; everything else, and text that would be two entries, is text."""
    parsed = parse_value(text)
    assert (parsed, type(parsed)) == (value, type(value))


def test_assignments_and_prefixes() -> None:
    """Blanks around do not count, a value may hold an equals sign; a known prefix addresses another part of a run."""
    given = parse_assignments(["epochs=3", " searcher.alpha = 0.1 ", "note=a=b", "empty=", "benchmark.stream.order=1"])
    assert split_by_prefix(given) == {
        "": {"epochs": 3, "note": "a=b", "empty": ""},
        "searcher": {"alpha": 0.1},
        "creator": {},
        "benchmark": {"stream.order": 1},
    }


def test_layers() -> None:
    """Later ones win; 3.0 is a whole number."""
    built = build_options(Cooking, "a cook", {"minutes": 1, "lid": False}, {"minutes": 3.0})
    assert built == Cooking(minutes=3, lid=False) and type(built.minutes) is int


@pytest.mark.parametrize(
    ("name", "value"),
    [("minutes", value) for value in (2.5, "two", [2], True, None, 0)] + [("heat", parse_value("inf"))],
)
def test_wrong_numbers(name: str, value: object) -> None:
    """Nothing is rounded, a truth value is no number, and a record could hold no infinite one."""
    with pytest.raises(OptionError, match=f"{name}: "):
        build_options(Cooking, "a cook", {name: value})


@pytest.mark.parametrize("assignments", [["epochs"], ["=3"], [" = 3"], ["epochs=3", "epochs=3"], ["a=1", " a =2"]])
def test_faulty_assignments(assignments: list[str]) -> None:
    """Text without an assignment and keys given twice are refused with a remedy."""
    with pytest.raises(OptionError) as error:
        parse_assignments(assignments)
    assert error.value.remedy


def test_every_fault_is_named() -> None:
    """Unknown names, wrong types and impossible values come in one message, with what there is to choose from."""
    with pytest.raises(OptionError) as error:
        build_options(Cooking, "a cook", {"minuts": 3, "heat": "high", "method": "bake", "lid": 7, "minutes": 0})
    text = str(error.value)
    assert "'minuts' is not an option (did you mean 'minutes'?)" in text
    for place, given in (("heat", "'high'"), ("method", "'bake'"), ("lid", "7"), ("minutes", "0")):
        assert f"{place}: " in text
        assert f"(given: {given})" in text
    assert "'boil' or 'fry'" in text
    assert "where: a cook" in text
    assert "the options of a cook are: heat, lid, method, minutes, note" in text


def test_descriptions() -> None:
    """Every option has a name, a default, a help text and its choices."""
    described: dict[str, dict[str, Any]] = {row["name"]: dict(row) for row in describe_options(Cooking)}
    assert list(described) == ["minutes", "heat", "lid", "method", "note"]
    assert described["minutes"] == {
        "name": "minutes",
        "type": "int",
        "range": "> 0",
        "default": 10,
        "help": "how long",
        "choices": [],
    }
    assert (described["heat"]["default"], described["lid"]["default"]) == (None, True)
    assert described["method"]["choices"] == ["boil", "fry"]
