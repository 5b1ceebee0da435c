"""Commands that are suggested work when they are pasted: they name the benchmark's file and the results folder."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from support.commands import Command

from seu_bench.results.record_files import read_records

OWN = """
name = "my_months"
version = 1
summary = "a user's own"
default_protocol = "mine"

[stream]
kind = "classes"
dataset = "digits"
classes_per_task = 5

[protocols.mine]
summary = "short"
training = { epochs = 1 }
"""


def test_a_file_that_is_gone_is_a_placeholder(command: Command, tmp_path: Path) -> None:
    """And so it is for a reader of a shared folder, whose command makes nothing there."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "my_months.toml").write_text(OWN)
    results = tmp_path / "results"
    given = ("--strategy", "naive", "--benchmark", tmp_path / "a" / "my_months.toml", "-o", "backbone=mlp")
    assert command("run", *given, "--results", results).status == 0
    (record,) = read_records(results)
    assert getattr(record, "benchmark_file", None) == "../a/my_months.toml"
    shutil.rmtree(tmp_path / "a")
    shown = command("leaderboard", "--results", results).out
    assert f"--benchmark FILE_OF_my_months.toml --protocol mine --seeds 0 --results {results}" in shown
    shared = tmp_path / "shared"
    about = ("--submitter", "jane", "--licence", "CC0-1.0", "--to", shared)
    assert command("submit", getattr(record, "run_id", ""), "--results", results, *about).status == 0
    assert "--protocol mine --seeds 0\n" in command("leaderboard", "--results", shared).out


@pytest.mark.long
def test_missing_references_of_a_benchmark_file(command: Command, tmp_path: Path) -> None:
    """What the command makes lies in the same leaderboard, and no reference is missing then."""
    folder = tmp_path / "my $(touch X)  data, 1"
    folder.mkdir()
    (folder / "my_months.toml").write_text(OWN)
    results, given = folder / "results", ("-o", "backbone=mlp", "-o", "benchmark.stream.validation=0.25")
    ran = command("run", "--strategy", "naive", "--benchmark", folder / "my_months.toml", *given, "--results", results)
    assert ran.status == 0, ran.err
    shown = command("leaderboard", "--results", results).out
    (line,) = re.findall("make them: (.+)", shown)
    program, *words = shlex.split(line)
    assert program == "seu-bench" and command(*words).status == 0
    assert len(list(results.glob("leaderboards/*.md"))) == 1
    assert "make them" not in command("leaderboard", "--results", results).out


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("run -o lr=0.1 --strategy naive", "did you mean 'learning_rate'?"),
        ("run --strategy naive --epochs 3", "-o epochs=3;"),
        ("run --strategy naive --lr=0.1", "-o learning_rate=VALUE;"),
        ("run -o backbone=resnet18", "--strategy NAME chooses another one"),
        ("run --benchmark cifar100", "did you mean 'split_cifar100'?"),
        ("leaderboard --sort accuracy --results results/published/evidence/canon", "did you mean 'acc'?"),
        ("run --strategy naive -o backbone=resnet50", "give backbone=timm:resnet50"),
        ("rum", "did you mean 'run'?"),
        ("list models", "did you mean 'strategies'?"),
        ("run --strategy naive,ewc", "seu-bench sweep --strategy naive,ewc"),
        ("run --strategy naive --seeds 0-2", "seu-bench sweep --seeds"),
    ],
)
def test_what_was_meant(command: Command, given: str, told: str) -> None:
    found = command(*given.split())
    assert (found.status, told in found.err) == (2, True), found.err


def test_names_are_matched_without_case_and_hyphen(command: Command, tmp_path: Path) -> None:
    """The record has the name that is registered, so that a run has one id."""
    asked = ["--strategy", "ER-ACE", "--benchmark", "Split-Digits", "--protocol", "smoke", "--results", tmp_path]
    assert command("run", *asked).status == 0 == command("sweep", *asked).status
    (record,) = read_records(tmp_path)
    assert (getattr(record, "strategy", ""), getattr(record, "benchmark", "")) == ("er_ace", "split_digits")
