"""SEU as it is against a plain version of it, stage by stage."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from unittest import mock

from scripts.perf.comparison import Result, Size
from scripts.perf.plain import plain, without_cache
from scripts.perf.runs import accuracy_table, median_ratio, same_weights, side_by_side, stage_table
from seu_bench.config.run import Request
from seu_bench.errors import SeuBenchError
from seu_bench.plugin.registry import Registry
from seu_bench.training import TaskData
from seu_bench_kit import Genotype
from seu_bench_seu.strategy import Seu

OURS, WITHOUT, PLAIN = "as it is", "without cache", "plain"
BATCH = 64


@dataclass
class Decisions:
    """Genotypes and paths by task."""

    genotypes: dict[int, Genotype] = field(default_factory=dict)
    paths: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Record the first run's decisions, and replace those of later runs by them."""
        expand, keep = Seu._expand, Seu._keep

        def expand_as_before(strategy: Seu, task: TaskData, genotype: Genotype) -> None:
            expand(strategy, task, self.genotypes.setdefault(task.index, genotype))

        def keep_as_before(strategy: Seu, task: TaskData, path: tuple[int, ...]) -> None:
            keep(strategy, task, self.paths.setdefault(task.index, path))

        with mock.patch.object(Seu, "_expand", expand_as_before), mock.patch.object(Seu, "_keep", keep_as_before):
            yield


def request_of(size: Size) -> Request:
    """Five tasks of 32 pixels in batches that are all full."""
    schedule = {"batch_size": BATCH, "epochs": size.fixed(10, 1)}
    return Request(
        benchmark="split_cifar100",
        creator="mdl",
        protocol="paper",
        options={
            "cells": size.fixed(5, 3),
            "channels": size.fixed(16, 2),
            **schedule,
            "searcher.cells": size.fixed(4, 3),
            "searcher.channels": size.fixed(16, 2),
            "searcher.epochs": size.fixed(4, 1),
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


def measure(_: str, size: Size) -> Result:
    """Whole runs side by side, the later ones with the decisions of the first."""
    request = request_of(size)
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


def real_or_synthetic(dataset: str) -> bool:
    """Whether images must be made up: ``SEU_BENCH_DATA`` is not set, or the data set is not there."""
    if "SEU_BENCH_DATA" not in os.environ:
        return True
    try:
        Registry().datasets.find(dataset).factory.load(None)
    except SeuBenchError:
        return True
    return False
