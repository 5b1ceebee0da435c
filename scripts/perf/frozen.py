"""Speed-up by the feature cache: progressive networks, and heads on a frozen backbone."""

from __future__ import annotations

from typing import Any

from scripts.perf.comparison import Result, Size
from scripts.perf.plain import WAYS, WITH, WITHOUT
from scripts.perf.runs import Timed, median_ratio, same_weights, side_by_side, stage_table, timed
from seu_bench.config.run import Request


def request_of(name: str, size: Size) -> Request:
    """A run on made-up images, in batches that are all full, so that batches without the cache are its chunks."""
    if name == "pnn":
        batch, limit = 128, size.whole(128, 128, 128)
        options: dict[str, Any] = {"width": 0.125 if size.quick else 0.5, "epochs": size.fixed(30, 2)}
    else:
        batch, limit = 64, size.whole(4 * 64, 64, 64)
        options = {"backbone": "resnet18", "frozen": True, "width": 0.25 if size.quick else 1.0}
        options["epochs"] = size.fixed(10, 2)
    options |= {
        "batch_size": batch,
        "benchmark.protocols.paper.eval_batch_size": batch,
        "benchmark.protocols.paper.images.valid": batch,
        "benchmark.stream.classes_per_task": size.fixed(20, 50) if name == "pnn" else 50,
    }
    return Request(
        strategy="pnn" if name == "pnn" else "naive",
        benchmark="split_cifar100",
        protocol="paper",
        options=options,
        limit=limit,
        synthetic=True,
    )


def measure(name: str, size: Size) -> Result:
    """Whole runs side by side, then short ones of other budgets, in batches that are not all full."""
    request = request_of(name, size)
    rounds = side_by_side(request, WAYS, size.count(2, 1))
    shorter = {"options": {**request.options, "epochs": 2}, "limit": request.options["batch_size"] * 3 // 2}
    short = request.model_copy(update=shorter)
    budgets = [timed(short, feature_cache=budget) for budget in (None, 0, 2**21)]
    return Result(
        {
            "benchmark": request.benchmark,
            "images per task": rounds[0][WITH].record.task_images[0][0],
            "rounds": len(rounds),
            **request.options,
        },
        {
            "training_ratio": median_ratio(rounds, lambda run: run.seconds("training"), WITHOUT, WITH),
            "run_ratio": median_ratio(rounds, Timed.seconds, WITHOUT, WITH),
            "equal_weights": same_weights(rounds, WITH, WITHOUT) and same_weights([{"": run} for run in budgets], ""),
        },
        (stage_table(rounds, WITH, [WITHOUT]),),
    )
