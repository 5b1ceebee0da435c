"""Sweeps on a real Ray that this machine starts: lost workers, a lost driver, and what cannot be used."""

from __future__ import annotations

import os
import signal
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.commands import Command, Install
from support.engines import TINY, finished, maker, run_ids, same_as_local, stands_at_the_gate, stranger, sweep
from support.sweeping import tiny_jobs, within

from seu_bench.engine.environment import installed_versions

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")]

ON_RAY = ("--executor", "ray")


@pytest.fixture(autouse=True)
def _stranger(install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stranger(install, monkeypatch, tmp_path)


def test_worker_that_is_killed(command: Command, tmp_path: Path) -> None:
    """Twelve jobs, one of whose workers is killed in the middle of it: all records are those that are made here."""
    results, local = tmp_path / "ray", tmp_path / "local"
    first = run_ids(results, "0")[0]
    (tmp_path / "seed0").touch()
    with sweep(results, "0-11", *ON_RAY) as process:
        assert within(300, lambda: stands_at_the_gate(results, first) or process.poll() is not None)
        worker = maker(results, first)
        assert worker not in (None, process.pid), process.communicate()
        os.kill(int(worker or 0), signal.SIGKILL)
        (tmp_path / "seed0").unlink()
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert out.rstrip().endswith("12 finished")
    assert command("sweep", *TINY, "--seeds", "0-11", "--executor", "in_turn", "--results", local).status == 0
    assert same_as_local(results, local) == []
    assert not list(results.glob(".sweep-*"))


def test_driver_that_is_killed(tmp_path: Path) -> None:
    """Finished jobs are not run again; the others resume."""
    results = tmp_path / "ray"
    last = run_ids(results, "3")[0]
    (tmp_path / "seed3").touch()
    with sweep(results, "0-3", *ON_RAY) as process:
        assert within(300, lambda: len(finished(results)) == 3 and stands_at_the_gate(results, last))
        worker = maker(results, last)
        process.kill()
        process.communicate()
    before = finished(results)
    assert len(before) == 3
    assert within(60, lambda: maker(results, last) is None), f"{worker} outlives its driver"
    (tmp_path / "seed3").unlink()
    with sweep(results, "0-3", *ON_RAY) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert "3 finished, 1 interrupted (will be resumed), 1 pending" in out
    assert before.items() <= finished(results).items()
    assert len(finished(results)) == 4


@pytest.mark.parametrize(
    ("asked", "message", "remedy"),
    [
        ("address=127.0.0.1:9", "nobody answers at 127.0.0.1:9", "ray start --head"),
        ("address=nonsense", "nobody answers at nonsense", "HOST:PORT"),
        ("address=auto", "Ray cannot be used", "ray start --head"),
        ("cpus=1000", "no machine of this Ray has room for a job of 1000 cores", "executor.cpus=N"),
        ("gpus=8", "no machine of this Ray has room", "executor.gpus=N"),
    ],
)
def test_refused(tmp_path: Path, asked: str, message: str, remedy: str) -> None:
    """Before anything is written, with what to do."""
    with sweep(tmp_path / "results", "0", *ON_RAY, "-o", f"executor.{asked}") as process:
        _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert message in err and remedy in err and "Traceback" not in err
    assert not (tmp_path / "results").exists()


def test_workers_that_differ(tmp_path: Path) -> None:
    """Other versions, or a results folder that is not the driver's: the job is not made there."""
    from seu_bench_ray.executor import find_fault

    (job,) = tiny_jobs(tmp_path, "0")
    mark, versions = tmp_path / "mark", installed_versions()
    mark.touch()
    assert find_fault(job, versions, mark) is None
    other = find_fault(job, versions | {"torch": "0.0"}, mark)
    assert "has other versions than the sweep's own process: torch" in str(other)
    mark.unlink()
    assert "is not shared with" in str(find_fault(job, versions, mark))
