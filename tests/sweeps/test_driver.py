"""The driver of a sweep, with an executor that tells what a test has written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support.commands import Install
from support.sweeping import MODULES, POINTS, tiny_plan

from seu_bench import hookimpl
from seu_bench.config.options import Options
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import Interruption, PluginError
from seu_bench.plugin.executors import Ended, Event, Job, Started
from seu_bench.plugin.registry import Registry, load_plugins
from seu_bench.sweeps.driver import GuardedExecutor, JobResult, SweepReport, SweepResult, run_sweep
from seu_bench.sweeps.plan import plan_sweep
from seu_bench.sweeps.spec import make_spec


@pytest.fixture(autouse=True)
def stranger(install: Install) -> None:
    """The strategy of a stranger."""
    install("a-stranger", POINTS, MODULES)


class Scripted:
    """An executor that tells what a test has written; it makes nothing."""

    slots: int | None = 2
    summary = "scripted"
    detaches = False

    def __init__(self, *told: Any) -> None:
        self.options = Options
        self.told = list(told)
        self.called: list[str] = []

    def build(self, options: Any, device: str, threads: int) -> Scripted:
        return self

    def submit(self, jobs: Sequence[Job]) -> None:
        self.called.append("submit")

    def wait(self, seconds: float) -> Sequence[Event]:
        told = self.told.pop(0)
        if isinstance(told, Exception):
            raise told
        return [told] if not isinstance(told, list) else told

    def cancel(self) -> None:
        self.called.append("cancel")

    def close(self) -> None:
        self.called.append("close")


class Scripting:
    """A plugin that offers it."""

    def __init__(self, executor: Scripted) -> None:
        self.executor = executor

    @hookimpl
    def register_executors(self, register: Any) -> None:
        register("scripted", self.executor)


def driven(executor: Scripted, results: Path, stop: StopRequest | None = None) -> tuple[SweepResult, list[str]]:
    """A sweep of two jobs with an executor of a stranger, and what it reported of its jobs' ends."""
    manager = load_plugins()
    manager.register(Scripting(executor), name="scripting")
    registry = Registry(manager)
    spec = make_spec(
        {"strategy": "tiny", "seeds": "0-1", "protocol": "smoke", "results": results, "executor": "scripted"}
    )
    plan = plan_sweep(registry, spec)
    told: list[str] = []

    def notify(report: SweepReport) -> None:
        if isinstance(report, JobResult):
            told.append(report.status)

    found = run_sweep(plan, GuardedExecutor(registry, spec), notify, stop)
    return found, told


def ids(results: Path) -> list[str]:
    return [job.run_id for job in tiny_plan(results, "0-1").jobs]


def test_what_executors_tell(tmp_path: Path) -> None:
    """Events of strangers' jobs and after an end are nothing; what has no finished record is not finished."""
    first, second = ids(tmp_path)
    executor = Scripted(
        [Started(run_id=first), Started(run_id="a stranger's"), Ended(run_id="a stranger's", status="finished")],
        [],
        [Ended(run_id=first, status="lost", message="killed"), Ended(run_id=first, status="finished")],
        Ended(run_id=second, status="finished"),
    )
    found, told = driven(executor, tmp_path)
    assert [(job.status, job.message[:51]) for job in found.jobs] == [
        ("lost", "killed"),
        ("failed", "it was reported as finished, but its record is miss"),
    ]
    assert (told, executor.called, found.exit_code) == (["lost", "failed"], ["submit", "close"], 1)


def test_stopped_at_once(tmp_path: Path) -> None:
    """A second signal: the executor is closed, and what had begun counts as interrupted."""
    first, _ = ids(tmp_path)
    stop = StopRequest(grace=60)

    class Impatient(Scripted):
        def wait(self, seconds: float) -> Sequence[Event]:
            if not self.told:
                raise Interruption("interrupted by SIGINT", 130)
            return super().wait(seconds)

    executor = Impatient(Started(run_id=first))
    found, _ = driven(executor, tmp_path, stop=stop)
    assert ([job.status for job in found.jobs], found.exit_code) == (["interrupted", "pending"], 130)
    assert executor.called == ["submit", "close"]


def test_broken_executor(tmp_path: Path) -> None:
    """It is named, and closed."""
    executor = Scripted(LookupError("no queue"))
    with pytest.raises(
        PluginError, match="executor 'scripted' of package scripting failed in wait: LookupError: no queue"
    ):
        driven(executor, tmp_path)
    assert executor.called == ["submit", "close"]


def test_told_to_stop(tmp_path: Path) -> None:
    """Jobs are told once; what they say of their end is still heard; the status is the signal's."""
    first, second = ids(tmp_path)
    stop = StopRequest()
    stop.ask(Interruption("interrupted by SIGTERM", 143))
    executor = Scripted(
        Started(run_id=first),
        Ended(run_id=second, status="interrupted"),
        Ended(run_id=first, status="interrupted", message="stopped"),
    )
    found, told = driven(executor, tmp_path, stop=stop)
    assert [job.status for job in found.jobs] == ["interrupted", "pending"]
    assert (executor.called, found.exit_code, told) == (
        ["submit", "cancel", "close"],
        143,
        ["pending", "interrupted"],
    )


def test_executor_whose_jobs_go_on(tmp_path: Path) -> None:
    """One that outlives its driver is not cancelled: the same command attaches to what runs."""
    stop = StopRequest()
    stop.ask(Interruption("interrupted by SIGINT", 130))
    executor = Scripted()
    executor.detaches = True
    found, _ = driven(executor, tmp_path, stop=stop)
    assert (executor.called, found.exit_code) == (["submit", "close"], 130)
