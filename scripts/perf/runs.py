"""Runs that are made to be timed: by the harness itself, in this process, their files thrown away."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from scripts.perf.comparison import Table
from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import execute
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, StageRecord

Place: TypeAlias = tuple[str, int]
Ways: TypeAlias = Mapping[str, Callable[[], AbstractContextManager[object]]]

#: Longer than any run: checkpoints are measured elsewhere.
_NEVER = 1e9


@dataclass(frozen=True)
class Timed:
    """A run that was made."""

    record: Record

    def stages(self, *names: str) -> dict[Place, StageRecord]:
        """Stages by name and task; all of them where no name is given."""
        return {(s.name, s.task): s for s in self.record.stages if not names or s.name in names}

    def seconds(self, *names: str, first: int = 0) -> float:
        """Of the stages of these names, from a task on."""
        return sum(stage.seconds for (_, task), stage in self.stages(*names).items() if task >= first)


def timed(request: Request, *, feature_cache: int | None = None, watching: object = None) -> Timed:
    """Make a run on the CPU; ``watching`` is a plugin whose hooks are called."""
    registry = Registry()
    if watching is not None:
        registry.manager.register(watching)
    with tempfile.TemporaryDirectory() as folder:
        fields = {
            "results": Path(folder),
            "device": "cpu",
            "checkpoint_every": _NEVER,
            "feature_cache": feature_cache,
        }
        outcome = execute(registry, resolve(registry, request.model_copy(update=fields)))
    return Timed(outcome.record)


def side_by_side(request: Request, ways: Ways, rounds: int) -> list[dict[str, Timed]]:
    """The run made each way in every round, every second round the other way round.

    A short run goes before: libraries are loaded, threads started, and kernels for its batches made, by then.
    """
    timed(request.model_copy(update={"options": {**request.options, **_short(request)}}))
    made: list[dict[str, Timed]] = []
    for round_ in range(rounds):
        found = {}
        for name in reversed(list(ways)) if round_ % 2 else ways:
            with ways[name]():
                found[name] = timed(request)
        made.append(found)
    return made


def median_ratio(rounds: Sequence[Mapping[str, Timed]], of: Callable[[Timed], float], a: str, b: str) -> float | None:
    """The median over rounds of ``of(a) / of(b)``; ``None`` where that takes no time."""
    ratios = [of(found[a]) / of(found[b]) for found in rounds if of(found[b]) > 0]
    return statistics.median(ratios) if ratios else None


def stage_table(rounds: Sequence[Mapping[str, Timed]], ours: str, others: Sequence[str]) -> Table:
    """Images per second of every stage that passes images, each way, and how many times faster ours is."""
    rows = []
    for place, stage in rounds[0][ours].stages().items():
        if not stage.image_passes:
            continue
        name, task = place

        def rate(way: str, place: Place = place) -> float:
            stages = [found[way].stages()[place] for found in rounds]
            return statistics.median(stage.image_passes / stage.seconds for stage in stages)

        ratios = [
            median_ratio(rounds, lambda run, place=place: run.stages()[place].seconds, way, ours)  # type: ignore[misc]
            for way in others
        ]
        rows.append([task + 1, name, stage.image_passes, *map(rate, (ours, *others)), *ratios])
    columns = ("task", "stage", "image passes", *(f"{way}: images/s" for way in (ours, *others)))
    return Table("Stages", (*columns, *(f"times {way}" for way in others)), rows)


def same_weights(rounds: Sequence[Mapping[str, Timed]], *ways: str) -> bool:
    """Whether all runs of these ways end with the same weights, bit by bit."""
    found = {run[way].record.weights_sha256 for run in rounds for way in ways}
    return len(found) == 1 and None not in found


def _short(request: Request) -> dict[str, int]:
    return {key: 1 for key in request.options if key.rpartition(".")[2].endswith("epochs")}
