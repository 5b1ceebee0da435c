"""Resuming a run from the newest checkpoint that can be used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from seu_bench.engine.checkpoint import CheckpointFolder, read_checkpoint
from seu_bench.engine.recorder import RunRecorder
from seu_bench.errors import CheckpointError
from seu_bench.training.strategy import StagedStrategy


def is_resumable(strategy: Any) -> bool:
    """Whether checkpoints can be made of a strategy."""
    return isinstance(strategy, StagedStrategy) and strategy.resumable


def resume(
    strategy: Any,
    build: Callable[[], Any],
    recorder: RunRecorder,
    checkpoints: CheckpointFolder,
    device: str,
    notice: Callable[[str], None],
) -> Any:
    """Return the strategy at the position of the newest usable checkpoint, and set the record to it.

    Args:
        strategy: untrained; returned as it is where there is no checkpoint.
        build: makes another one, after a checkpoint that could not be loaded.
        notice: called with what the user should know.

    Raises:
        ResultsError: the data are not those that the run began with.
    """
    known = checkpoints.newest_first() if is_resumable(strategy) else []
    for path in known:
        try:
            state = read_checkpoint(path, checkpoints.run_id, device)
            strategy.load_state_dict(state.get("strategy"))
            recorder.load_state_dict(state.get("record"))
            learned, evaluated = strategy.learned, recorder.evaluated
            if not strategy.whole_stream and learned not in (evaluated, evaluated + 1):
                raise CheckpointError(
                    f"a checkpoint cannot be used: {learned} tasks are learned, {evaluated} evaluated"
                )
        except CheckpointError as error:
            notice(f"{error.what} ({path})")
            checkpoints.set_aside(path)
            strategy = build()
            continue
        notice(f"resuming from {checkpoints.position()}")
        if recorder.record.earlier_environments:
            notice("parts of the run were made elsewhere or by other versions; the record says which")
        return strategy
    if known:
        notice("no checkpoint can be used: the run starts over")
    return strategy
