"""What a sweep asks for: lists, seeds and values as they are written, and every fault of a file at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.commands import Command, Install

from seu_bench.errors import OptionError, SpecError
from seu_bench.sweeps.file import keep_spec, kept_spec, make_spec
from seu_bench.sweeps.spec import SweepSpec, parse_axes, parse_seeds, parse_values, split_names

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
    """Whatever is written as JSON, one beside the other, is read as it was."""
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


def test_file(tmp_path: Path) -> None:
    """Every key; paths start from the file's folder."""
    file = tmp_path / "sweep.toml"
    file.write_text(
        """
        strategy = ["seu", "naive"]
        benchmark = "split_digits,own/mine.toml"
        seeds = ["0-2", 7]
        searcher = "mdl,darts"
        creator = ["frugal"]
        protocol = "quick"
        limit = 8
        synthetic = true
        precision = "bf16"
        executor = "local"
        jobs = 2
        device = "cpu"
        data_root = "data"
        results = "out"
        feature_cache = "2K"
        checkpoint_every = 5
        keep_weights = false
        retry_failed = true
        log = "mlflow,tensorboard"
        [log_options]
        mlflow.experiment = "grid"
        [options]
        epochs = [1, 2]
        widths = [[1, 2], [3]]
        searcher.alpha = 0.5
        executor.threads = 3
        """
    )
    spec = make_spec({}, file)
    assert spec.model_dump() == {
        "strategy": ("seu", "naive"),
        "benchmark": ("split_digits", str(tmp_path / "own/mine.toml")),
        "seeds": (0, 1, 2, 7),
        "searcher": ("mdl", "darts"),
        "creator": ("frugal",),
        "protocol": "quick",
        "options": {"epochs": (1, 2), "widths": ([1, 2], [3]), "searcher.alpha": (0.5,), "executor.threads": (3,)},
        "limit": 8,
        "synthetic": True,
        "precision": "bf16",
        "executor": "local",
        "jobs": 2,
        "device": "cpu",
        "data_root": tmp_path / "data",
        "results": tmp_path / "out",
        "feature_cache": 2048,
        "checkpoint_every": 5,
        "compile": False,
        "keep_weights": False,
        "retry_failed": True,
        "log": ("mlflow", "tensorboard"),
        "log_options": {"mlflow.experiment": "grid"},
    }
    assert set(spec.axes) == {"epochs", "widths", "searcher.alpha"}
    assert spec.executor_options == {"jobs": 2, "threads": 3}


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
        "strategys: no such key (did you mean 'strategy'?)", "seeds: Value error, the range 3-1 ends", "limit: ",
        "synthetic: ", "jobs: ", "feature_cache: Value error, 'lots' is no number of bytes", "benchmark: ", "options: ",
    ):  # fmt: skip
        assert f"\n  - {place}" in answer.err, place
    assert f"where: {file}" in answer.err
    assert not (tmp_path / "results").exists()


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
        ({"options": {"executor.threads": [1, 2]}}, "a sweep has one executor"),
        ({"jobs": 2, "options": {"executor.jobs": 3}}, "jobs is given twice"),
        ({"seeds": "0-99999", "options": {"k": [1, 2]}}, "200,000 jobs"),
    ],
)
def test_faults(given: dict[str, Any], fault: str) -> None:
    """What no sweep can be."""
    with pytest.raises(SpecError, match=fault):
        make_spec(given)


@pytest.mark.parametrize("text", [None, "a = [", "a = 1\na = 2", b"\xff"])
def test_unreadable_files(tmp_path: Path, text: str | bytes | None) -> None:
    """Absent, no TOML, no text."""
    file = tmp_path / "sweep.toml"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SpecError, match=r"does not exist|is not TOML|cannot be read"):
        make_spec({}, file)


def test_documented() -> None:
    """The guide has every key of a file."""
    import seu_bench

    text = (Path(seu_bench.__file__).parent.parent / "docs" / "reference" / "sweeps.md").read_text(encoding="utf-8")
    assert [key for key in SweepSpec.model_fields if f"`{key}`" not in text] == []


def test_last_sweep_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for again as it was, whatever the working folder; only what had failed is left alone this time."""
    monkeypatch.chdir(tmp_path)
    asked: dict[str, Any] = {
        "strategy": "seu,naive", "benchmark": "split_digits,own.toml", "seeds": "0-2", "data_root": "data",
        "options": {"epochs": [1, 2], "sizes": [[1, 2], [3]]}, "feature_cache": "2K", "log": "tensorboard",
        "results": "out", "retry_failed": True,
    }  # fmt: skip
    spec = make_spec(asked)
    keep_spec(spec)
    kept = kept_spec(tmp_path / "out")
    assert kept.benchmark == ("split_digits", str(tmp_path / "own.toml"))
    assert (kept.results, kept.data_root, kept.retry_failed) == (tmp_path / "out", tmp_path / "data", False)
    places = {"benchmark": spec.benchmark, "results": spec.results, "data_root": spec.data_root, "retry_failed": True}
    assert kept.model_copy(update=places).model_dump() == spec.model_dump()


def test_attaching_to_nothing(command: Command, tmp_path: Path) -> None:
    """Refused: no sweep was begun there, what is kept of it is damaged, or more was asked for."""
    none = command("sweep", "--attach", "--results", tmp_path)
    assert (none.status, "no sweep was begun with this results folder" in none.err) == (2, True)
    (tmp_path / "sweep.json").write_text('{"strategy": 3}')
    damaged = command("sweep", "--attach", "--results", tmp_path)
    assert (damaged.status, "what was asked of the last sweep cannot be read" in damaged.err) == (2, True)
    more = command("sweep", "--attach", "--strategy", "naive", "--seeds", "0-1")
    assert (more.status, "takes nothing but --results, and not: strategy, seeds" in more.err) == (2, True)


def test_options_of_the_executor_by_name(command: Command, tmp_path: Path) -> None:
    """They are options of the executor as any other; one that it has not, or that is given twice, is refused."""
    asked = ("sweep", "--strategy", "naive", "--protocol", "smoke", "--results", tmp_path, "--dry-run")
    unknown = command(*asked, "--partition", "debug")
    assert (unknown.status, "'partition' is not an option" in unknown.err) == (2, True)
    twice = command(*asked, "--gpus", 1, "-o", "executor.gpus=2")
    assert (twice.status, "option 'executor.gpus' is given twice" in twice.err) == (2, True)


#: An executor that refuses everything and says what it was given. The flag ``--device`` is the command's own.
FLAGGED = """
from typing import Annotated

from seu_bench import hookimpl
from seu_bench.config.options import Options
from seu_bench.config.run import CommandLine
from seu_bench.errors import RequestError


class FlaggedOptions(Options):
    queue: Annotated[str, CommandLine(("--queue",), "NAME")] = "short"
    device: Annotated[str, CommandLine(("--device",))] = "none"


class Flagged:
    summary = "refuses"
    options = FlaggedOptions
    detaches = False

    def build(self, options, device):
        raise RequestError(f"{options.queue}, {options.device}, {device}")


@hookimpl
def register_executors(register):
    register("flagged", Flagged())
"""


def test_flags_of_an_executor(command: Command, install: Install, tmp_path: Path) -> None:
    """They come with it; the command's own come first, and ``-o`` reaches every option."""
    unknown = command("sweep", "--queue", "long")
    assert (unknown.status, "--queue" in unknown.err) == (2, True)
    install("a-stranger", {"flagged": "flagged"}, {"flagged": FLAGGED})
    asked = ("sweep", "--strategy", "naive", "--protocol", "smoke", "--results", tmp_path, "--executor", "flagged")
    flag = command(*asked, "--queue", "long", "--device", "cpu")
    assert (flag.status, "long, none, cpu" in flag.err) == (2, True)
    option = command(*asked, "-o", "executor.queue=3", "-o", "executor.device=x")
    assert (option.status, "queue: Input should be a valid string" in option.err) == (2, True)
    assert "--queue NAME" in command("sweep", "--help").out
