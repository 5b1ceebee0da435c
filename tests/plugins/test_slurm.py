"""Sweeps on a real Slurm of this machine: cancelled jobs, jobs whose time is over, drivers that leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands import Command, Install
from support.engines import TINY, finished, maker, run_ids, same_as_local, stands_at_the_gate, stranger, sweep
from support.slurm_cluster import missing, slurm
from support.sweeping import tiny_jobs, within

from seu_bench.plugin.executors import Ended, Noticed, Started

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(missing()), reason=f"not there: {', '.join(missing())}"),
]

ON_SLURM = ("--executor", "slurm", "-o", "executor.partition=debug")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("slurm")
    for place in (folder, *folder.parents):
        if place.is_relative_to(tmp_path_factory.getbasetemp().parent):
            place.chmod(0o755)  # munge is another user
    with slurm(folder) as variables:
        yield variables


@pytest.fixture(autouse=True)
def _stranger(
    cluster: dict[str, str], install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[None]:
    stranger(install, monkeypatch, tmp_path)
    for name, value in cluster.items():
        monkeypatch.setenv(name, value)
    yield
    subprocess.run(["scancel", "--user=root"], env={**os.environ, **cluster}, check=False)


def test_cancelled_and_out_of_time(command: Command, tmp_path: Path) -> None:
    """Four jobs in an array, one cancelled, one whose time is over: all records are those that are made here."""
    from submitit.core.utils import DelayedSubmission

    from seu_bench_slurm.executor import WARNING

    results, local = tmp_path / "slurm", tmp_path / "local"
    cancelled, late = run_ids(results, "0-1")
    for seed in (0, 1):
        (tmp_path / f"seed{seed}").touch()
    with sweep(results, "0-3", *ON_SLURM, "-o", "executor.time=30", "-o", "executor.spare=90") as process:
        held = lambda: all(stands_at_the_gate(results, run_id) for run_id in (cancelled, late))  # noqa: E731
        assert within(300, lambda: held() or process.poll() is not None)
        assert held(), process.communicate()
        tasks = [DelayedSubmission.load(path).function for path in (results / "slurm" / "jobs").glob("*_submitted.pkl")]
        assert [task.seconds for task in tasks] == [30 * 60 - 90] * 4  # each stops by itself before its time is over
        process_id = maker(results, late)
        assert process_id is not None
        os.kill(process_id, WARNING)  # as Slurm does where it did not
        (tmp_path / "seed1").unlink()
        job = (results / "slurm" / "notes" / cancelled).read_text().strip()
        subprocess.run(["scancel", job], check=True)
        assert within(60, lambda: job not in queue())
        (tmp_path / "seed0").unlink()
        out, err = process.communicate(timeout=400)
    assert process.returncode == 0, err
    assert out.rstrip().endswith("4 finished")
    assert f"its Slurm job {job} is gone; the job is submitted again" in err
    assert command("sweep", *TINY, "--seeds", "0-3", "--executor", "in_turn", "--results", local).status == 0
    assert same_as_local(results, local) == []


def test_driver_that_leaves(tmp_path: Path) -> None:
    """Jobs go on; the same command takes them up, makes nothing twice and submits nothing again."""
    results = tmp_path / "slurm"
    run_id = run_ids(results, "0")[0]
    (tmp_path / "seed0").touch()
    with sweep(results, "0-1", *ON_SLURM) as process:
        assert within(300, lambda: stands_at_the_gate(results, run_id) and len(finished(results)) == 1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command resumes the sweep, whose jobs run on" in err
    assert out.rstrip().endswith("1 running, 1 finished") or out.rstrip().endswith("1 finished, 1 running")
    assert within(60, lambda: len(queue()) == 1)  # the other one was just ending
    jobs, before = queue(), finished(results)
    (tmp_path / "seed0").unlink()
    with sweep(results, "0-1", *ON_SLURM) as process:
        out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert "1 finished, 1 running elsewhere (checked last), 1 pending" in out or "2 finished, 0 pending" in out
    assert before.items() <= finished(results).items() and len(finished(results)) == 2
    assert queue() <= jobs


def queue() -> set[str]:
    """Ids of the jobs that wait or run."""
    asked = ["squeue", "--noheader", "--array", "--format=%i"]
    return set(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split())


def test_partition_that_does_not_exist(tmp_path: Path) -> None:
    """What Slurm says of it, and what to do."""
    with sweep(tmp_path / "results", "0", "--executor", "slurm", "-o", "executor.partition=debgu") as process:
        _, err = process.communicate(timeout=120)
    assert process.returncode == 2 and "Traceback" not in err
    assert "Slurm refuses the jobs: " in err and "invalid partition" in err and "executor.KEY=VALUE" in err


def test_slurm_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No cluster to ask, or none of Slurm's commands: refused, with what to do."""
    (tmp_path / "slurm.conf").write_text("nonsense\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    with sweep(tmp_path / "results", "0", *ON_SLURM) as process:
        _, err = process.communicate(timeout=120)
    assert (process.returncode, "Slurm cannot be used: sinfo says" in err) == (2, True)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    with sweep(tmp_path / "results", "0", *ON_SLURM) as process:
        _, err = process.communicate(timeout=120)
    assert (process.returncode, "there is no command sinfo" in err) == (2, True)
    assert "sinfo must work there" in err


def test_jobs_that_are_lost_for_good(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Submitted again as often as was asked for; then it is said how the last one ended."""
    from seu_bench_slurm.executor import SlurmExecutor
    from seu_bench_slurm.options import SlurmOptions

    (job,) = tiny_jobs(tmp_path / "results", "0")
    (tmp_path / "seed0").touch()
    monkeypatch.setattr("seu_bench_slurm.executor._LATE", 1.0)  # no file system is slow here
    executor = SlurmExecutor(SlurmOptions(retries=1, time=5), "cpu", 1)
    executor.submit([job])
    told = []

    def lost() -> bool:
        told.extend(executor.wait(1.0))
        if any(isinstance(event, Started) for event in told):
            subprocess.run(["scancel", "--signal=KILL", "--user=root"], check=True)
        return isinstance(told[-1], Ended) if told else False

    assert within(200, lost)
    executor.close()
    assert (told[-1].status, "lost 2 times" in told[-1].message) == ("lost", True)
    assert sum(isinstance(event, Noticed) and "submitted again" in event.message for event in told) == 1
