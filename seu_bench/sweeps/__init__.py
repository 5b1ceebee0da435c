"""Sweeps: many runs, from a grid to records.

- ``spec``, ``tune_spec``: definitions of a sweep and of a tuning, from TOML files and options
- ``plan``: jobs of a sweep, their states, and how long they will take
- ``driver``: submits pending jobs to an executor and follows them
- ``tuning``: hyper-parameters chosen by sweeps
- ``local``: one job in this process; the executor ``local``, processes of this machine

What executors implement is in :mod:`seu_bench.plugin`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .driver import JobResult, SweepResult
    from .local import run_job, with_share
    from .spec import SweepSpec

__all__ = ["JobResult", "SweepResult", "SweepSpec", "run_job", "with_share"]

__getattr__, __dir__ = attach(__name__)
