"""Processes of the executor ``local``: how their ends are told, who outlives whom, and which code they run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from multiprocessing import forkserver
from pathlib import Path

import psutil
import pytest
from support.commands import Command
from support.sweeping import tiny_jobs, within

import seu_bench
from seu_bench.engine.run_folder import find_state
from seu_bench.plugin.executors import Ended, Event, Job, Started
from seu_bench.results.record import Record, read_record
from seu_bench.results.record_metrics import without_times
from seu_bench.sweeps.local import METHOD, LocalExecutor, LocalFactory, LocalOptions, run_job, visible_gpus, with_share
from seu_bench.utils.hardware import free_host_memory, usable_cores

pytestmark = pytest.mark.usefixtures("gate")
forked = pytest.mark.skipif(METHOD != "forkserver", reason="processes are not forked here")

#: A script without a guard for ``__main__`` that makes jobs, and changes the checkout after each.
SCRIPT = """
import sys
from pathlib import Path
from seu_bench.plugin.executors import Ended, Job
from seu_bench.sweeps.local import LocalExecutor

begun, module, *jobs = sys.argv[1:]
with open(begun, "a") as file:
    file.write("once")
executor = LocalExecutor(jobs=1)
executor.submit([Job.model_validate_json(job) for job in jobs])
pending = len(jobs)
while pending:
    ended = sum(isinstance(event, Ended) for event in executor.wait(1.0))
    if ended:
        with open(module, "a") as file:
            file.write("# changed")
    pending -= ended
executor.close()
"""


def events_until_ended(executor: LocalExecutor, count: int) -> list[Event]:
    """Everything that the executor tells until so many jobs have ended."""
    events: list[Event] = []
    while sum(isinstance(event, Ended) for event in events) < count:
        events += executor.wait(1.0)
    return events


def endings(executor: LocalExecutor, jobs: list[Job]) -> list[tuple[str, str]]:
    """How the jobs ended, in their order; the executor is closed."""
    try:
        executor.submit(jobs)
        ended = {event.run_id: event for event in events_until_ended(executor, len(jobs)) if isinstance(event, Ended)}
    finally:
        executor.close()
    return [(ended[job.run_id].status, ended[job.run_id].message) for job in jobs]


@pytest.mark.long
def test_process_that_exits(tmp_path: Path) -> None:
    """Lost, with its status and the last line that it printed; the next one is made as if nothing was."""
    last, next_one = *tiny_jobs(tmp_path, "99"), *tiny_jobs(tmp_path, "1")
    assert endings(LocalExecutor(jobs=1), [last, next_one]) == [
        ("lost", "its process ended with status 3 without a word: last words"),
        ("finished", ""),
    ]


@pytest.mark.long
def test_spawned(tmp_path: Path) -> None:
    """Where processes cannot be forked, each imports everything by itself; the rest is the same."""
    (job,) = tiny_jobs(tmp_path, "1", threads=2)
    assert endings(LocalExecutor(jobs=1, gpus=["4"], method="spawn"), [job]) == [("finished", "")]
    record = read_record(tmp_path / "runs" / job.run_id)
    assert (record.metrics["threads"], record.environment.threads, record.metrics["gpu"]) == (2, 2, 4)


@forked
@pytest.mark.long
def test_server_that_is_killed(gate: Path, tmp_path: Path) -> None:
    """Nobody waits for ever: what it has begun finishes, and the next job has a new server."""
    jobs = tiny_jobs(tmp_path, "0-1")
    executor = LocalExecutor(jobs=1)
    try:
        executor.submit(jobs)
        server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
        os.kill(server, signal.SIGKILL)
        gate.unlink()
        ended = [event for event in events_until_ended(executor, 2) if isinstance(event, Ended)]
    finally:
        executor.close()
    assert [(event.run_id, event.status) for event in ended] == [(job.run_id, "finished") for job in jobs]


@pytest.mark.long
def test_script_in_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Records name the code that was imported, even where the checkout is changed between jobs.

    The caller's script is not run again in them.
    """
    checkout = tmp_path / "checkout"
    shutil.copytree(
        Path(seu_bench.__file__).resolve().parent, checkout / "seu_bench", ignore=shutil.ignore_patterns("__pycache__")
    )
    git = ("git", "-C", str(checkout), "-c", "user.name=A", "-c", "user.email=a@example.org")
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "as imported")):
        subprocess.run((*git, *arguments), check=True)
    asked = subprocess.run((*git, "rev-parse", "HEAD"), check=True, capture_output=True, text=True)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(checkout), os.environ["PYTHONPATH"]]))
    monkeypatch.delenv("SEU_BENCH_REVISION", raising=False)
    jobs = tiny_jobs(tmp_path, "1-3")
    (tmp_path / "script.py").write_text(SCRIPT)
    module = checkout / "seu_bench" / "engine" / "runner.py"
    arguments = [str(tmp_path / "begun"), str(module), *(job.model_dump_json() for job in jobs)]
    subprocess.run([sys.executable, str(tmp_path / "script.py"), *arguments], check=True)
    records = [read_record(tmp_path / "runs" / job.run_id) for job in jobs]
    assert [record.environment.git_revision for record in records] == [asked.stdout.strip()] * 3
    assert (tmp_path / "begun").read_text() == "once"


@pytest.mark.long
def test_stopped(command: Command, gate: Path, tmp_path: Path) -> None:
    """Killed, its jobs notice and no process stays; told to stop, they are listened to; the same command finishes."""
    what = ["--strategy", "tiny", "--protocol", "smoke", "--checkpoint-every", "0", "--device", "cpu"]
    asked = ["sweep", *what, "--seeds", "0-1", "--results", str(tmp_path / "a")]
    here = [*asked, "--jobs", "1"]
    first, second = [tmp_path / "a" / "runs" / job.run_id for job in tiny_jobs(tmp_path / "a", "0-1")]

    def status() -> str | None:
        return read_record(first).status if (first / "record.json").exists() else None

    def stands_at_the_gate() -> bool:
        return status() == "running" and len(read_record(first).params_total) == 1

    arguments = [sys.executable, "-m", "seu_bench.cli.main", *here]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert within(120, stands_at_the_gate)
        began = psutil.Process(process.pid).children(recursive=True)
        process.kill()
    assert within(30, lambda: status() == "interrupted")
    assert within(30, lambda: not (first / "lock").exists())
    assert began and psutil.wait_procs(began, timeout=60)[1] == []  # the job's process, and the one that forked it
    # The same command in this process, to which a thread sends the signal.
    interrupting = threading.Thread(
        target=lambda: within(120, stands_at_the_gate) and os.kill(os.getpid(), signal.SIGINT)
    )
    interrupting.start()
    answer = command(*here)
    interrupting.join()
    assert answer.status == 130, answer.err
    assert "interrupted by SIGINT: running jobs write their checkpoints; once more stops at once\n" in answer.err
    assert answer.err.endswith("interrupted by SIGINT; the same command resumes the sweep\n")
    assert answer.out.endswith("1 interrupted, 1 not started\n")
    assert "2 jobs: 0 finished, 1 interrupted (will be resumed), 2 pending\n" in answer.out
    assert (status(), second.exists()) == ("interrupted", False)
    gate.unlink()
    done = command(*asked, "--executor", "in_turn")
    assert done.status == 0, done.err
    assert command("run", *what, "--seed", 0, "--results", tmp_path / "b").status == 0
    assert same(read_record(first)) == same(read_record(tmp_path / "b" / "runs" / first.name))


def same(record: Record) -> dict[str, object]:
    """Parts that must be equal; a run that was killed and resumed elsewhere is told by the process alone."""
    document = without_times(record)
    del document["metrics"]["process"], document["earlier_environments"]
    return document


@pytest.mark.long
def test_processes(tmp_path: Path) -> None:
    """One for each job, two at once, with its threads and its GPU; one that is killed takes no other with it."""
    (long,) = tiny_jobs(tmp_path, "0", threads=3)
    short = tiny_jobs(tmp_path, "1-2", threads=3)
    executor = LocalExecutor(jobs=2, gpus=["5", "7"])
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
            state = find_state(tmp_path, long.run_id)
            if not killed and state is not None and state.holder is not None:
                os.kill(state.holder.pid, signal.SIGKILL)
                killed = True
    finally:
        executor.close()
    assert endings[long.run_id].status == "lost"
    assert endings[long.run_id].message == "its process was killed by SIGKILL; perhaps memory was short"
    records = [read_record(tmp_path / "runs" / job.run_id) for job in short]
    assert [endings[job.run_id].status for job in short] == [record.status for record in records]
    assert {record.status for record in records} == {"finished"}
    assert {(record.metrics["threads"], record.environment.threads) for record in records} == {(3, 3)}
    places = {event.run_id: event.where for event in told if isinstance(event, Started)}
    assert {places[job.run_id] for job in (long, short[0])} == {"cuda 5", "cuda 7"}
    for job, record in zip(short, records, strict=True):
        assert places[job.run_id] == f"cuda {record.metrics['gpu']:.0f}"
    assert len({record.metrics["process"] for record in records} | {os.getpid()}) == 3
    for run_id in endings:
        assert [type(event) for event in told if event.run_id == run_id] == [Started, Ended]
    # The next sweep goes on with the one that was killed.
    assert [job.run_id for job in tiny_jobs(tmp_path, "0-2", threads=3)] == [long.run_id]


@pytest.mark.parametrize(
    ("named", "count", "gpus"),
    [("", 2, ["0", "1"]), ("3, 5", 2, ["3", "5"]), ("GPU-a,GPU-b", 1, ["GPU-a"]), ("-1", 0, [])],
)
def test_gpus(named: str, count: int, gpus: list[str]) -> None:
    """Those that this process may use, by the names that it was given them."""
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": named} if named else {}, count) == gpus


def test_places_and_memory(tmp_path: Path) -> None:
    """Cores divided by threads, at least one, or as many as were asked for; memory is shared out among them."""

    def slots(threads: int, **options: int) -> int | None:
        return LocalFactory().build(LocalOptions(**options), "cpu", threads).slots

    assert (slots(1), slots(10**6), slots(10**6, jobs=7)) == (usable_cores(), 1, 7)
    (job,) = tiny_jobs(tmp_path, "0")
    assert with_share(job, 1) == job
    assert 0 < (with_share(job, 4).request.feature_cache or 0) < free_host_memory() / 4
    mine = job.model_copy(update={"request": job.request.model_copy(update={"feature_cache": 5})})
    assert with_share(mine, 4) == mine


def test_another_run_elsewhere(tmp_path: Path) -> None:
    """A job that resolves to another run id is not made: its driver would wait for a record that never comes."""
    (job,) = tiny_jobs(tmp_path, "0")
    ended = run_job(job.model_copy(update={"run_id": "split_digits-smoke-tiny-seed0-0000000000"}))
    assert ended.status == "failed" and f"here this run is another one, {job.run_id}" in ended.message
    assert not (tmp_path / "runs").exists()
