"""Progressive networks: published sizes, costs and options."""

from __future__ import annotations

from itertools import pairwise

import pytest
from support.commands import Command
from support.plugins.pnn import (
    CLASSES,
    SMALL,
    Variant,
    both,
    column_size,
    cost,
    network,
)
from support.tiny import (
    all_threads,
    one_thread,
)

from seu_bench.models.sizes import count_parameters
from seu_bench_kit.blocks import AlexNetShape

setup_module, teardown_module = one_thread, all_threads


@both
@pytest.mark.parametrize("shape", [SMALL, AlexNetShape(1, 8, 8, (1, 1, 1), 1), AlexNetShape(3, 24, 17, (2, 5, 3), 4)])
def test_parameters_of_columns(variant: Variant, shape: AlexNetShape) -> None:
    """Each column has as many parameters as the formula says, in both variants."""
    made = network(variant, shape)
    assert [count_parameters(column) for column in made.columns] == [
        column_size(shape, task, classes) for task, classes in enumerate(CLASSES)
    ]
    assert [tuple(lateral.scales.shape) for lateral in made.column(2).laterals] == [(2,)] * 5


COLUMNS = {
    "split_cifar10": [12_961_922, 51_116_745, 76_303_054, 101_489_363, 126_675_672],
    "pmnist": [
        *(9_307_146, 32_337_753, 46_055_262, 59_772_771, 73_490_280),
        *(87_207_789, 100_925_298, 114_642_807, 128_360_316, 142_077_825),
    ],
}


TOTALS = {
    "split_cifar10": 368_546_756,
    "split_cifar100": 368_878_694,
    "pmnist": 794_177_247,
    "mixture": 368_731_166,
}


CLASSES_OF = {"split_cifar100": [20] * 5, "mixture": [28, 10, 10, 10, 10]}


@both
@pytest.mark.parametrize(
    "benchmark", [pytest.param(name, marks=[] if name == "split_cifar10" else pytest.mark.long) for name in TOTALS]
)
def test_published_sizes(command: Command, benchmark: str, variant: Variant) -> None:
    """The four networks of the paper, column by column, to the unit."""
    document = cost(command, "--benchmark", benchmark, "--protocol", "paper", "-o", f"variant={variant}")
    total = document["params_total"]
    assert total[-1] == TOTALS[benchmark]
    assert document["params_total_min"] == total
    columns = [after - before for before, after in pairwise([0, *total])]
    if benchmark in COLUMNS:
        assert columns == COLUMNS[benchmark]
    else:
        shape = AlexNetShape(3, 32, 32)
        assert columns == [column_size(shape, task, n) for task, n in enumerate(CLASSES_OF[benchmark])]


PUBLISHED_MACS = {
    "split_cifar10": (2, [52.1, 177.6, 257.0, 340.6, 428.3]),
    "pmnist": (10, [38.5, 125.7, 179.2, 237.0, 299.0, 365.2, 435.5, 510.1, 588.9, 671.8]),
}


@pytest.mark.parametrize("benchmark", PUBLISHED_MACS)
@pytest.mark.long
def test_macs_of_compat(command: Command, benchmark: str) -> None:
    """The published code's multiply-accumulates are the path's and those of what it computes beside it.

    That is the second linear layer of the earlier columns, which only laterals into heads read, every other task's
    head, and the laterals into the heads of the tasks before.
    """
    document = cost(command, "--benchmark", benchmark, "--protocol", "paper", "-o", "variant=compat")
    classes, published = PUBLISHED_MACS[benchmark]
    tasks, second, head = len(published), 2048 * 2048, 2048 * classes
    beside = [
        t * second + (tasks - 1) * head + sum(earlier * second + head for earlier in range(1, t)) for t in range(tasks)
    ]
    found = [(path + more) / 1e6 for path, more in zip(document["macs"], beside, strict=True)]
    assert [round(value, 1) for value in found] == published
    assert document["macs_min"] == document["macs"]


def test_macs_of_proper_by_hand(command: Command) -> None:
    """Task 1 of split CIFAR-10: two columns, one head, and the second column's five laterals."""
    document = cost(command, "--benchmark", "split_cifar10", "--protocol", "paper", "-o", "variant=proper")
    plain = 32**2 * 27 * 64 + 16**2 * 576 * 128 + 8**2 * 1152 * 256 + 4096 * 2048 + 2048 * 2048
    head = 2048 * 2
    reductions = 16**2 * 64 * 64 + 8**2 * 128 * 128 + 4096 * 4096 + 2 * 2048 * 2048
    projections = plain - 32**2 * 27 * 64 + head
    assert document["macs"][:2] == [plain + head, 2 * plain + head + reductions + projections]
