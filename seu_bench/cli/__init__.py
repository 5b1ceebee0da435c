"""The command line: parse, call, print; a module for each command, named like it.

``main`` has the group of commands and exit statuses, ``options``, ``verbosity``, ``completion``, ``progress`` and
``tables`` what commands share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .progress import ProgressDisplay, SweepDisplay

__all__ = ["ProgressDisplay", "SweepDisplay"]

__getattr__, __dir__ = attach(__name__)
