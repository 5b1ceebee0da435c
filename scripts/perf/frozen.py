"""Speed-up by the feature cache: progressive networks, and heads on a frozen backbone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

from scripts.perf.comparison import Result
from scripts.perf.runs import Timed, Ways, median_ratio, same_weights, side_by_side, stage_table, timed
from seu_bench.config.run import Request
from seu_bench.data.images import TaskImages
from seu_bench.training.strategy import StagedStrategy

#: The two ways in which frozen layers are compared.
WITH, WITHOUT = "with", "without"


@contextmanager
def without_cache() -> Iterator[None]:
    """No outputs of frozen layers are kept: models compute them in the batches as they come."""

    @contextmanager
    def computed(_: object) -> Iterator[Callable[[TaskImages], TaskImages]]:
        yield lambda images: images

    with mock.patch.object(StagedStrategy, "_features_cached", computed):
        yield


WAYS: Ways = {WITH: nullcontext, WITHOUT: without_cache}


#: By name: strategy, images of a batch, of a task, classes of a task, and options.
RUNS: dict[str, tuple[str, int, int, int, dict[str, Any]]] = {
    "pnn": ("pnn", 128, 128, 20, {"width": 0.5, "epochs": 30}),
    "frozen": ("naive", 64, 256, 50, {"backbone": "resnet18", "frozen": True, "width": 1.0, "epochs": 10}),
}


def request_of(name: str) -> Request:
    """A run on made-up images, in batches that are all full, so that batches without the cache are its chunks."""
    strategy, batch, limit, classes, options = RUNS[name]
    options = options | {
        "batch_size": batch,
        "benchmark.protocols.paper.eval_batch_size": batch,
        "benchmark.protocols.paper.images.valid": batch,
        "benchmark.stream.classes_per_task": classes,
    }
    asked = {"strategy": strategy, "benchmark": "split_cifar100", "protocol": "paper", "limit": limit}
    return Request(**asked, options=options, synthetic=True)


def measure(name: str) -> Result:
    """Whole runs side by side, then short ones of other budgets, in batches that are not all full."""
    request = request_of(name)
    rounds = side_by_side(request, WAYS, 2)
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
