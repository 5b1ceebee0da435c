"""Options of a schedule replace what they name; limits only take images away."""

from __future__ import annotations

from seu_bench.config.protocol import ImageLimits, Schedule, ScheduleOptions


def test_schedule_options_replace_what_they_name() -> None:
    """Fields that are not given stay as the protocol says."""
    schedule = Schedule(epochs=7, learning_rate=0.5, clip_norm=None)
    assert ScheduleOptions(epochs=3).applied_to(schedule) == Schedule(epochs=3, learning_rate=0.5, clip_norm=None)
    assert ScheduleOptions().applied_to(schedule) == schedule


def test_limit_lowers_and_never_raises() -> None:
    """``--limit`` takes images away from a protocol, and gives it none."""
    assert ImageLimits(train=4, valid=None, test=100).lowered_to(10) == ImageLimits(train=4, valid=10, test=10)
    assert ImageLimits(train=4).lowered_to(None) == ImageLimits(train=4)
