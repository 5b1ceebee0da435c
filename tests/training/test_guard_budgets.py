"""Budgets of plugins' stages are counted: images and epochs."""

from __future__ import annotations

from typing import Any

import pytest
from support.guarded import NAMED, Plain, guarded
from support.tiny import all_threads, one_thread

from seu_bench.errors import RunError

setup_module, teardown_module = one_thread, all_threads


@pytest.mark.parametrize("place", ["epoch", "result"])
@pytest.mark.parametrize("watched", [True, False])
def test_budget_is_kept_image_by_image(place: str, watched: bool) -> None:
    """A loop without an end is stopped at the first image beyond the budget, whether or not anybody watches."""
    counted: list[int] = []

    def for_ever(stage: Any) -> Any:
        while True:
            counted.append(1)
            stage.passed(1)

    class Endless(Plain):
        result = for_ever if place == "result" else Plain.result

    stage = guarded(lambda: Endless(3, None if place == "result" else for_ever), passes=50)
    with pytest.raises(RunError, match=NAMED + "it passed 51 images forward, and had announced 50 at most") as caught:
        stage.run((lambda progress: None) if watched else None)
    assert caught.value.remedy is not None and "estimate_passes" in caught.value.remedy
    assert len(counted) == (39 if place == "result" else 47)


def test_budget_that_is_swallowed() -> None:
    """A plugin that catches the error meets it at the next image, and at the end of the epoch at the latest."""
    raised: list[str] = []

    def swallow(stage: Any) -> None:
        for _ in range(3):
            try:
                stage.passed(20)
            except RunError as error:
                raised.append(error.what)

    with pytest.raises(RunError, match=NAMED + "it passed 64 images forward, and had announced 10 at most"):
        guarded(lambda: Plain(1, swallow), passes=10).run()
    assert len(raised) == 3


def test_budget_after_resuming() -> None:
    """Images before an interruption count."""
    first = guarded(Plain, passes=9)
    first.advance()
    second = guarded(Plain, passes=9)
    second.load_state_dict(first.state_dict())
    second.advance()
    with pytest.raises(RunError, match="it passed 12 images forward, and had announced 9 at most"):
        second.advance()


def test_epochs_are_a_budget() -> None:
    """A stage may neither raise its number of epochs nor go back in it."""

    def longer(stage: Any) -> None:
        stage.epochs += 1

    def rewind(stage: Any) -> None:
        stage.epoch = -1

    with pytest.raises(RunError, match=NAMED + "it does not end: its 3 epochs became 4 while it ran"):
        guarded(lambda: Plain(act=longer)).run()
    with pytest.raises(RunError, match=NAMED + "it does not end: it stands at epoch 0 after 1 epochs"):
        guarded(lambda: Plain(act=rewind)).run()
