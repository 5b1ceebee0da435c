"""Checkpoints of a run: when they are written, where it stops, and how it is resumed from the newest."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

from seu_bench.engine.checkpoint import CheckpointFolder, Position, read_checkpoint
from seu_bench.engine.recorder import RunRecorder
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import CheckpointError, ResultsError
from seu_bench.training.state import not_finite
from seu_bench.training.strategy import StagedStrategy

#: Share of a run's time that checkpoints may take, unless the user says how often to write them.
SHARE: Final = 0.02
#: What writing is expected to take where it was not measured yet: seconds at least, and bytes per second.
_LEAST_SECONDS: Final = 0.02
_SPEED: Final = 1e8


def is_resumable(strategy: Any) -> bool:
    """Whether checkpoints can be made of a strategy."""
    return isinstance(strategy, StagedStrategy) and strategy.resumable


@dataclass
class CheckpointManager:
    """Writes checkpoints at the points where a run can be resumed from its state alone, and stops the run there.

    Attributes:
        folder: where they go.
        state: the run's whole state now.
        size: bytes that the model's part of it will have, by which it is judged before it is made.
        every: seconds between two checkpoints at least; ``None``: as often as takes no more than :data:`SHARE` of the
            run's time.
        stop: whether the run is to stop.
        notice: called with what the user should know.
        written, seconds, bytes: number of checkpoints, seconds that they took, and size of the last one.
    """

    folder: CheckpointFolder
    state: Callable[[], Mapping[str, Any]]
    size: Callable[[], int]
    _: KW_ONLY
    every: float | None
    stop: StopRequest
    notice: Callable[[str], None]
    written: int = field(default=0, init=False)
    seconds: float = field(default=0.0, init=False)
    bytes: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._began = self._last = self._point = time.monotonic()
        self._noticed: set[str] = set()
        self._last_seconds = 0.0
        self._last_size = 0

    def resume(self, strategy: Any, build: Callable[[], Any], recorder: RunRecorder, device: str) -> Any:
        """Return the strategy at the position of the newest usable checkpoint, and set the record to it.

        The strategy is untrained, and returned as it is where there is no checkpoint; ``build`` makes another one after
        a checkpoint that could not be loaded.
        """
        known = self.folder.newest_first() if is_resumable(strategy) else []
        for path in known:
            try:
                state = read_checkpoint(path, self.folder.run_id, device)
                recorder.check_state(state.get("record"))  # first: a strategy of other code may take the state or not
                strategy.load_state_dict(state.get("strategy"))
                recorder.load_state_dict(state.get("record"))
                learned, evaluated = strategy.learned, recorder.evaluated
                if not strategy.whole_stream and learned not in (evaluated, evaluated + 1):
                    raise CheckpointError(
                        f"a checkpoint cannot be used: {learned} tasks are learned, {evaluated} evaluated"
                    )
            except CheckpointError as error:
                self.notice(f"{error.what} ({path})")
                self.folder.set_aside(path)
                strategy = build()
                continue
            self.notice(f"resuming from {self.folder.position()}")
            if recorder.record.earlier_environments or recorder.record.earlier_code:
                self.notice("parts of the run were made elsewhere or by other versions or code; the record says which")
            return strategy
        if known:
            self.notice("no checkpoint can be used: the run starts over")
        return strategy

    def maybe_save(self, position: Position, *, resumable: bool = True) -> None:
        """Save if due, and stop the run by an Interruption if asked to; called between two epochs, or two tasks.

        Where a run could not be resumed, nothing is saved.
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
        return last + max(0, self.size() - self._last_size) / _SPEED

    def _write(self, position: Position) -> None:
        began = time.monotonic()
        state = self.state()
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
        self._last_size = self.size()
        self.seconds += self._last_seconds

    def _notice_once(self, message: str) -> None:
        kind = message.partition(":")[0].partition(" at ")[0]
        if kind not in self._noticed:
            self._noticed.add(kind)
            self.notice(message)
