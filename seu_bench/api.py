"""seu-bench from Python: the same runs and the same records as the command line's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seu_bench.interfaces import PATIENCE
from seu_bench.record import Record
from seu_bench.registry import Registry
from seu_bench.resolve import Request, resolve
from seu_bench.runner import execute


def run(
    strategy: str = "seu",
    benchmark: str = "split_digits",
    *,
    searcher: str | None = None,
    creator: str | None = None,
    protocol: str | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    data_root: str | Path | None = None,
    results: str | Path = "results",
    device: str = "auto",
    limit: int | None = None,
    synthetic: bool = False,
    force: bool = False,
    patience: float = PATIENCE,
    progress: bool = False,
) -> Record:
    """Make one run and return its record; the keywords are named as the options of ``seu-bench run``.

    Args:
        benchmark: a name, or the path of a TOML file.
        options: what ``-o key=value`` sets, by key.
        progress: whether to draw progress bars.

    Raises:
        SeuBenchError: as the command line would say; see :mod:`seu_bench.errors`.
    """
    registry = Registry()
    request = Request(strategy, benchmark, searcher, creator, protocol, seed, dict(options or {}), limit, synthetic)
    resolved = resolve(registry, request)
    if progress:
        from seu_bench.progress import ProgressDisplay

        registry.manager.register(ProgressDisplay(shorter=resolved.shorter), name="progress")
    outcome = execute(
        registry,
        resolved,
        results=Path(results),
        data_root=Path(data_root) if data_root is not None else None,
        device=device,
        force=force,
        patience=patience,
    )
    return outcome.record
