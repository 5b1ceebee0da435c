"""Sweeps: many runs, from a grid to records.

- ``spec``: definition of a sweep, from TOML files and options; the last sweep of a results folder
- ``plan``: jobs of a sweep and their states
- ``planned``: the jobs of the last sweep or tuning, on disk for whoever watches
- ``estimate``: estimated time
- ``driver``: submits pending jobs to an executor and follows them
- ``worker``: runs one job, in whichever process
- ``local``: the executor ``local``, processes of this machine

What executors implement is in :mod:`seu_bench.plugin`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .driver import JobResult, SweepResult
    from .local import with_share
    from .spec import SweepSpec
    from .worker import run_job

__all__ = ["JobResult", "SweepResult", "SweepSpec", "run_job", "with_share"]

__getattr__, __dir__ = attach(__name__)
