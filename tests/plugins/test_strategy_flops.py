"""Operations that a stage counts, against torch's own counter around its epochs and its result, for every strategy
installed.

Torch's counter forgets that a convolution may have groups, and sees what a machine does in place of what is asked for:
gradients by other routes, and nothing where outputs are cached. Here the first is corrected, and the others are off.
Of linear algebra it knows nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from avalanche.core import SupervisedPlugin
from support.tried import scenario_of
from torch.utils.flop_counter import FlopCounterMode

from seu_bench.models.flops import FlopCounter
from seu_bench.testing import Trial
from seu_bench.testing.trial import load_registry
from seu_bench.training.stage import Stage
from seu_bench.training.strategy import StagedStrategy
from seu_bench_kit import kernels
from seu_bench_kit.guard import GuardedStage

#: What makes a run short, and the counted more.
OPTIONS: dict[str, dict[str, Any]] = {
    "agem": {"patterns_per_experience": 5, "sample_size": 4},
    "der": {"balanced_epochs": 2},
    "dgr": {"generator_iterations": 3},
    "er_ace": {"batch_size_mem": 3},
    "gem": {"patterns_per_experience": 5},
    "mir": {"batch_size_mem": 3, "subsample": 6},
    "ranpac": {"projection": 100},
    "rcl": {"trials": 2},
    "replay": {"memory": 7},
}


def convolution_gradients(gradient: Any, x: Any, weight: Any, *rest: Any, out_shape: tuple[Any, ...], **_: Any) -> int:
    """Operations of each gradient that is asked for: as many as forward."""
    images, outputs, height, width = gradient
    _, inputs, kernel_height, kernel_width = weight  # inputs of a group
    forward = 2 * images * outputs * height * width * inputs * kernel_height * kernel_width
    return forward * sum(bool(shape) for shape in out_shape[:2])


def solution(a: Any, b: Any, *_: Any, **__: Any) -> int:
    """LU, and two triangular solutions for each right-hand side."""
    return int(2 * a[-1] ** 3 // 3 + 2 * a[-1] ** 2 * b[-1])


FORMULAS = {
    torch.ops.aten.convolution_backward: convolution_gradients,
    torch.ops.aten._linalg_solve_ex: solution,
    torch.ops.aten.linalg_inv_ex: lambda a, *_, **__: 2 * a[-1] ** 3,
    torch.ops.aten.linalg_cholesky_ex: lambda a, *_, **__: a[-1] ** 3 // 3,
    torch.ops.aten.cholesky_solve: lambda b, a, *_, **__: 2 * a[-1] ** 2 * b[-1],
}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Stage[Any], int]]:
    """Every epoch and every result of every stage, with the operations that torch counts in it."""
    parts: list[tuple[Stage[Any], int]] = []
    metered = Stage._meter

    @contextmanager
    def watched(stage: Stage[Any]) -> Iterator[None]:
        with (
            FlopCounterMode(display=False, custom_mapping=FORMULAS) as counter,
            metered(stage),
        ):
            yield
        parts.append((stage, counter.get_total_flops()))

    @contextmanager
    def uncached(_: object) -> Iterator[Any]:
        yield lambda images: images

    monkeypatch.setattr(Stage, "_meter", watched)
    monkeypatch.setattr(StagedStrategy, "_features_cached", uncached)
    monkeypatch.setattr(kernels, "trains_on_cpu", lambda *_: False)
    return parts


SEU: dict[str, Any] = {"cells": 3, "channels": 2, "searcher.cells": 3, "searcher.channels": 2}
CASES: dict[str, Trial] = {
    # What has no layer computes none.
    **{
        name: Trial(name, OPTIONS.get(name, {}), scenario=scenario_of(name))
        for name in load_registry().strategies
        if name not in ("nearest_mean", "seu")
    },
    "seu mdl mdl": Trial("seu", SEU),
    "seu darts knn_prefix": Trial(
        "seu", SEU | {"searcher.epochs": 1, "creator.epochs": 6}, searcher="darts", creator="knn_prefix"
    ),
    "seu darts frugal": Trial("seu", SEU | {"searcher.epochs": 1}, searcher="darts", creator="frugal"),
    "seu zero_cost reuse_first": Trial(
        "seu",
        SEU | {"searcher.candidates": 2, "searcher.score": "synflow"},
        searcher="zero_cost",
        creator="reuse_first",
    ),
    "seu blockwise": Trial(
        "seu",
        SEU,
        searcher="blockwise",
        creator="all_new",
    ),
    "seu inherit": Trial("seu", {"cells": 3, "channels": 2}, searcher="inherit", creator="inherit"),
}
#: Those that ``make test`` runs, the others are ``long``: each has its own way of passing images.
USUAL = ("naive", "pnn", "ltg", "lwf", "mir", "gem", "mas", "joint")


@pytest.mark.parametrize(
    "case", [name if name in USUAL else pytest.param(name, marks=pytest.mark.long) for name in sorted(CASES)]
)
def test_stages_count_as_torch_does(case: str, counted: list[tuple[Stage[Any], int]]) -> None:
    learner = CASES[case].learner("tiny_two")
    for task in range(learner.tasks):
        learner.learn(task)
    stages: dict[int, Stage[Any]] = {}
    totals: Counter[int] = Counter()
    for stage, flops in counted:
        # A plugin's stage meters its epochs, and its guard the result and, as the last, all of it.
        key = id(stage.inner if isinstance(stage, GuardedStage) else stage)
        stages[key] = stage
        totals[key] += flops
    for key, stage in stages.items():
        assert stage.flops == totals[key], (stage.name, stage.task)
    assert sum(stage.flops or 0 for stage in stages.values()) > 0


@pytest.mark.parametrize("event", [None, "after_training_iteration", "after_training_epoch"])
def test_what_plugins_compute_between_batches_is_counted(
    event: str | None, counted: list[tuple[Stage[Any], int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And where nobody computes there, the counter steps aside once an epoch, not for each batch."""
    learner, rest, asides = Trial("naive", {"batch_size": 4}).learner("tiny_two"), FlopCounter.rest, list[object]()
    monkeypatch.setattr(FlopCounter, "rest", lambda counter: asides.append(rest(counter)))
    if event is not None:
        plugin = SupervisedPlugin[Any]()  # type: ignore[no-untyped-call]
        setattr(plugin, event, lambda strategy, **_: torch.zeros(1, 5) @ torch.zeros(5, 10))
        learner.strategy.plugins.append(plugin)
    learner.learn(0)
    (stage,) = {id(stage): stage for stage, _ in counted}.values()
    assert stage.flops == sum(flops for _, flops in counted) > 0
    assert (len(asides) <= stage.epochs) == (event is None)
