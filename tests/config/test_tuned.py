"""Tuned files: written and read without loss; a change of any value is noticed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.tuning import tuned_file

from seu_bench.config.toml_file import toml_text
from seu_bench.config.tuned import TunedFile, tuned_path
from seu_bench.errors import RequestError, SpecError


def test_written_and_read(tmp_path: Path) -> None:
    """Nothing is lost, whatever the values are; a matrix stays on one line."""
    options = {"a": 1, "b": 1.0, "c": [1, "x"], "searcher.d": 'quote " and \x7f ü 𝄞', "e": True}
    file = tuned_file(options=options)
    file.write(tmp_path / "new" / "file.toml")
    assert TunedFile.read(tmp_path / "new" / "file.toml") == file
    text = (tmp_path / "new" / "file.toml").read_text(encoding="utf-8")
    assert "accuracy_matrix = [[1.0], [0.5, 0.75]]\n" in text
    assert "accuracy_matrix = [[], [0.25, 1.0]]\n" in text
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file.toml"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ewc_lambda = 10.0", "ewc_lambda = 20.0"),
        ("score = 0.625", "score = 0.626"),
        ("[0.25, 1.0]", "[0.25, 0.5]"),
        ('method = "first-tasks:2"', 'method = "first-tasks:3"'),
    ],
)
def test_changes_are_noticed(old: str, new: str, tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    tuned_file().write(path)
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(SpecError, match="was changed after it was written"):
        TunedFile.read(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "tuned file does not exist"), ("a = ", "is not TOML"), ("a = 1", "the tuned file has")],
)
def test_no_tuned_file(text: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=message):
        TunedFile.read(path)


def test_refused(tmp_path: Path) -> None:
    """Seeds of the tuning, and options of benchmarks."""
    file = tuned_file()
    file.refuse_seed(0)
    with pytest.raises(RequestError, match="seed 101 was tuned on"):
        file.refuse_seed(101)
    with pytest.raises(ValueError, match="changes no benchmark"):
        tuned_file(options={"benchmark.stream.validation": 0.2})


def test_paths(tmp_path: Path) -> None:
    """An id is looked up in the results folder, anything else is a path."""
    assert tuned_path(tmp_path, "pmnist-quick-ewc") == tmp_path / "tuned" / "pmnist-quick-ewc.toml"
    assert tuned_path(tmp_path, "a/b.toml") == Path("a/b.toml")
    assert tuned_path(tmp_path, "b.toml") == Path("b.toml")


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"a": {"b": {"c.d": [1, 2.5, -3e-9, True, "x"]}}, "e f": "g"},
        {"list": [{"a": [[1], []], "b": {"c": 1}, "d": [{"e": 1}]}, {"a": []}], "last": 0},
    ],
)
def test_toml(document: dict[str, Any]) -> None:
    assert tomllib.loads(toml_text(document)) == document
