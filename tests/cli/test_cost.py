"""``seu-bench cost``: exact parameters, multiply-accumulates and image passes, without data, training or memory."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from support.commands import Command

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
        pytest.param("split_cifar100", 13_162_724, marks=pytest.mark.long),
        ("pmnist", 9_491_556),
        pytest.param("mixture", 13_097_156, marks=pytest.mark.long),
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


def test_macs_by_hand(command: Command) -> None:
    """Multiply-accumulates of the baseline on 28x28 grey images, counted from the layers of the paper."""
    document = cost(command, "--strategy", "naive", "--benchmark", "pmnist", "--protocol", "paper")
    convolutions = 28 * 28 * 9 * 1 * 64 + 14 * 14 * 9 * 64 * 128 + 7 * 7 * 9 * 128 * 256
    linear = 3 * 3 * 256 * 2048 + 2048 * 2048 + 2048 * 10
    assert document["macs"] == [convolutions + linear] * 10
    whole = ("--protocol", "smoke", "-o", "width=1")
    assert cost(command, "--strategy", "naive", "--benchmark", "pmnist", *whole)["macs"] == document["macs"]


@pytest.mark.parametrize(
    "benchmark", [pytest.param(name, marks=pytest.mark.long if name == "split_cifar100" else ()) for name in SIZES]
)
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
