"""The command line: parse, call, print.

- ``main``: the group of commands, core's and plugins', and how errors become exit statuses
- ``run``, ``sweep``, ``cost``: make runs, or estimate what they take
- ``runs``, ``show``, ``compare``, ``leaderboard``, ``report``: read results
- ``verify``, ``export``: saved models
- ``data``, ``list``, ``check_plugin``: what is installed
- ``output``: how much is said; summaries
- ``completion``: what shells offer when the tab key is pressed
- ``options``: options that commands share
- ``tables``: tables for the terminal
- ``progress``, ``sweep_display``: progress of a run and of a sweep
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .progress import ProgressDisplay
    from .sweep_display import SweepDisplay

__all__ = ["ProgressDisplay", "SweepDisplay"]

__getattr__, __dir__ = attach(__name__)
