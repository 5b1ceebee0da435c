"""Predictions of ``seu-bench cost`` against the counts of a run."""

from __future__ import annotations

from scripts.perf.comparison import Result, Size, Table
from scripts.perf.runs import timed
from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.plugin.registry import Registry

STRATEGIES = ("naive", "ewc", "pnn", "ltg", "seu")


def measure(_: str, size: Size) -> Result:
    """A run of each strategy."""
    rows, exact = [], []
    limit = 16 if size.quick else None
    for strategy in STRATEGIES:
        request = Request(strategy=strategy, protocol="smoke", limit=limit)
        run = resolve(Registry(), request)
        cost = run.strategy.cost(run.context(run.plan()))
        predicted = {(stage.name, stage.task): stage.image_passes for stage in cost.stages if stage.image_passes}
        stages = timed(request).stages()
        counted = {place: stage.image_passes for place, stage in stages.items() if stage.image_passes}
        exact.append(predicted == counted)
        for name in dict.fromkeys(name for name, _ in (*predicted, *counted)):
            sums = [sum(passes for (at, _), passes in found.items() if at == name) for found in (predicted, counted)]
            rows.append([strategy, name, *sums, sums[1] / sums[0] if sums[0] else None])
    return Result(
        {"benchmark": "split_digits", "protocol": "smoke", "limit": limit},
        {"exact": all(exact)},
        (Table("Image passes", ("strategy", "stage", "predicted", "counted", "counted / predicted"), rows),),
    )
