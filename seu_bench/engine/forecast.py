"""Forecast of a run's duration, from its cost and its progress."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seu_bench.training.stage import StageProgress


class Forecast:
    """Seconds left: image passes left over the speed measured.

    Args:
        planned: image passes of the whole run.
        clock: seconds from any start.
        before: image passes of the attempt that this one resumes; irrelevant to the speed here.
    """

    def __init__(self, planned: int, clock: Callable[[], float] = time.monotonic, before: int = 0) -> None:
        self.planned = planned
        self.passed = self._finished = self._before = before
        self._clock = clock
        self._began = clock()
        self._is_first = before > 0

    def see(self, progress: StageProgress) -> None:
        """Take note of a report."""
        if self._is_first:  # of the stage that was interrupted
            self._before += progress.image_passes
            self._is_first = False
        self.passed = self._finished + progress.image_passes
        if progress.done:
            self._finished = self.passed

    @property
    def measured(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._began

    @property
    def left(self) -> float | None:
        """Seconds left; ``None`` before anything was measured."""
        passed_here = self.passed - self._before
        if not passed_here or self.measured <= 0:
            return None
        return max(0, self.planned - self.passed) / (passed_here / self.measured)
