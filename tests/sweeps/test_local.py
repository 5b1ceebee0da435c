"""Jobs in processes of this machine: what each is given, what becomes of those that are stopped, or whose sweep is."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.commands import Command, Install
from support.sweeping import MODULES, POINTS

import seu_bench
from seu_bench.engine.run_states import find_state
from seu_bench.plugin.executors import Ended, Event, Job, Noticed, Progressed, Started
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, read_record
from seu_bench.sweeps.file import make_spec
from seu_bench.sweeps.local import LocalExecutor, LocalFactory, LocalOptions, visible_cards, with_share
from seu_bench.sweeps.plan import plan_sweep
from seu_bench.sweeps.worker import run_job
from seu_bench.utils.hardware import free_host_memory, usable_cores


@pytest.fixture(autouse=True)
def gate(install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The stranger's package, found by processes that tests start, too; what keeps seed 0 from going on."""
    folder = install("a-stranger", POINTS, MODULES)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("GATE", str(tmp_path))
    (tmp_path / "seed0").touch()
    return tmp_path / "seed0"


def jobs(results: Path, seeds: str) -> list[Job]:
    spec = make_spec({"strategy": "tiny", "seeds": seeds, "protocol": "smoke", "results": results})
    plan = plan_sweep(Registry(), spec)
    return [plan.to_job(job) for job in plan.pending]


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.05)
    return False


def test_processes(tmp_path: Path) -> None:
    """One for each job, two at once, with its threads and its card; one that is killed takes no other with it."""
    (long,) = jobs(tmp_path, "0")
    short = jobs(tmp_path, "1-2")
    executor = LocalExecutor(jobs=2, threads=3, cards=["5", "7"])
    executor.submit([long, *short])
    told: list[Event] = []
    endings: dict[str, Ended] = {}
    killed = False
    try:
        while len(endings) < 3:
            for event in executor.wait(1.0):
                told.append(event)
                if isinstance(event, Ended):
                    endings[event.run_id] = event
                if isinstance(event, Progressed) and event.run_id == long.run_id and not killed:
                    state = find_state(tmp_path, long.run_id)
                    assert state is not None and state.holder is not None
                    os.kill(state.holder.pid, signal.SIGKILL)
                    killed = True
    finally:
        executor.close()
    assert endings[long.run_id].status == "lost"
    assert endings[long.run_id].message == "its process was killed by SIGKILL; perhaps memory was short"
    records = [read_record(tmp_path / "runs" / job.run_id) for job in short]
    assert [endings[job.run_id].status for job in short] == [record.status for record in records]
    assert {record.status for record in records} == {"finished"}
    assert {record.metrics["threads"] for record in records} == {3}
    places = {event.run_id: event.where for event in told if isinstance(event, Started)}
    assert {places[job.run_id] for job in (long, short[0])} == {"cuda 5", "cuda 7"}
    for job, record in zip(short, records, strict=True):
        assert places[job.run_id] == f"cuda {record.metrics['card']:.0f}"
    assert len({record.metrics["process"] for record in records} | {os.getpid()}) == 3
    for run_id in endings:
        kinds = [type(event) for event in told if event.run_id == run_id and not isinstance(event, Noticed)]
        assert (kinds[0], kinds[-1], kinds.count(Ended)) == (Started, Ended, 1)
        assert set(kinds[1:-1]) == {Progressed}
    last = [event for event in told if isinstance(event, Progressed) and event.run_id == short[0].run_id][-1]
    assert (last.task, last.tasks, last.stage, last.passed - last.planned) == (4, 5, "evaluation", 0)
    # The next sweep goes on with the one that was killed.
    assert [job.run_id for job in jobs(tmp_path, "0-2")] == [long.run_id]


@pytest.mark.long
def test_revision(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Records name the code that was imported, even where the checkout is changed between jobs."""
    checkout = tmp_path / "checkout"
    shutil.copytree(
        Path(seu_bench.__file__).parent, checkout / "seu_bench", ignore=shutil.ignore_patterns("__pycache__")
    )
    git = ("git", "-C", str(checkout), "-c", "user.name=A", "-c", "user.email=a@example.org")
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "as imported")):
        subprocess.run((*git, *arguments), check=True)
    asked = subprocess.run((*git, "rev-parse", "HEAD"), check=True, capture_output=True, text=True)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(checkout), os.environ["PYTHONPATH"]]))
    monkeypatch.delenv("SEU_BENCH_REVISION", raising=False)
    made = jobs(tmp_path, "1-2")
    executor = LocalExecutor(jobs=1, threads=1)
    executor.submit(made)
    left = len(made)
    try:
        while left:
            ended = sum(isinstance(event, Ended) for event in executor.wait(1.0))
            if ended:
                with (checkout / "seu_bench" / "engine" / "runner.py").open("a") as code:
                    code.write("# changed\n")
            left -= ended
    finally:
        executor.close()
    records = [read_record(tmp_path / "runs" / job.run_id) for job in made]
    assert [record.environment.git_revision for record in records] == [asked.stdout.strip()] * 2


@pytest.mark.long
def test_stopped(command: Command, gate: Path, tmp_path: Path) -> None:
    """Killed, a sweep's jobs notice and stop; told to stop, they are listened to; the same command finishes."""
    asked = [
        "--strategy",
        "tiny",
        "--seeds",
        "0-1",
        "--protocol",
        "smoke",
        "--checkpoint-every",
        "0",
        "--device",
        "cpu",
    ]
    arguments = [
        sys.executable,
        "-m",
        "seu_bench.cli.main",
        "sweep",
        *asked,
        "--jobs",
        "1",
        "--results",
        str(tmp_path / "a"),
    ]
    (first, second) = [tmp_path / "a" / "runs" / job.run_id for job in jobs(tmp_path / "a", "0-1")]

    def status() -> str | None:
        return read_record(first).status if (first / "record.json").exists() else None

    def stands_at_the_gate() -> bool:
        return status() == "running" and len(read_record(first).params_total) == 1

    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert within(120, stands_at_the_gate)
        process.kill()
    assert within(30, lambda: status() == "interrupted")
    assert within(30, lambda: not (first / "lock").exists())
    # The same command in this process, to which a thread sends the signal.
    interrupting = threading.Thread(
        target=lambda: within(120, stands_at_the_gate) and os.kill(os.getpid(), signal.SIGINT)
    )
    interrupting.start()
    answer = command(*arguments[3:])
    interrupting.join()
    assert answer.status == 130, answer.err
    assert "interrupted by SIGINT: jobs that run write their checkpoints; once more stops at once\n" in answer.err
    assert answer.err.endswith("interrupted by SIGINT; the same command goes on with the sweep\n")
    assert answer.out.endswith("1 interrupted, 1 not started\n")
    assert "2 jobs: 0 done, 1 interrupted (will go on), 2 pending\n" in answer.out
    assert (status(), second.exists()) == ("interrupted", False)
    gate.unlink()
    done = command("sweep", *asked, "--executor", "in_turn", "--results", tmp_path / "a")
    assert done.status == 0, done.err
    alone = command("run", *asked[:2], "--seed", 0, *asked[4:], "--results", tmp_path / "b")
    assert alone.status == 0
    assert same(read_record(first)) == same(read_record(tmp_path / "b" / "runs" / first.name))


def same(record: Record) -> dict[str, object]:
    """What must be equal; who was killed and goes on elsewhere is told by the process alone."""
    document = record.without_times()
    del document["metrics"]["process"], document["earlier_environments"]
    return document


def test_another_run_elsewhere(tmp_path: Path) -> None:
    """A job that resolves to another run id is not made: its driver would wait for a record that never comes."""
    (job,) = jobs(tmp_path, "0")
    told: list[Event] = []
    ended = run_job(replace(job, run_id="split_digits-smoke-tiny-seed0-0000000000"), told.append)
    assert (ended.status, told) == ("failed", [])
    assert f"here this job is another run, {job.run_id}" in ended.message
    assert not (tmp_path / "runs").exists()


def test_refused_job(tmp_path: Path) -> None:
    """What the run refuses is told as by ``run``, and so is a defect."""
    (job,) = jobs(tmp_path, "0")
    (tmp_path / "file").write_text("")
    ended = run_job(replace(job, execution=replace(job.execution, results=tmp_path / "file")), lambda event: None)
    assert (ended.status, "cannot write results" in ended.message) == ("failed", True)


@pytest.mark.parametrize(
    ("named", "count", "cards"),
    [("", 2, ["0", "1"]), ("3, 5", 2, ["3", "5"]), ("GPU-a,GPU-b", 1, ["GPU-a"]), ("", 0, []), ("-1", 0, [])],
)
def test_cards(named: str, count: int, cards: list[str]) -> None:
    """Those that this process may use, by the names that it was given them."""
    assert visible_cards({"CUDA_VISIBLE_DEVICES": named} if named else {}, count) == cards


def test_places() -> None:
    """Cores divided by threads, at least one; or as many as were asked for."""

    def slots(**options: int) -> int | None:
        return LocalFactory().build(LocalOptions(**options), "cpu").slots

    assert slots() == usable_cores()
    assert (slots(threads=usable_cores()), slots(threads=10**6), slots(jobs=7, threads=10**6)) == (1, 1, 7)


def test_memory_is_shared_out(tmp_path: Path) -> None:
    """Jobs that run beside each other do not each take half of what is free; what the user says stays."""
    (job,) = jobs(tmp_path, "0")
    assert with_share(job, 1) == job
    share = with_share(job, 4).execution.feature_cache
    assert share is not None
    assert 0 < share < free_host_memory() / 4
    mine = replace(job, execution=replace(job.execution, feature_cache=5))
    assert with_share(mine, 4) == mine


@pytest.mark.parametrize(
    ("text", "at_most"),
    [
        ("max 100000", 10**6),
        ("100000 100000\n", 1),
        ("50000 100000", 1),
        ("150000 100000", 2),
        ("x", 10**6),
        ("1 0", 10**6),
    ],
)
def test_cores_of_a_container(tmp_path: Path, text: str, at_most: int) -> None:
    """Its share of the machine, rounded up, where it has one."""
    (tmp_path / "cpu.max").write_text(text)
    whole = usable_cores(tmp_path / "none")
    assert usable_cores(tmp_path / "cpu.max") == min(whole, at_most)
