"""How often gradients are clipped: the share of a stage's optimiser steps whose gradient exceeded the limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor


class ClippedSteps:
    """Count of the steps of a stage, and of those whose gradient was clipped.

    The latter is a number on the device until somebody asks for it: no step waits for an accelerator.

    Example:
        ::

            counted = ClippedSteps()
            with counted.counting():
                clip_gradients(parameters, 5.0)
            print(counted.share)
    """

    def __init__(self) -> None:
        self._steps: int | None = 0
        self._clipped: Tensor | int = 0

    @property
    def share(self) -> float | None:
        """Clipped steps of all, in [0, 1]; ``None`` where nothing clips, or not all steps were counted."""
        return int(self._clipped) / self._steps if self._steps else None

    def add(self, clipped: Tensor | bool) -> None:
        """Count a step; ``clipped`` is whether its gradient was, as a tensor where it is not on the CPU."""
        if self._steps is not None:
            self._steps += 1
            self._clipped = self._clipped + clipped

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the steps that are clipped within a ``with`` block, but not those inside an inner one."""
        token = _COUNTER.set(self)
        try:
            yield
        finally:
            _COUNTER.reset(token)

    def state_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {"steps": self._steps, "clipped": int(self._clipped)}

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Restore what :meth:`state_dict` returned; ``None``, of a version that did not count: no share is known."""
        self._steps, self._clipped = (None, 0) if state is None else (state["steps"], state["clipped"])


#: What the code that runs now counts into.
_COUNTER: ContextVar[ClippedSteps | None] = ContextVar("clipped_steps", default=None)


def count_step(clipped: Tensor | bool) -> None:
    """Count a step for the stage that runs now, if any does."""
    counter = _COUNTER.get()
    if counter is not None:
        counter.add(clipped)
