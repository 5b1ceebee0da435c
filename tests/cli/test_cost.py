"""``seu-bench cost``: exact parameters, multiply-accumulates and image passes, without data, training or memory."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from support.commands import Answer, Command
from support.tiny import context, registry
from torch.utils._python_dispatch import TorchDispatchMode

from seu_bench.data.planning import StreamPlan, TaskPlan
from seu_bench.training.interfaces import Cost

#: What both the paper's tasks and its split of images say: train, valid and test images of each task.
SIZES = {
    "split_cifar10": [(9000, 1000, 2000)] * 5,
    "split_cifar100": [(9000, 1000, 2000)] * 5,
    "pmnist": [(54_000, 6000, 10_000)] * 10,
}


def asked_anew(command: Command, *arguments: object) -> dict[str, Any]:
    """Output of the command."""
    answer = command("cost", "--no-time", "--format", "json", *arguments)
    assert (answer.status, answer.err) == (0, "")
    document: dict[str, Any] = json.loads(answer.out)
    return document


#: The same, asked once for the same arguments.
cost = cache(asked_anew)


def passes_of_evaluation(sizes: list[tuple[int, int, int]]) -> int:
    return sum(size[2] for learned in range(len(sizes)) for size in sizes[: learned + 1])


@pytest.mark.parametrize(
    ("benchmark", "parameters"),
    [
        ("split_cifar10", 12_978_314),
        ("split_cifar100", 13_162_724),
        ("pmnist", 9_491_556),
        ("mixture", 13_097_156),
    ],
)
def test_parameters_of_naive(command: Command, benchmark: str, parameters: int) -> None:
    """The paper's baseline has the published sizes, and does not grow."""
    document = cost(command, "--strategy", "naive", "--benchmark", benchmark, "--protocol", "paper")
    assert document["params_total"] == [parameters] * len(document["tasks"])
    assert document["params_total_min"] == document["params_total"]
    assert document["macs_min"] == document["macs"]
    assert document["memory_bytes"] == document["memory_bytes_min"] == [4 * parameters] * len(document["tasks"])
    assert (document["strategy"], document["benchmark"], document["protocol"]) == ("naive", benchmark, "paper")


@pytest.mark.parametrize(
    ("benchmark", "parameters", "more"),
    [
        ("split_cifar10", 603_766, []),
        ("split_cifar100", 655_696, []),
        ("pmnist", 625_024, []),
        ("mixture", 637_232, []),
        ("split_cifar100", 515_080, ["-o", "preset=code"]),
        ("split_cifar100", 515_080, ["-o", "cells=4"]),
    ],
)
def test_parameters_of_a_published_genotype(command: Command, benchmark: str, parameters: int, more: list[str]) -> None:
    """After the first task SEU has the published sizes; after each other it has at most one column more."""
    asked = ("--strategy", "seu", "--benchmark", benchmark, "--protocol", "paper", "-o", "genotype=darts_v1")
    document = cost(command, *asked, *more)
    total = document["params_total"]
    assert total[0] == parameters
    assert document["params_total_min"] == [parameters] * len(document["tasks"])
    growth = {after - before for before, after in pairwise(total)}
    assert len(growth) == 1
    assert 0 < growth.pop() < parameters
    assert document["macs_min"] == document["macs"]


def test_a_search_is_a_range(command: Command) -> None:
    """The search's genotype is not known before: the published one lies between least and most."""
    asked = ("--strategy", "seu", "--benchmark", "split_cifar10", "--protocol", "paper")
    searched, given = cost(command, *asked), cost(command, *asked, "-o", "genotype=darts_v1")
    for task in range(5):
        assert searched["params_total_min"][task] < given["params_total"][task] < searched["params_total"][task]
    assert searched["macs_min"][0] < given["macs"][0] < searched["macs"][0]


def test_macs_by_hand(command: Command) -> None:
    """Multiply-accumulates of the baseline on 28x28 grey images, counted from the layers of the paper."""
    document = cost(command, "--strategy", "naive", "--benchmark", "pmnist", "--protocol", "paper")
    convolutions = 28 * 28 * 9 * 1 * 64 + 14 * 14 * 9 * 64 * 128 + 7 * 7 * 9 * 128 * 256
    linear = 3 * 3 * 256 * 2048 + 2048 * 2048 + 2048 * 10
    assert document["macs"] == [convolutions + linear] * 10
    whole = ("--protocol", "smoke", "-o", "width=1")
    assert cost(command, "--strategy", "naive", "--benchmark", "pmnist", *whole)["macs"] == document["macs"]


@pytest.mark.parametrize("benchmark", SIZES)
def test_image_passes_of_naive(command: Command, benchmark: str) -> None:
    """Fifty epochs on training and validation images, and the tests of all tasks so far after each task."""
    document = cost(command, "--strategy", "naive", "--benchmark", benchmark, "--protocol", "paper")
    sizes = SIZES[benchmark]
    train, valid = 50 * sum(size[0] for size in sizes), 50 * sum(size[1] for size in sizes)
    tested = passes_of_evaluation(sizes)
    assert document["stages"] == {
        "training": {"train": train, "evaluate": valid, "image_passes": train + valid},
        "evaluation": {"train": 0, "evaluate": tested, "image_passes": tested},
    }
    assert document["image_passes"] == train + valid
    assert document["evaluation_passes"] == tested


@pytest.mark.parametrize("benchmark", SIZES)
@pytest.mark.long
def test_image_passes_of_seu(command: Command, benchmark: str) -> None:
    """A hundred epochs of search in every task and of creation from the second on, on half of the images each, and
    1024 of the first half for BatchNorm's statistics."""
    document = cost(command, "--strategy", "seu", "--benchmark", benchmark, "--protocol", "paper")
    sizes = SIZES[benchmark]
    half, recalibrated, tasks = 100 * sizes[0][0] // 2, 100 * 1024, len(sizes)
    assert document["stages"]["search"] == {
        "train": tasks * half,
        "evaluate": tasks * (half + recalibrated),
        "image_passes": tasks * (2 * half + recalibrated),
    }
    assert document["stages"]["creation"]["train"] == (tasks - 1) * half
    assert document["stages"]["training"]["train"] == 50 * tasks * sizes[0][0]
    both = document["image_passes"] + document["evaluation_passes"]
    assert both == sum(stage["image_passes"] for stage in document["stages"].values())
    given = cost(command, "--strategy", "seu", "--benchmark", benchmark, "-o", "genotype=darts_v1")
    assert "search" not in given["stages"]


@pytest.mark.parametrize("strategy", ["naive", "lwf", "ltg", "seu"])
def test_heads_alike_are_counted_once(strategy: str) -> None:
    """Each task has the multiply-accumulates that it has alone, whether or not another one has as many classes."""
    tasks = tuple(TaskPlan(f"task {at}", classes, 8, 4, 4) for at, classes in enumerate((2, 4, 3, 4, 2)))

    def macs(*planned: TaskPlan) -> tuple[int, ...]:
        plan = StreamPlan(1, 8, 8, planned, tuple(range(len(planned))))
        options = {"cells": 3, "channels": 2, "genotype": "darts_v1"} if strategy == "seu" else {"width": 0.1}
        cost: Cost = registry().strategies.find(strategy).factory.cost(context(plan, strategy, options))
        return cost.macs_min

    found = macs(*tasks)
    assert found == tuple(macs(task)[0] for task in tasks)
    assert len(set(found)) == 3


def test_options_count(command: Command) -> None:
    """Epochs and limits change the image passes, and the size does not."""
    asked = ("--strategy", "naive", "--benchmark", "split_cifar10", "--protocol", "paper")
    whole = cost(command, *asked)
    short = cost(command, *asked, "-o", "epochs=3", "-o", "restore=last", "--limit", 100)
    assert short["stages"]["training"] == {"train": 3 * 5 * 100, "evaluate": 0, "image_passes": 1500}
    assert short["stages"]["evaluation"]["evaluate"] == 100 * (1 + 2 + 3 + 4 + 5)
    assert (short["params_total"], short["macs"]) == (whole["params_total"], whole["macs"])


class Allocations(TorchDispatchMode):
    """The largest tensor that is made anywhere but on the meta device, in elements."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0
        self.seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(tensor, torch.Tensor):
                self.seen += 1
                if tensor.device.type != "meta":
                    self.largest = max(self.largest, tensor.numel())
        return out


@pytest.mark.parametrize("strategy", ["pnn", "seu"])
@pytest.mark.parametrize("benchmark", ["mixture", "split_cifar100"])
@pytest.mark.long
def test_no_weights_are_made(command: Command, strategy: str, benchmark: str) -> None:
    """Models of millions of parameters are counted without memory for them, where no method is rehearsed."""
    with Allocations() as made:
        document = asked_anew(command, "--strategy", strategy, "--benchmark", benchmark, "--protocol", "paper")
    assert max(document["params_total"]) > 3_000_000
    assert made.seen > 0
    assert made.largest < 10_000


def test_random_numbers_are_left_alone(command: Command) -> None:
    """Asking for a cost changes nothing for whoever asks from a session of their own."""
    before = torch.get_rng_state()
    asked_anew(command, "--benchmark", "pmnist", "--protocol", "paper")
    assert torch.equal(torch.get_rng_state(), before)


def test_text_says_the_same(command: Command) -> None:
    """A reader gets the numbers of the document, with separators, and ranges where there are any."""
    asked = ("--strategy", "seu", "--benchmark", "split_cifar10", "--protocol", "paper")
    document, answer = cost(command, *asked), command("cost", "--no-time", *asked)
    assert isinstance(answer, Answer)
    lines = answer.out.splitlines()
    assert lines[0] == "seu on split_cifar10 version 2, protocol paper"
    for task, name in enumerate(document["tasks"]):
        least, most = document["params_total_min"][task], document["params_total"][task]
        assert f"after task {task} ({name}): {least:,} to {most:,} parameters; " in lines[task + 1]
        least, most = document["memory_bytes_min"][task], document["memory_bytes"][task]
        assert lines[task + 1].endswith(f"; {least:,} to {most:,} bytes kept")
    assert lines[-1] == f"  together {document['image_passes']:,} image passes to learn"


@pytest.mark.long
def test_default_protocol(command: Command) -> None:
    """Without ``--protocol`` the cost is of what ``run`` would do."""
    assert cost(command, "--benchmark", "split_cifar10")["protocol"] == "paper"
    assert cost(command)["protocol"] == "quick"
