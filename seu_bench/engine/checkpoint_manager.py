"""When checkpoints are written, and where a run stops: asked after every epoch, task and evaluation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from seu_bench.engine.checkpoint import CheckpointFolder, Position
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import ResultsError
from seu_bench.training.state import not_finite

#: Share of a run's time that checkpoints may take, unless the user says how often to write them.
SHARE: Final = 0.02
#: What writing is expected to take where it was not measured yet: seconds at least, and bytes per second.
_LEAST_SECONDS: Final = 0.02
_SPEED: Final = 1e8


class CheckpointManager:
    """Writes checkpoints at the points where a run can be resumed from its state alone, and stops the run there.

    Args:
        folder: where they go.
        state: the run's whole state now.
        size: bytes that the model's part of it will have, by which it is judged before it is made.
        every: seconds between two checkpoints at least; ``None``: as often as takes no more than :data:`SHARE` of the
            run's time.
        stop: whether the run is to stop.
        notice: called with what the user should know.

    Attributes:
        written, seconds, bytes: number of checkpoints, seconds that they took, and size of the last one.
    """

    def __init__(
        self,
        folder: CheckpointFolder,
        state: Callable[[], Mapping[str, Any]],
        size: Callable[[], int],
        *,
        every: float | None,
        stop: StopRequest,
        notice: Callable[[str], None],
    ) -> None:
        self.folder = folder
        self.every = every
        self.stop = stop
        self.written = 0
        self.seconds = 0.0
        self.bytes: int | None = None
        self._state = state
        self._size = size
        self._notice = notice
        self._began = self._last = self._point = time.monotonic()
        self._noticed: set[str] = set()
        self._last_seconds = 0.0
        self._last_size = 0

    def maybe_save(self, position: Position, *, resumable: bool = True) -> None:
        """Save if due, and stop the run if asked to; called between two epochs, or between two tasks.

        Args:
            resumable: whether a run could be resumed from here; where not, it is only stopped if that was asked for.

        Raises:
            Interruption: the run is to stop; a checkpoint is saved where it can be.
        """
        now = time.monotonic()
        # What comes next is expected to take as long as what came last.
        ahead, self._point = (now - self._point if resumable else 0.0), now
        interruption = self.stop.due(ahead + self._expected() if resumable else 0.0)
        if resumable and (interruption is not None or self._is_due(now)):
            self._write(position)
        if interruption is not None:
            raise interruption

    def _is_due(self, now: float) -> bool:
        if self.every is not None:
            return now - self._last >= self.every
        return self.seconds + self._expected() <= SHARE * (now - self._began)

    def _expected(self) -> float:
        """Seconds that the next checkpoint is expected to take: as many as the last, and more where the model grew."""
        last = self._last_seconds if self.written else _LEAST_SECONDS
        return last + max(0, self._size() - self._last_size) / _SPEED

    def _write(self, position: Position) -> None:
        began = time.monotonic()
        state = self._state()
        if (name := not_finite(state)) is not None:
            # A run resumed from it could only fail again; the last one that is finite is worth more.
            self._notice_once(f"no checkpoint is written at {position}: {name} is not finite")
        else:
            try:
                self.bytes = self.folder.write(position, state)
                self.written += 1
            except ResultsError as error:
                # A run without is better than none; that the record cannot be written is noticed when it is.
                self._notice_once(
                    f"no checkpoint could be written, the run continues without: {error.what} ({error.where})"
                )
        self._last = time.monotonic()
        self._last_seconds = self._last - began
        self._last_size = self._size()
        self.seconds += self._last_seconds

    def _notice_once(self, message: str) -> None:
        kind = message.partition(":")[0].partition(" at ")[0]
        if kind not in self._noticed:
            self._noticed.add(kind)
            self._notice(message)
