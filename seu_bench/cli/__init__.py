"""The command line: parse, call, print; a module for each command, named like it.

- ``main``: the group of commands, core's and plugins', and how errors become exit statuses
- ``options``: options that commands share
- ``verbosity``: ``--quiet`` and ``--verbose``
- ``completion``: what shells offer when the tab key is pressed
- ``progress``: bars and lines of a run and of a sweep
- ``tables``: tables for the terminal
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .progress import ProgressDisplay, SweepDisplay

__all__ = ["ProgressDisplay", "SweepDisplay"]

__getattr__, __dir__ = attach(__name__)
