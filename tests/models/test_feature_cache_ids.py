"""Batches are tagged with the images that they hold, and lose the tag with any change."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from support.features import TRAIN, all_of, cache
from support.tiny import CPU, all_threads, one_thread
from torch import Tensor, nn

from seu_bench.data.images import TaskImages, sample_ids_of

setup_module, teardown_module = one_thread, all_threads


def numbers_of(x: Tensor) -> list[int] | None:
    ids = sample_ids_of(x)
    return None if ids is None else ids.numbers.tolist()


def test_marks_of_parts() -> None:
    """Parts, halves and subsets, and those of them, have the numbers of the whole."""
    images = cache().number(TRAIN)
    first, second = images.halves()
    cases: dict[str, tuple[TaskImages, list[int]]] = {
        "part": (images.part(7, 10), [7, 8, 9]),
        "second half": (second, list(range(45, 90))),
        "part of a half": (second.part(40, 45), list(range(85, 90))),
        "subset": (images.subset(torch.tensor([9, 2, 9])), [9, 2, 9]),
        "subset of a half": (first.subset(torch.tensor([44, 3])).subset(torch.tensor([1])), [3]),
        "the same device": (images.part(0, 2).to(CPU), [0, 1]),
        "mask": (images.subset(torch.arange(90) < 3), [0, 1, 2]),
    }
    for name, (some, expected) in cases.items():
        x = all_of(some)
        assert numbers_of(x) == expected, name
        assert torch.equal(x, all_of(TRAIN)[expected]), name


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "added in place": lambda x: x.add_(1),
    "a part set": lambda x: _set(x),
    "in place by a view": lambda x: (x.view(-1).mul_(2), x)[1],
    "in place, detached": lambda x: (x.detach().zero_(), x)[1],
    "copied": lambda x: x.clone(),
    "detached": lambda x: x.detach(),
    "sum": lambda x: x + 0.1,
    "a view": lambda x: x.view_as(x),
    "first": lambda x: x[:1],
    "flipped": lambda x: x.flip(3),
    "other numbers": lambda x: x.double(),
    "parameter": lambda x: nn.Parameter(x),
    "concatenated": lambda x: torch.cat([x]),
}


def _set(x: Tensor) -> Tensor:
    x[0, 0, 0, 0] = 3
    return x


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_loses_the_mark(change: Callable[[Tensor], Tensor]) -> None:
    """The result of any operation on a batch is not taken for the images it came from."""
    images = cache().number(TRAIN)
    x, _ = images.gather(torch.arange(4))
    assert sample_ids_of(x) is not None
    assert sample_ids_of(change(x)) is None
