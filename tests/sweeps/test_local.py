"""Jobs in processes of this machine: what each is given, what becomes of those that are stopped, or whose sweep is."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from support.sweeping import tiny_jobs

from seu_bench.engine.run_folder import find_state
from seu_bench.plugin.executors import Ended, Event, Started
from seu_bench.results.record import read_record
from seu_bench.sweeps.local import LocalExecutor, LocalFactory, LocalOptions, visible_gpus, with_share
from seu_bench.utils.hardware import free_host_memory, usable_cores

pytestmark = [pytest.mark.usefixtures("gate"), pytest.mark.long]


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
    [("", 2, ["0", "1"]), ("3, 5", 2, ["3", "5"]), ("GPU-a,GPU-b", 1, ["GPU-a"]), ("", 0, []), ("-1", 0, [])],
)
def test_gpus(named: str, count: int, gpus: list[str]) -> None:
    """Those that this process may use, by the names that it was given them."""
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": named} if named else {}, count) == gpus


def test_places() -> None:
    """Cores divided by threads, at least one; or as many as were asked for."""

    def slots(threads: int = 1, **options: int) -> int | None:
        return LocalFactory().build(LocalOptions(**options), "cpu", threads).slots

    assert slots() == usable_cores()
    assert (slots(usable_cores()), slots(10**6), slots(10**6, jobs=7)) == (1, 1, 7)


def test_memory_is_shared_out(tmp_path: Path) -> None:
    """Jobs that run beside each other do not each take half of what is free; what the user says stays."""
    (job,) = tiny_jobs(tmp_path, "0")
    assert with_share(job, 1) == job
    share = with_share(job, 4).request.feature_cache
    assert share is not None
    assert 0 < share < free_host_memory() / 4
    mine = job.model_copy(update={"request": job.request.model_copy(update={"feature_cache": 5})})
    assert with_share(mine, 4) == mine
