"""Spec of a sweep: lists, seeds and values as they are written, and every fault of a file at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seu_bench.errors import OptionError, SpecError
from seu_bench.sweeps.spec import SweepSpec, make_spec, parse_axes, parse_seeds, parse_values, split_names

quick = settings(max_examples=100, deadline=None)

#: What an option can be given, text that has a meaning in TOML left out.
VALUES = st.recursive(
    st.booleans() | st.integers(-(10**6), 10**6) | st.text("abc ,[]{}'\"\\#=", max_size=6),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,2", [1, 2]),
        ("0.1, mdl ,true", [0.1, "mdl", True]),
        ("[1, 2],[3]", [[1, 2], [3]]),
        ("[[1,2],[3,4]]", [[[1, 2], [3, 4]]]),
        ('"a,b","c"', ["a,b", "c"]),
        ('"a",b', ["a", "b"]),
        ("mdl,[1]", ["mdl", [1]]),
        ("'a,b'", ["a,b"]),
        ('"a\\",b", 3', ['a",b', 3]),
        ("{a = 1, b = 2},3", [{"a": 1, "b": 2}, 3]),
        ("it's,b", ["it's", "b"]),
        ("f[1,2]", ["f[1", "2]"]),
        ("1,2]\nb = [3", [1, "2]\nb = [3"]),
        ("", [""]),
        ("x", ["x"]),
    ],
)
def test_values(text: str, values: list[Any]) -> None:
    """Values are those of a list of TOML; where they are none, commas divide them."""
    assert parse_axes([f"k={text}"]) == {"k": values}


@quick
@given(st.lists(VALUES, min_size=1, max_size=4))
def test_values_come_back(values: list[Any]) -> None:
    """Values written as JSON, one beside the other, are read as they were."""
    text = ",".join(json.dumps(value) for value in values)
    assert parse_values(text) == values


@quick
@given(st.text("ab,[]{}'\"\\ ", max_size=20))
def test_nothing_is_lost(text: str) -> None:
    """Where no value begins as one of TOML, they put together again are the text; else it is read or refused."""
    plain = not any(part.strip()[:1] in ("", *"[{\"'") for part in text.split(","))
    try:
        values = parse_values(text)
    except ValueError:
        assert not plain
    else:
        assert not plain or values == [part.strip() for part in text.split(",")]


@pytest.mark.parametrize(
    "assignment", ["k", "=1", "k=1,,2", "k=,1", "k=1,", "k=[1,2", 'k="a,b', 'k="a,b",c', "k=[1,x]", "k={a,b}"]
)
def test_faulty_assignments(assignment: str) -> None:
    """Refused with the assignment that is meant."""
    with pytest.raises(OptionError, match=r"is not an assignment|has an empty value|has a value that cannot be read"):
        parse_axes([assignment])


def test_same_option_twice() -> None:
    """Nobody knows which is meant."""
    with pytest.raises(OptionError, match="option 'k' is given twice"):
        parse_axes(["k=1", "k=2"])


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0", [0]), ("0-4,7", [0, 1, 2, 3, 4, 7]), (" 3 - 3 , 1", [3, 1]), ("4294967295", [2**32 - 1])],
)
def test_seeds(text: str, seeds: list[int]) -> None:
    """Seeds and ranges of them, both ends included."""
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "1,", "4-0", "-1", "0-", "1.5", "0-4294967295", "٣"])
def test_faulty_seeds(text: str) -> None:
    """Refused, and a range that would fill the memory, too."""
    with pytest.raises(ValueError, match=r"is no seed and no range|ends before it begins|has more than"):
        parse_seeds(text)


def test_names() -> None:
    """Where a path holds a comma, all are quoted; what looks like a number is a name."""
    assert split_names('"naive", "my,own.toml"') == ["naive", "my,own.toml"]
    assert split_names("naive, 3 ,true") == ["naive", "3", "true"]


def test_defaults() -> None:
    """Those of ``run``."""
    spec = make_spec({})
    assert (spec.strategy, spec.benchmark, spec.seeds, spec.executor) == (("seu",), ("split_digits",), (0,), "local")
    assert (spec.searcher, spec.axes, spec.executor_options, spec.results) == ((), {}, {}, Path("results"))


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"strategy": ""}, "strategy"),
        ({"strategy": "seu,,ewc"}, "strategy"),
        ({"seeds": True}, "seeds"),
        ({"seeds": [1.5]}, "seeds"),
        ({"seeds": 3.0}, "seeds"),
        ({"seeds": []}, "seeds"),
        ({"options": {"k": []}}, "'k' has no value"),
        ({"options": {"executor.cpus": [1, 2]}}, "a sweep has one executor"),
        ({"jobs": 2, "options": {"executor.jobs": 3}}, "jobs is given twice"),
        ({"seeds": "0-99999", "options": {"k": [1, 2]}}, "200,000 jobs"),
    ],
)
def test_faults(given: dict[str, Any], fault: str) -> None:
    """Specs that no sweep can have."""
    with pytest.raises(SpecError, match=fault):
        make_spec(given)


def test_documented() -> None:
    """The guide has every key of a file."""
    import seu_bench

    text = (Path(seu_bench.__file__).resolve().parent.parent / "docs" / "reference" / "sweeps.md").read_text(
        encoding="utf-8"
    )
    assert [key for key in SweepSpec.model_fields if f"`{key}`" not in text] == []
