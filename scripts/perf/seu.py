"""SEU as it is against a plain version of it, stage by stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from scripts.perf.comparison import Result, Size
from scripts.perf.data import real_or_synthetic
from scripts.perf.decisions import Decisions
from scripts.perf.plain import plain, without_cache
from scripts.perf.runs import accuracy_table, median_ratio, same_weights, side_by_side, stage_table
from seu_bench.config.run import Request

OURS, WITHOUT, PLAIN = "as it is", "without cache", "plain"
BATCH = 64


def request_of(name: str, size: Size) -> Request:
    """Five tasks of 32 pixels in batches that are all full."""
    schedule = {"batch_size": BATCH, "epochs": size.fixed(10, 1)}
    return Request(
        benchmark="split_cifar100",
        creator=name.removeprefix("seu_"),
        protocol="paper",
        options={
            "cells": size.fixed(5, 3),
            "channels": size.fixed(16, 2),
            **schedule,
            "searcher.cells": size.fixed(4, 3),
            "searcher.channels": size.fixed(16, 2),
            # The search is the same whichever creator follows: measured once is enough.
            "searcher.epochs": size.fixed(4 if name == "seu_mdl" else 2, 1),
            "searcher.batch_size": BATCH,
            "creator.epochs": size.fixed(8, 1),
            "creator.batch_size": BATCH,
            "benchmark.protocols.paper.eval_batch_size": BATCH,
            "benchmark.protocols.paper.images.valid": BATCH,
            "benchmark.stream.classes_per_task": size.fixed(20, 50),
        },
        limit=size.whole(128, 128, 2 * BATCH),
        synthetic=real_or_synthetic("cifar100"),
    )


def measure(name: str, size: Size) -> Result:
    """Whole runs side by side, the later ones with the decisions of the first."""
    request = request_of(name, size)
    decisions = Decisions()

    def following(way: Callable[[], AbstractContextManager[object]]) -> Callable[[], AbstractContextManager[object]]:
        @contextmanager
        def made() -> Iterator[None]:
            with decisions.followed(), way():
                yield

        return made

    ways = {OURS: following(nullcontext), WITHOUT: following(without_cache), PLAIN: following(plain)}
    rounds = side_by_side(request, ways, size.count(1, 1))
    passes = [
        {place: stage.image_passes for place, stage in run.stages().items()}
        for found in rounds
        for run in found.values()
    ]
    return Result(
        {
            "benchmark": request.benchmark,
            "data": "made-up" if request.synthetic else "real",
            "images per task": rounds[0][OURS].record.task_images[0][0],
            "creator": request.creator,
            "rounds": len(rounds),
            **request.options,
        },
        {
            "learning_ratio": median_ratio(
                rounds, lambda run: run.seconds("creation", "training", first=1), PLAIN, OURS
            ),
            "creation_ratio": median_ratio(rounds, lambda run: run.seconds("creation"), PLAIN, OURS),
            "training_ratio": median_ratio(rounds, lambda run: run.seconds("training", first=1), PLAIN, OURS),
            "search_ratio": median_ratio(rounds, lambda run: run.seconds("search"), PLAIN, OURS),
            "cache_ratio": median_ratio(
                rounds, lambda run: run.seconds("creation", "training", first=1), WITHOUT, OURS
            ),
            "equal_passes": all(each == passes[0] for each in passes),
            "equal_weights": same_weights(rounds, OURS, WITHOUT),
        },
        (stage_table(rounds, OURS, [WITHOUT, PLAIN]), accuracy_table(rounds)),
    )
