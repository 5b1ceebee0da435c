"""Shared by tests of sweeps: jobs of a stranger's strategy that can fail, and the example of an executor."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.commands import TINY
from support.tiny import registry

import seu_bench
from seu_bench.plugin.executors import Job
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Environment, Record
from seu_bench.sweeps.plan import PlannedJob, SweepPlan, plan_sweep
from seu_bench.sweeps.spec import make_spec

ROOT = Path(seu_bench.__file__).resolve().parent.parent

#: Metrics that say what a job's process was given; and a gate: in the folder ``GATE`` a file ``seed0`` keeps the run
#: of that seed from going on after its first task. A run of seed 99 ends its process there.
GIVEN = """
import os
import sys
import time
from pathlib import Path

from seu_bench import hookimpl


class Given:
    def __init__(self, variable):
        self.summary = variable
        self.variable = variable

    def __call__(self, record):
        value = os.environ.get(self.variable)
        return float(value) if value else None


@hookimpl
def register_metrics(register):
    register("threads", Given("OMP_NUM_THREADS"))
    register("gpu", Given("CUDA_VISIBLE_DEVICES"))
    register("process", Process())


@hookimpl
def task_learned(record, task):
    gate = Path(os.environ.get("GATE", "/nonexistent"), f"seed{record.seed}")
    while task == 0 and gate.exists():
        time.sleep(0.05)
    if record.seed == 99:
        print("first words", "last words", "", sep=chr(10), file=sys.stderr)
        sys.stderr.flush()
        os._exit(3)


class Process:
    summary = "the process that made it"

    def __call__(self, record):
        print("what a plugin prints is no event")
        return os.getpid()
"""


def in_turn() -> str:
    """The example of an executor, which runs jobs in this process."""
    return (ROOT / "examples" / "in_turn.py").read_text(encoding="utf-8")


#: Entry points and modules of a package that has all of it.
POINTS = {"tiny": "tiny_plugin", "given": "given_plugin", "in_turn": "in_turn"}
MODULES = {"tiny_plugin": TINY, "given_plugin": GIVEN, "in_turn": in_turn()}

#: Jobs that take a fraction of a second, of which every second one fails, in the second task.
FAILING = ("--strategy", "tiny", "-o", "fault=none,diverge", "-o", "epochs=1")


NOWHERE = Path("/nonexistent/results")


def plan(results: Path = NOWHERE, **asked: Any) -> SweepPlan:
    return plan_sweep(registry(), make_spec({"protocol": "smoke", "results": results, "device": "cpu", **asked}))


def record_of(job: PlannedJob, **more: Any) -> Record:
    """A record of that job, as if it had been made."""
    spec = job.configuration.at(job.seed).spec
    known = {
        "run_id": job.run_id, "status": "finished", "strategy": spec.strategy, "searcher": spec.searcher,
        "creator": spec.creator, "benchmark": spec.benchmark.name, "benchmark_version": 1, "seed": job.seed,
        "protocol": spec.protocol_name, "task_names": ("a",), "environment": Environment(device="cpu (x86_64)"),
    }  # fmt: skip
    return Record(**(known | more))


def tiny_plan(results: Path, seeds: str, **asked: Any) -> SweepPlan:
    """The sweep of the stranger's strategy over these seeds."""
    spec = make_spec({"strategy": "tiny", "seeds": seeds, "protocol": "smoke", "results": results, **asked})
    return plan_sweep(Registry(), spec)


def tiny_jobs(results: Path, seeds: str, **asked: Any) -> list[Job]:
    """Its pending jobs, as an executor is given them."""
    plan = tiny_plan(results, seeds, **asked)
    return [plan.to_job(job) for job in plan.pending]


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    """Whether it holds before so many seconds are over; returns as soon as it does."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.05)
    return False
