"""Loops that a rehearsal, which finds out what a method will cost, abridges.

Whatever loops over batches, epochs or steps goes through :func:`abridge`: once two turns of a rehearsal cost the same,
the last stands for those that are left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

#: Costs so far, by kind.
Costs = tuple[int, ...]


@dataclass
class Rehearsal:
    """A rehearsal that is on.

    Attributes:
        state: returns what costs may hang on, such as the sizes of memories.
        trained: images passed forward while gradients were recorded.
        read, add: return the costs so far of what loops, images and operations; book further ones.
        stage: name of what is rehearsed now.
        limit: seconds of a stage after which its loops end, where only speed is measured; ``None``: they do not.
        turns: stage, seconds and costs of every turn that was taken and has no shorter ones within.
    """

    state: Callable[[], Hashable]
    trained: int = 0
    read: Callable[[], Costs] | None = None
    add: Callable[[Costs], None] = lambda _: None
    stage: str = ""
    limit: float | None = None
    turns: list[tuple[str, float, Costs]] = field(default_factory=list)

    def is_over(self) -> bool:
        """Return whether the present stage was measured for long enough."""
        return self.limit is not None and sum(turn[1] for turn in self.turns if turn[0] == self.stage) > self.limit


_active: ContextVar[Rehearsal | None] = ContextVar("rehearsal", default=None)


def active_rehearsal() -> Rehearsal | None:
    """Return the rehearsal that is on; ``None``: none is."""
    return _active.get()


@contextmanager
def rehearsal_mode(state: Callable[[], Hashable]) -> Iterator[Rehearsal]:
    """Rehearse for the length of a ``with`` block; costs may hang on ``state``."""
    token = _active.set(found := Rehearsal(state))
    try:
        yield found
    finally:
        _active.reset(token)


@contextmanager
def meter_loops(read: Callable[[], Costs], add: Callable[[Costs], None]) -> Iterator[None]:
    """Have loops within a ``with`` block abridged by these costs, if a rehearsal is on."""
    rehearsal = _active.get()
    if rehearsal is None:
        yield
        return
    before = rehearsal.read, rehearsal.add
    rehearsal.read, rehearsal.add = read, add
    try:
        yield
    finally:
        rehearsal.read, rehearsal.add = before


def abridge(sizes: Sequence[int]) -> Iterator[int]:
    """Yield the numbers of a loop's turns: all of them, or in a rehearsal those that stand for all.

    Args:
        sizes: of each turn, e.g. images of a batch; neighbours of one size cost the same, once that is so.

    Example:
        ``for _ in abridge([1] * steps): take_a_step()``
    """
    rehearsal = _active.get()
    if rehearsal is None or rehearsal.read is None:
        yield from range(len(sizes))
        return
    read, add = rehearsal.read, rehearsal.add
    position, last = 0, None
    while position < len(sizes):
        before, trained = read(), rehearsal.trained
        began, turns = time.perf_counter(), len(rehearsal.turns)
        yield position
        costs = tuple(after - start for after, start in zip(read(), before, strict=True))
        trained = rehearsal.trained - trained
        if turns == len(rehearsal.turns):
            rehearsal.turns.append((rehearsal.stage, time.perf_counter() - began, costs))
        if rehearsal.is_over():
            return
        turn = sizes[position], costs, trained, rehearsal.state()
        position += 1
        if turn == last:
            left = 0
            while position < len(sizes) and sizes[position] == turn[0]:
                position, left = position + 1, left + 1
            add(tuple(left * cost for cost in costs))
            rehearsal.trained += left * trained
        last = turn
