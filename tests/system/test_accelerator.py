"""The script for an accelerator, on a processor and with a schedule of seconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import accelerator
from seu_bench.errors import ExitStatus

TRIAL = ("--device", "cpu", "--benchmark", "split_digits", "--protocol", "smoke")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs, however little time is left."""
    chosen = ("naive", "naive, 2 tasks, bf16")
    monkeypatch.setattr(accelerator, "RUNS", {name: accelerator.RUNS[name] for name in chosen})
    monkeypatch.setattr(accelerator, "LEAST", float("-inf"))


@pytest.mark.long
def test_calls_resume_one_another_until_all_runs_are_finished(tmp_path: Path) -> None:
    given = (*TRIAL, "--results", str(tmp_path))
    assert accelerator.main([*given, "--seconds", "0"]) == ExitStatus.OUT_OF_TIME
    first = json.loads((tmp_path / "accelerator.json").read_text())["runs"]
    assert [run["state"] for run in first] == ["interrupted", None]
    assert accelerator.main([*given, "--seconds", "1000000"]) == ExitStatus.DONE
    runs = json.loads((tmp_path / "accelerator.json").read_text())["runs"]
    assert [(run["state"], run["tasks"]) for run in runs] == [("finished", 5), ("finished", 2)]
    assert runs[0]["run_id"] == first[0]["run_id"]
    for run in runs:
        assert run["images"] > 0
        assert 0 < run["share"] < 1
        assert run["peak"] is None  # no accelerator held anything
    told = (tmp_path / "accelerator.md").read_text()
    assert "| naive, 2 tasks, bf16 | finished | 2 |" in told


def test_what_was_not_begun_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "LEAST", 1.0)
    assert accelerator.main([*TRIAL, "--results", str(tmp_path), "--seconds", "0"]) == ExitStatus.OUT_OF_TIME
    assert "| naive | not begun | 0 |  |  |" in (tmp_path / "accelerator.md").read_text()


def test_all_runs_resolve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the protocol that they are for, without data."""
    monkeypatch.undo()
    common = {"results": tmp_path, "device": "cuda", "benchmark": "split_cifar100", "protocol": "paper"}
    asked = accelerator.requests(common)
    assert set(accelerator.records(asked).values()) == {None}
    assert asked["seu, inherit/inherit"].options == {"width": 0.5}
    assert asked["seu, inherit/inherit, 2 tasks, compiled"].results == tmp_path / "compiled"
