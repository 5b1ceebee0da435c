"""Threads are part of a run: neither the machine nor the caller decides them, and other threads make another run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from seu_bench import hookimpl
from seu_bench.config.run import Request
from seu_bench.engine.launcher import launch
from seu_bench.errors import RunError
from seu_bench.results.record import Record
from seu_bench.training.stage import StageProgress
from seu_bench.utils.hardware import usable_cores

pytestmark = pytest.mark.usefixtures("tiny")

SMALL: dict[str, Any] = {"strategy": "tiny", "protocol": "smoke", "limit": 8, "device": "cpu", "checkpoint_every": 0.0}
MAIN = (sys.executable, "-m", "seu_bench.cli.main")


@pytest.fixture(autouse=True)
def caller() -> Iterator[int]:
    """Whoever calls computes with three threads, and goes on to."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield 3
    assert torch.get_num_threads() == 3
    torch.set_num_threads(before)


class Watcher:
    """Notes with how many threads the run computes."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.notices: list[str] = []

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        """Note."""
        self.threads.add(torch.get_num_threads())

    @hookimpl
    def run_notice(self, message: str) -> None:
        """Keep."""
        self.notices.append(message)


def made(results: Path, watcher: Watcher | None = None, **more: Any) -> tuple[Record, Path]:
    """A run of a fraction of a second and its record's file."""
    outcome = launch(Request(results=results, **SMALL | more), watcher=lambda _: watcher or Watcher())
    return outcome.record, outcome.path


def test_one_by_default(tmp_path: Path) -> None:
    watcher = Watcher()
    record, path = made(tmp_path, watcher)
    assert watcher.threads == {1}
    assert (record.threads, record.environment.threads, "threads" in record.run_id) == (1, 1, False)
    assert json.loads(path.read_text())["threads"] == 1


def test_others_are_another_run(tmp_path: Path) -> None:
    one, _ = made(tmp_path)
    watcher = Watcher()
    other, path = made(tmp_path, watcher, threads=2)
    assert watcher.threads == {2}
    assert (other.threads, other.environment.threads, json.loads(path.read_text())["threads"]) == (2, 2, 2)
    assert other.run_id.startswith("split_digits-smoke-tiny-limit8-threads2-seed0-")
    assert other.run_id.rpartition("-")[2] != one.run_id.rpartition("-")[2]


@pytest.mark.parametrize("fault", ["build", "raise", "interrupt"])
def test_caller_has_its_own_again(tmp_path: Path, fault: str) -> None:
    """Whatever ends the run; the fixture looks."""
    with pytest.raises((RunError, KeyboardInterrupt)):
        made(tmp_path, options={"fault": fault})


def test_more_than_cores(tmp_path: Path) -> None:
    """Possible, for a result is the same on any machine; it is said that this is slow."""
    watcher, cores = Watcher(), usable_cores()
    made(tmp_path, watcher, threads=cores + 1)
    assert watcher.notices == [f"this computes with {cores + 1} threads on {cores} cores, which is slower"]


# ---------------------------------------------------------------------- executors
