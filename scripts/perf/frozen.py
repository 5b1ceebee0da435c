"""Speed-up of heads on a frozen backbone by the feature cache."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from unittest import mock

import torch
from torch import Tensor

from scripts.perf.catalogue import Result, Size
from scripts.perf.runs import Timed, Ways, median_ratio, same_weights, side_by_side, stage_table
from seu_bench.config.run import Request
from seu_bench.models.backbone import BackboneModel

WITH, WITHOUT = "with", "without"
BATCH = 64


@contextmanager
def without_cache() -> Iterator[None]:
    """The backbone computes every batch as it comes."""

    def computed(
        _self: BackboneModel, x: Tensor, _key: Hashable, compute: Callable[[Tensor], tuple[Tensor, ...]]
    ) -> tuple[Tensor, ...]:
        with torch.no_grad():
            return compute(x)

    with mock.patch.object(BackboneModel, "cached_features", computed):
        yield


WAYS: Ways = {WITH: nullcontext, WITHOUT: without_cache}


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
