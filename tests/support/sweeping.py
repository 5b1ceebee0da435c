"""What the tests of sweeps share: a stranger's strategy that can fail, and the example of an executor."""

from __future__ import annotations

from pathlib import Path

from support.commands import TINY

import seu_bench

ROOT = Path(seu_bench.__file__).parent.parent

#: Metrics that say what a job's process was given; and a gate: in the folder ``GATE`` a file ``seed0`` keeps the run
#: of that seed from going on after its first task.
GIVEN = """
import os
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
    register("card", Given("CUDA_VISIBLE_DEVICES"))
    register("process", Process())


@hookimpl
def task_learned(record, task):
    gate = Path(os.environ.get("GATE", "/nonexistent"), f"seed{record.seed}")
    while task == 0 and gate.exists():
        time.sleep(0.05)


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
