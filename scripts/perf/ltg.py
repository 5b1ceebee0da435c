"""Speed-up of Learn to Grow by the feature cache."""

from __future__ import annotations

from scripts.perf.comparison import Result, Size
from scripts.perf.data import real_or_synthetic
from scripts.perf.plain import WAYS, WITH, WITHOUT
from scripts.perf.runs import Timed, accuracy_table, median_ratio, same_weights, side_by_side, stage_table
from seu_bench.config.run import Request

BATCH = 64


def measure(_: str, size: Size) -> Result:
    """Whole runs side by side."""
    request = Request(
        strategy="ltg",
        benchmark="split_cifar100",
        protocol="paper",
        options={
            "width": 0.125 if size.quick else 0.5,
            "epochs": size.fixed(10, 1),
            "search_epochs": size.fixed(8, 1),
            "batch_size": BATCH,
            "benchmark.protocols.paper.eval_batch_size": BATCH,
            "benchmark.protocols.paper.images.valid": BATCH,
            "benchmark.stream.classes_per_task": size.fixed(20, 50),
        },
        limit=size.whole(128, 128, 2 * BATCH),
        synthetic=real_or_synthetic("cifar100"),
    )
    rounds = side_by_side(request, WAYS, size.count(1, 1))
    return Result(
        {
            "benchmark": request.benchmark,
            "data": "made-up" if request.synthetic else "real",
            "images per task": rounds[0][WITH].record.task_images[0][0],
            "rounds": len(rounds),
            **request.options,
        },
        {
            "run_ratio": median_ratio(rounds, Timed.seconds, WITHOUT, WITH),
            "search_ratio": median_ratio(rounds, lambda run: run.seconds("search"), WITHOUT, WITH),
            "training_ratio": median_ratio(rounds, lambda run: run.seconds("training", first=1), WITHOUT, WITH),
            "equal_weights": same_weights(rounds, WITH, WITHOUT),
        },
        (stage_table(rounds, WITH, [WITHOUT]), accuracy_table(rounds)),
    )
