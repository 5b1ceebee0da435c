"""How a run is made, and what a call left of it; no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seu_bench.interfaces import PATIENCE
from seu_bench.record import Record


@dataclass(frozen=True)
class Execution:
    """How a run is made; nothing here decides what comes out.

    Attributes:
        results: folder of records.
        data_root: folder of data sets; ``None``: the default one.
        device: ``auto``, ``cpu``, ``cuda``, ...
        restart: begin anew, even if the run is finished or could be gone on with.
        patience: seconds that a searcher or a creator may compute without an image or an epoch.
        checkpoint_every: seconds between two checkpoints at least, 0: after every epoch; ``None``: as often as takes
            no more than 2 % of the time.
        keep_weights: whether a finished run keeps its model.
        feature_cache: bytes, at most, for outputs of frozen layers on a task's images; ``None``: half of what is free.
        compiles: whether SEU's units are compiled for their training.
    """

    results: Path = Path("results")
    data_root: Path | None = None
    device: str = "auto"
    restart: bool = False
    patience: float = PATIENCE
    checkpoint_every: float | None = None
    keep_weights: bool = True
    feature_cache: int | None = None
    compiles: bool = False


@dataclass(frozen=True)
class Outcome:
    """What a call left.

    Attributes:
        path: where the record lies.
        reused: whether the run had been finished before.
        checkpoints: how many were written by this call; their seconds in all, and bytes of the last one.
    """

    record: Record
    path: Path
    reused: bool = False
    checkpoints: int = 0
    checkpoint_seconds: float = 0.0
    checkpoint_bytes: int | None = None
