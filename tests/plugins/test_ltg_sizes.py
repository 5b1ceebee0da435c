"""Learn to Grow: published sizes and costs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from support.commands import Command
from support.plugins.ltg import (
    LIVELY,
    grown,
    images,
    network,
    search,
    stream,
)
from support.tiny import (
    CPU,
    all_threads,
    build,
    class_stream,
    context,
    learn,
    one_thread,
    raw_dataset,
    registry,
)

from seu_bench.cli.tables import record_summary
from seu_bench.config.protocol import Schedule
from seu_bench.data.streams import TaskStream
from seu_bench.models.sizes import count_macs, count_parameters
from seu_bench.results.record import Record
from seu_bench.training.interfaces import Cost
from seu_bench.training.stage import StageProgress
from seu_bench_kit.blocks import AlexNetShape
from seu_bench_ltg.method import arch_batches
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


def test_architecture_batches_are_those_of_the_loader() -> None:
    """The closed form of an epoch's steps counts the batches that are made."""
    for count in range(2, 40):
        data = images(count)
        for size in (1, 2, 3, 8, 64):
            first, second = data.halves()
            made = list(first.batches(size, shuffle=True))
            expected = (len(made), min(size, len(second)))
            assert arch_batches(count, Schedule(batch_size=size)) == expected


def test_no_image_to_spare() -> None:
    """One training image leaves the first half empty: no step is made, and nothing breaks."""
    stage = search(network(), images(1))
    assert len(stage.run()) == 5
    assert stage.image_passes == 0 == arch_batches(1, Schedule())[0]


def test_nothing_outside_is_disturbed() -> None:
    """Making and running a search draws nothing from whoever is outside."""
    source = stream()
    strategy = build(source, "ltg", **LIVELY)
    torch.manual_seed(5)
    np.random.seed(5)
    expected = (torch.rand(2).tolist(), np.random.rand(2).tolist())
    torch.manual_seed(5)
    np.random.seed(5)
    learn(source, strategy)
    assert (torch.rand(2).tolist(), np.random.rand(2).tolist()) == expected


def test_choices_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """A reader of the record sees them in words, literally."""
    given = {"run_id": "a", "status": "running", "strategy": "ltg", "benchmark": "b", "benchmark_version": 1}
    record = Record(**given, protocol="p", seed=0, choices=(("new", "new"), ("reuse 0", "[bold]adapt 0")))
    Console(width=100).print(record_summary(record))
    assert "- task 1: reuse 0, [bold]adapt 0\n" in capsys.readouterr().out.replace(" \n", "\n")
