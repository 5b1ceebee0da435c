"""Speed-up of heads on a frozen backbone by the feature cache."""

from __future__ import annotations

from scripts.perf.comparison import Result, Size
from scripts.perf.plain import WAYS, WITH, WITHOUT
from scripts.perf.runs import Timed, median_ratio, same_weights, side_by_side, stage_table
from seu_bench.config.run import Request

BATCH = 64


def measure(_: str, size: Size) -> Result:
    """Whole runs side by side, in batches that are all full, so that batches without the cache are its chunks."""
    request = Request(
        strategy="naive",
        benchmark="split_cifar100",
        protocol="paper",
        options={
            "backbone": "resnet18",
            "frozen": True,
            "width": 0.25 if size.quick else 1.0,
            "epochs": size.fixed(10, 2),
            "batch_size": BATCH,
            "benchmark.protocols.paper.eval_batch_size": BATCH,
            "benchmark.protocols.paper.images.valid": BATCH,
            "benchmark.stream.classes_per_task": 50,
        },
        limit=size.whole(4 * BATCH, BATCH, BATCH),
        synthetic=True,
    )
    rounds = side_by_side(request, WAYS, size.count(2, 1))
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
            "equal_weights": same_weights(rounds, WITH, WITHOUT),
        },
        (stage_table(rounds, WITH, [WITHOUT]),),
    )
