"""Forecast of a run's duration, from its cost and its progress; and where a run was not as forecast."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from seu_bench.training.interfaces import Cost
    from seu_bench.training.stage import StageProgress

#: Share by which a forecast may be wrong.
TOLERANCE: Final = 0.05


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


def differences(cost: Cost, stages: Iterable[Any]) -> list[str]:
    """Tell where a run took more than was forecast, or less than was forecast exactly, by stage and task.

    Args:
        cost: that was forecast.
        stages: of the record, with ``name``, ``task``, ``image_passes`` and ``flops``.

    Returns:
        A line for each stage of a task whose image passes or operations are off by more than :data:`TOLERANCE`.
    """
    planned: defaultdict[tuple[int, str], list[float]] = defaultdict(lambda: [0, 0, 0, 0])
    for stage in cost.stages:
        exact = stage.flops is not None and stage.flops == stage.flops_min
        for place, value in enumerate((stage.image_passes, stage.flops or 0, stage.image_passes if exact else 0)):
            planned[stage.task, stage.name][place] += value
        planned[stage.task, stage.name][3] += stage.flops_min or 0
    counted: defaultdict[tuple[int, str], list[float]] = defaultdict(lambda: [0, 0])
    for stage in stages:
        for place, value in enumerate((stage.image_passes, stage.flops)):
            counted[stage.task, stage.name][place] += value or 0
    found = []
    for task, name in sorted({*planned, *counted}):
        most_passes, most_flops, least_passes, least_flops = planned[task, name]
        passes, flops = counted[task, name]
        kinds = [("image passes", passes, least_passes, most_passes)]
        if most_flops and flops:
            kinds.append(("operations", flops, least_flops, most_flops))
        for kind, took, least, most in kinds:
            if name != "evaluation" and not least * (1 - TOLERANCE) <= took <= most * (1 + TOLERANCE):
                told = f"{most:,.0f}" if least == most else f"{least:,.0f} to {most:,.0f}"
                found.append(f"stage {name!r} of task {task}: {took:,.0f} {kind}, and {told} were forecast")
    return found
