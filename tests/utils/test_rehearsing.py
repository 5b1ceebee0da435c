"""Loops of a rehearsal: which turns are taken, and what is booked for those that are left out."""

from __future__ import annotations

from seu_bench.utils.rehearsing import abridge, meter_loops, rehearsal_mode


class Work:
    """Work that counts what it costs."""

    def __init__(self) -> None:
        self.done = self.flops = 0
        self.memory = 0

    def read(self) -> tuple[int, ...]:
        return self.done, self.flops

    def add(self, further: tuple[int, ...]) -> None:
        self.done += further[0]
        self.flops += further[1]


def test_equal_turns_are_booked() -> None:
    """Once two turns of one size cost the same, the last stands for its neighbours of that size, and no others."""
    work, taken = Work(), []
    with rehearsal_mode(lambda: None) as rehearsal, meter_loops(work.read, work.add):
        for turn in abridge([4] * 9 + [1]):
            taken.append(turn)
            work.done, work.flops, rehearsal.trained = work.done + 1, work.flops + 10, rehearsal.trained + 2
    assert taken == [0, 1, 9]
    assert (work.done, work.flops, rehearsal.trained) == (10, 100, 20)


def test_turns_that_change_are_taken() -> None:
    """While costs, or what they hang on, still change, every turn is taken."""
    work, taken = Work(), []
    with rehearsal_mode(lambda: work.memory), meter_loops(work.read, work.add):
        for turn in abridge([4] * 12):
            taken.append(turn)
            work.done += 1 + min(turn, 3)  # the same from the fourth on
            work.memory = min(turn, 6)  # full after the seventh
    assert taken == [0, 1, 2, 3, 4, 5, 6, 7]
    assert work.done == 1 + 2 + 3 + 9 * 4


def test_loops_within_loops() -> None:
    """What a loop within booked is part of the turn around it."""
    work = Work()
    with rehearsal_mode(lambda: None), meter_loops(work.read, work.add):
        for _ in abridge([1] * 50):
            for _ in abridge([64] * 100 + [3]):
                work.done += 1
    assert work.done == 50 * 101


def test_only_speed() -> None:
    """With a limit a loop ends when the stage was measured for so long; turns without shorter ones are noted."""
    work = Work()
    with rehearsal_mode(lambda: None) as rehearsal, meter_loops(work.read, work.add):
        rehearsal.limit, rehearsal.stage = 0.0, "training"
        for _ in abridge([1] * 3):
            for turn in abridge([1] * 3):
                work.done += 1 + turn
    assert [(stage, costs) for stage, _, costs in rehearsal.turns] == [("training", (1, 0))]
