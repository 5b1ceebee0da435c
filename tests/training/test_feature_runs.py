"""Whole runs: whatever memory features have, weights and records are the same; and what is kept is not computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.tiny import SMALL, all_threads, build, class_stream, learn, one_thread, registry
from torch import nn

from seu_bench.config.run import ComputeConfig, Request
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import Outcome, execute
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import read_record
from seu_bench.results.record_metrics import without_times

pytestmark = pytest.mark.long

setup_module, teardown_module = one_thread, all_threads

#: Of the 34 training images of a task four are left over, of the 32 validation images two.
LIMIT = 34
RAGGED = {"batch_size": 15, "epochs": 2}
THREE_TASKS = {"benchmark.stream.classes_per_task": None, "benchmark.stream.groups": [[0, 1], [2, 3], [4, 5]]}


@dataclass(frozen=True)
class Case:
    """Request of the run."""

    strategy: str
    options: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    def run(self, results: Path, cache: int | None, registry: Registry | None = None, **more: Any) -> Outcome:
        """On scikit-learn's digits."""
        request = Request(
            strategy=self.strategy,
            protocol="smoke",
            limit=LIMIT,
            options=THREE_TASKS | RAGGED | self.options,
            results=results,
            device="cpu",
            feature_cache=cache,
            **self.more,
            **{key: value for key, value in more.items() if key != "stop"},
        )
        registry = registry or Registry()
        return execute(registry, resolve(registry, request), stop=more.get("stop"))


NARROW = {"width": 0.05}
SEU = {"genotype": "darts_v1", "channels": 2, "creator.batch_size": 15, "creator.epochs": 3}

CASES = {
    "pnn": Case("pnn", NARROW),
    "pnn of one channel": Case("pnn", {"width": 0.01}),
    "pnn in half precision": Case("pnn", NARROW, {"precision": "bf16-features"}),
    "ltg": Case("ltg", NARROW),
    "seu mdl": Case("seu", SEU, {"creator": "mdl"}),
    "seu reuse_first": Case("seu", SEU, {"creator": "reuse_first"}),
    "seu frugal": Case("seu", SEU, {"creator": "frugal"}),
    "seu inherit": Case("seu", {"genotype": "darts_v1", "channels": 2, "creator.shared": 2}, {"creator": "inherit"}),
}

#: What ``make test`` runs of them; ``make test-long`` runs the others.
USUAL = ("pnn", "ltg")
each = [pytest.param(case, id=name, marks=[] if name in USUAL else pytest.mark.long) for name, case in CASES.items()]


def model_of(outcome: Outcome) -> bytes:
    """The file of its weights."""
    return (outcome.path.parent / "model.safetensors").read_bytes()


def peak(outcome: Outcome) -> int:
    """Bytes kept at the most."""
    value = outcome.record.metrics["peak_feature_bytes"]
    assert isinstance(value, int)
    return value


@pytest.mark.parametrize("case", each)
def test_any_budget_gives_the_same_run(tmp_path: Path, case: Case) -> None:
    """Weights bit by bit, and everything in the record but times and memory; never more is kept than allowed."""
    ample = case.run(tmp_path / "ample", None)
    for budget in (0, peak(ample) // 2):
        outcome = case.run(tmp_path / str(budget), budget)
        assert without_times(outcome.record) == without_times(ample.record)
        assert model_of(outcome) == model_of(ample)
        assert (0 < peak(outcome) <= budget) if budget else peak(outcome) == 0
        assert read_record(outcome.path).metrics["peak_feature_bytes"] == peak(outcome)


STREAM = class_stream([[0, 1], [2, 3], [4, 5]], images=40)
TRAIN, VALID = 60, 20
EPOCHS, BATCH = 6, 16


@contextmanager
def counted(*modules: nn.Module) -> Iterator[dict[int, int]]:
    """How many images each of the modules sees meanwhile."""
    counts = dict.fromkeys(range(len(modules)), 0)

    def count(index: int, _module: nn.Module, inputs: Any) -> None:
        counts[index] += len(inputs[0])

    handles = [module.register_forward_pre_hook(partial(count, index)) for index, module in enumerate(modules)]
    yield counts
    for handle in handles:
        handle.remove()


def experienced(name: str, cache: int | None, **options: Any) -> Any:
    """A strategy that has learned two tasks."""
    strategy = build(STREAM, name, **{"epochs": EPOCHS, "batch_size": BATCH} | options)
    strategy.compute = ComputeConfig(feature_cache=cache)
    return learn(STREAM, strategy, 2)


def learn_third(strategy: Any) -> None:
    scenario = STREAM.avalanche()
    strategy.train(scenario.train_stream[2], eval_streams=[scenario.streams["valid"]])


def rounded_up(images: int) -> int:
    return -(-images // BATCH) * BATCH


ONCE = rounded_up(TRAIN) + rounded_up(VALID)
EACH_EPOCH = EPOCHS * ONCE


@pytest.mark.parametrize(("cache", "times"), [(None, ONCE), (0, EACH_EPOCH)])
def test_frozen_columns_see_each_image_once(cache: int | None, times: int) -> None:
    """Of progressive networks, in a task of six epochs; without memory in every epoch."""
    strategy = experienced("pnn", cache)
    columns = [strategy.model.column(task).layers[0] for task in range(2)]
    with counted(*columns) as counts:
        learn_third(strategy)
    assert counts == {0: times, 1: times}


def test_frozen_units_see_each_image_once() -> None:
    """Of SEU, for each path of old units: the creator tries the two there are, and training stays on one of them."""
    counts = {}
    for cache in (None, 0):
        options = {"creator__epochs": 2, "creator__old_share": 1.0, "epochs": EPOCHS}
        strategy = experienced_seu(cache, "reuse_first", **options)
        with counted(*strategy.model.layers[0]) as found:
            learn_third(strategy)
        counts[cache] = sum(found.values())
    assert counts[None] <= 2 * ONCE
    assert counts[0] >= EACH_EPOCH


def experienced_seu(cache: int | None, creator: str, **options: Any) -> Any:
    """SEU with a fixed genotype and a creator, two tasks learned."""
    given = {name.replace("__", "."): value for name, value in options.items()}
    small = {key: value for key, value in SMALL.items() if not key.startswith("searcher.")}
    request = Request(
        creator=creator,
        protocol="smoke",
        feature_cache=cache,
        options={**small, "genotype": "darts_v1", "batch_size": BATCH, **given},
    )
    made = resolve(registry(), request).context(STREAM.plan)
    return learn(STREAM, registry().strategies.find("seu").factory.build(made), 2)
