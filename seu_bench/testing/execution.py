"""Contract of executors, which run the jobs of sweeps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Final

import pytest

from seu_bench.config.common_options import BackboneOptions
from seu_bench.config.options import build_options
from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.errors import RequestError
from seu_bench.plugin.executors import Ended, Event, Executor, Job
from seu_bench.results.record import read_record, record_path
from seu_bench.testing.trial import Contract, installed, require

#: Two tasks of a few images of a data set that needs no files, so that any process can make the run.
_BENCHMARK: Final = """
name = "few_digits"
default_protocol = "instant"

[stream]
kind = "classes"
dataset = "digits"
classes_per_task = 5

[protocols.instant]
ranked = false
images = { train = 16, valid = 8, test = 16 }
training = { epochs = 1, batch_size = 16 }
"""
#: Calls of ``wait`` for a second each, after which jobs of this size count as stuck.
_PATIENCE: Final = 300


class ExecutorContract(Contract):
    """Tests that every executor must pass whose jobs run on this machine.

    Attributes:
        executor: registered name.
        options: its own options, without ``executor.``.

    Example::

        class TestMine(ExecutorContract):
            executor = "mine"
    """

    executor: ClassVar[str]

    @pytest.fixture
    def jobs(self, tmp_path: Path) -> list[Job]:
        """Two runs that take a second each, one per seed."""
        registry = installed(self.plugins)
        # The strategy of ours or of anybody with the fewest options: its runs need none.
        plain = {
            name: len(entry.factory.options.model_fields)
            for name, entry in registry.strategies.items()
            if issubclass(entry.factory.options, BackboneOptions) and not entry.factory.components
        }
        (tmp_path / "few_digits.toml").write_text(_BENCHMARK, encoding="utf-8")
        request = Request(
            strategy=min(plain, key=lambda name: (plain[name], name)),
            benchmark=str(tmp_path / "few_digits.toml"),
            results=tmp_path / "results",
            device="cpu",
        )
        requests = [request.model_copy(update={"seed": seed}) for seed in (0, 1)]
        return [Job(run_id=resolve(registry, each).spec.run_id, request=each) for each in requests]

    @contextlib.contextmanager
    def built(self) -> Iterator[Executor]:
        """Build the executor and close it at the end; skip the test if it cannot be had or runs jobs elsewhere."""
        factory = installed(self.plugins).executors.find(self.executor).factory
        options = build_options(factory.options, f"executor {self.executor!r}", self.options)
        if factory.detaches:
            pytest.skip("its jobs outlive this process, and may run where this test's folder is not: try it by a sweep")
        try:
            executor = factory.build(options, "cpu", 1)
        except RequestError as error:
            pytest.skip(f"it cannot be had here: {error.what}")
        with contextlib.closing(executor):
            yield executor

    def test_runs_every_job_once(self, jobs: list[Job], tmp_path: Path) -> None:
        """Each job ends once, as finished, with its record; nothing comes of it afterwards."""
        with self.built() as executor:
            executor.submit(jobs)
            events = _events(executor, len(jobs))
        for job in jobs:
            own = [event for event in events if event.run_id == job.run_id]
            ends = [event for event in own if isinstance(event, Ended)]
            require(len(ends) == 1 and own[-1] is ends[0], f"of a job came {[event.kind for event in own]}")
            require(ends[0].status == "finished", f"a job ended as {ends[0].status}: {ends[0].message}")
            record = read_record(record_path(tmp_path / "results", job.run_id))
            require(record.status == "finished", f"the record of a finished job is {record.status}")
        strangers = [event.run_id for event in events if event.run_id not in {job.run_id for job in jobs}]
        require(not strangers, f"events of jobs that were not submitted: {strangers}")

    def test_can_be_cancelled(self, jobs: list[Job]) -> None:
        """After ``cancel`` every job still ends, finished or interrupted."""
        with self.built() as executor:
            executor.submit(jobs)
            executor.cancel()
            ends = [event for event in _events(executor, len(jobs)) if isinstance(event, Ended)]
        found = {end.run_id: end.status for end in ends}
        require(
            set(found) == {job.run_id for job in jobs} and set(found.values()) <= {"finished", "interrupted"},
            f"two jobs that were cancelled ended as {found}",
        )


def _events(executor: Executor, jobs: int) -> list[Event]:
    """Every event until so many jobs have ended, and those of one more call."""
    events: list[Event] = []
    for _ in range(_PATIENCE):
        events += executor.wait(1.0)
        if sum(isinstance(event, Ended) for event in events) >= jobs:
            return [*events, *executor.wait(0.0)]
    pytest.fail(f"{jobs} jobs of a second each have not ended after {_PATIENCE} calls of wait(1.0)")
