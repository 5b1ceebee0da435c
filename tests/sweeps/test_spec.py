"""Spec of a sweep: lists, seeds and values as they are written, and every fault of a file at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.commands import Command

from seu_bench.errors import OptionError, SpecError
from seu_bench.sweeps.spec import make_spec, parse_axes, parse_seeds, parse_values, split_names

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
        ('"a,b","c"', ["a,b", "c"]),
        ("mdl,[1]", ["mdl", [1]]),
        ('"a\\",b", 3', ['a",b', 3]),
        ("{a = 1, b = 2},3", [{"a": 1, "b": 2}, 3]),
        ("f[1,2]", ["f[1", "2]"]),
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


@pytest.mark.parametrize(
    "assignment", ["k", "=1", "k=1,,2", "k=,1", "k=1,", "k=[1,2", 'k="a,b', 'k="a,b",c', "k={a,b}"]
)
def test_faulty_assignments(assignment: str) -> None:
    """Refused with the assignment that is meant."""
    with pytest.raises(OptionError, match=r"is not an assignment|has an empty value|has a value that cannot be read"):
        parse_axes([assignment])


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


def test_file(tmp_path: Path) -> None:
    """Keys of runs, of the sweep and of its executor; relative paths start from the file's folder."""
    file = tmp_path / "sweep.toml"
    file.write_text(
        """
        strategy = "seu, naive"
        benchmark = ["split_digits", "own/mine.toml"]
        seeds = ["0-2", 7]
        searcher = "mdl,darts"
        protocol = "quick"
        limit = 8
        jobs = 2
        data_root = "data"
        results = "out"
        feature_cache = "2K"
        log = "mlflow,tensorboard"
        tuned = ["chosen", "own/tuned.toml"]
        [log_options]
        mlflow.experiment = "grid"
        [options]
        widths = [[1, 2], [3]]
        searcher.alpha = 0.5
        executor.cpus = 3
        """
    )
    spec = make_spec({}, file)
    assert spec.model_dump(exclude_unset=True) == {
        "strategy": ("seu", "naive"),
        "benchmark": ("split_digits", str(tmp_path / "own/mine.toml")),
        "seeds": (0, 1, 2, 7),
        "searcher": ("mdl", "darts"),
        "protocol": "quick",
        "limit": 8,
        "jobs": 2,
        "data_root": tmp_path / "data",
        "results": tmp_path / "out",
        "feature_cache": 2048,
        "log": ("mlflow", "tensorboard"),
        "tuned": ("chosen", str(tmp_path / "own/tuned.toml")),
        "log_options": {"mlflow.experiment": "grid"},
        "options": {"widths": ([1, 2], [3]), "searcher.alpha": (0.5,), "executor.cpus": (3,)},
    }
    assert set(spec.axes) == {"widths", "searcher.alpha"}
    assert spec.executor_options == {"jobs": 2, "cpus": 3}


def test_options_replace_those_of_the_file(tmp_path: Path) -> None:
    """Each key that is given besides, and each option by itself; the rest stays."""
    file = tmp_path / "sweep.toml"
    file.write_text('strategy = "ewc"\nseeds = "0-4"\nprotocol = "quick"\n[options]\nepochs = 1\nsearcher.alpha = 2\n')
    spec = make_spec({"seeds": "7", "options": {"epochs": [3, 4], "width": [0.5]}}, file)
    assert (spec.strategy, spec.seeds, spec.protocol) == (("ewc",), (7,), "quick")
    assert spec.options == {"epochs": (3, 4), "searcher.alpha": (2,), "width": (0.5,)}


def test_every_fault_of_a_file(command: Command, tmp_path: Path) -> None:
    """All at once, each with its key; nothing is written."""
    file = tmp_path / "sweep.toml"
    file.write_text(
        'strategys = "seu"\nseeds = "3-1"\nlimit = 2\nsynthetic = "yes"\njobs = true\nfeature_cache = "lots"\n'
        "benchmark = []\noptions = 3\n"
    )
    answer = command("sweep", file, "--results", tmp_path / "results")
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith("error: the sweep file has 8 faults\n")
    for place in (
        "strategys: no such key (did you mean 'strategy'?)", "seeds: the range 3-1 ends", "limit: ",
        "synthetic: ", "jobs: ", "feature_cache: 'lots' is no number of bytes", "benchmark: ", "options: ",
    ):  # fmt: skip
        assert f"\n  - {place}" in answer.err, place
    assert f"where: {file}" in answer.err
    assert not (tmp_path / "results").exists()
