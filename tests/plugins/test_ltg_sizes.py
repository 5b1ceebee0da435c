"""Learn to Grow: published sizes and costs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
import torch
from support.commands import Command
from support.plugins.ltg import (
    LIVELY,
    grown,
    stream,
)
from support.tiny import (
    CPU,
    all_threads,
    build,
    class_stream,
    context,
    one_thread,
    raw_dataset,
    registry,
)

from seu_bench.data.streams import TaskStream
from seu_bench.models.sizes import count_macs, count_parameters
from seu_bench.training.interfaces import Cost
from seu_bench.training.stage import StageProgress
from seu_bench_kit.blocks import AlexNetShape
from seu_bench_ltg.network import Choice, GrowingAlexNet

setup_module, teardown_module = one_thread, all_threads


@pytest.mark.parametrize(
    ("channels", "size", "first_adapter", "column"), [(3, 32, 256, 12_957_824), (1, 28, 128, 9_286_656)]
)
def test_published_sizes(channels: int, size: int, first_adapter: int, column: int) -> None:
    """Adapters and a whole new column at full width."""
    with torch.device("meta"):
        model = GrowingAlexNet(AlexNetShape.of(channels, size, size), (2,))
        adapters = [model.layer(index).make_adapter() for index in range(3)]
        heads = count_parameters(model)
        model.grow_anew(0)
    assert [count_parameters(adapter) for adapter in adapters] == [first_adapter, 8320, 33_024]
    assert count_parameters(model) - heads == column


@pytest.mark.parametrize(
    ("benchmark", "least", "column"),
    [
        ("split_cifar10", 12_978_314, 12_957_824),
        ("split_cifar100", 13_162_724, 12_957_824),
        ("mixture", 13_097_156, 12_957_824),
        ("pmnist", 9_491_556, 9_286_656),
    ],
)
def test_cost_is_from_all_reused_to_all_new(command: Command, benchmark: str, least: int, column: int) -> None:
    """At least the fixed network's size; at most a column more for each later task."""
    answer = command(
        *("cost", "--format", "json", "--strategy", "ltg", "--benchmark", benchmark, "--protocol", "paper")
    )
    assert answer.status == 0
    document = json.loads(answer.out)
    tasks = len(document["tasks"])
    assert document["params_total_min"] == [least] * tasks
    assert document["params_total"] == [least + task * column for task in range(tasks)]
    if benchmark == "pmnist":
        adapters = 784 * 64 + 196 * 64 * 128 + 49 * 128 * 256
        assert document["macs"] == [document["macs_min"][0] + task * adapters for task in range(10)]
        half, steps = 54_000 // 2, -(-27_000 // 128)
        assert document["stages"]["search"] == {
            "train": 9 * 50 * (half + steps * 128),
            "evaluate": 9 * 50 * 6000,
            "image_passes": 9 * 50 * (half + steps * 128 + 6000),
        }


def cost_of(source: TaskStream, options: Mapping[str, Any]) -> Cost:
    found: Cost = registry().strategies.find("ltg").factory.cost(context(source.plan, "ltg", options))
    return found


@pytest.mark.parametrize("restore", ["best_valid", "last"])
def test_cost_holds(restore: str) -> None:
    """Sizes lie in the range, and image passes are exact, for halves that leave a batch of one image too."""
    source = class_stream([[0, 1], [2, 3, 4], [5, 6]], data=raw_dataset([17, 17, 16, 16, 16, 23, 23], [4] * 7))
    options = {**LIVELY, "restore": restore, "search_epochs": 3}
    seen: list[StageProgress] = []
    strategy = build(source, "ltg", on_progress=seen.append, **options)
    cost = cost_of(source, options)
    scenario = source.avalanche()
    for task, experience in enumerate(scenario.train_stream):
        strategy.train(experience, eval_streams=[scenario.streams["valid"]])
        assert cost.params_total_min[task] <= count_parameters(strategy.model) <= cost.params_total[task]
    found = {(report.stage, report.task): report.image_passes for report in seen if report.done}
    assert found == {(s.name, s.task): s.image_passes for s in cost.stages if s.name != "evaluation"}


def test_the_largest_path_is_the_cost() -> None:
    """A path through all adapters has exactly the most multiply-accumulates, one of new units the least."""
    source = stream()
    options = {"width": 0.25}
    cost = cost_of(source, options)
    for kind, expected in (("adapt", cost.macs), ("new", cost.macs_min)):
        model: GrowingAlexNet = build(source, "ltg", **options).model
        model.grow_anew(0)
        for task in (1, 2):
            new = Choice("new", task)
            grown(model, task, *[Choice("adapt", 0) if kind == "adapt" else new] * 3, *[new] * 2)
        model.eval()
        for task in range(3):
            found = count_macs(lambda x, task=task, model=model: model(x, task), (1, 8, 8), CPU)  # type: ignore[misc]
            assert found == expected[task]
    assert all(before < after for before, after in pairwise(cost.macs[::2]))
