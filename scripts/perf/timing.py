"""Seconds of several ways to do one thing, side by side.

Machines are shared and noisy, so each round measures all ways one after another, every second round the other way
round, and ratios are taken within a round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

Work: TypeAlias = Callable[[], object]
Rounds: TypeAlias = Mapping[str, Sequence[float]]


def seconds(work: Work) -> float:
    """Wall time of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def interleaved(ways: Mapping[str, Work], rounds: int) -> dict[str, list[float]]:
    """Seconds of each way in each round, after one round that is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for round_ in range(rounds + 1):
        for name in list(ways) if round_ % 2 else reversed(list(ways)):
            spent = seconds(ways[name])
            if round_:
                taken[name].append(spent)
    return taken


def ratio(taken: Rounds, numerator: str, denominator: str) -> float:
    """The median over rounds of one way's seconds divided by another's."""
    return statistics.median(a / b for a, b in zip(taken[numerator], taken[denominator], strict=True))


def median(taken: Rounds, name: str) -> float:
    """The median over rounds of a way's seconds."""
    return statistics.median(taken[name])
