"""Streams that are measured on validation images: which images stand where, and that no test image is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from support.streams import classes_spec, permuted_spec
from support.tiny import raw_dataset

from seu_bench.config.protocol import ImageLimits
from seu_bench.data.planning import plan_stream
from seu_bench.data.streams import build_stream
from seu_bench.errors import RequestError

DATA = raw_dataset([40] * 6, [10] * 6)
SPEC = classes_spec(classes_per_task=2, validation=0.25)
VALIDATION: Any = {"evaluation": "validation"}


class Forbidden:
    """Images that must not be read."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"test images were read: {name}")

    def __len__(self) -> int:
        raise AssertionError("test images were counted")


SEALED = replace(DATA)
object.__setattr__(SEALED, "test", Forbidden())  # a data set looks at its arrays when it is made


def rows(images: Any) -> set[bytes]:
    """The images of a split, by their pixels."""
    everything, _ = images.gather(torch.arange(len(images)))
    return {image.numpy().tobytes() for image in everything}


@pytest.mark.parametrize("spec", [SPEC, permuted_spec(tasks=3, validation=0.25)])
def test_halves(spec: Any) -> None:
    """One half of the validation images is learned with, the other one is measured on; training stays what it was."""
    whole = build_stream(spec, lambda _: DATA, ImageLimits(), 3)
    part = build_stream(spec, lambda _: SEALED, ImageLimits(), 3, **VALIDATION)
    planned = plan_stream(spec, {"tiny": DATA.info}, ImageLimits(), 3, **VALIDATION)
    assert part.plan == planned
    for full, half in zip(whole.tasks, part.tasks, strict=True):
        assert rows(half.train) == rows(full.train)
        assert rows(half.valid) | rows(half.test) == rows(full.valid)
        assert not rows(half.valid) & rows(half.test)
        assert len(half.test) == len(full.valid) // 2
    with pytest.raises(AssertionError, match="test images were"):
        build_stream(spec, lambda _: SEALED, ImageLimits(), 3)


def test_limits_keep_what_is_learned() -> None:
    """Where a limit leaves enough, the validation images are those of a run that is measured on test images."""
    limits = ImageLimits(train=12, valid=5, test=4)
    whole = build_stream(SPEC, lambda _: DATA, limits, 1)
    part = build_stream(SPEC, lambda _: SEALED, limits, 1, **VALIDATION)
    for full, half in zip(whole.tasks, part.tasks, strict=True):
        assert rows(half.train) == rows(full.train)
        assert rows(half.valid) == rows(full.valid)
        assert len(half.test) == 4


def test_first_tasks() -> None:
    """The first tasks in the order of the seed; what they are compared with is another stream."""
    whole = build_stream(SPEC, lambda _: DATA, ImageLimits(), 2)
    part = build_stream(SPEC, lambda _: DATA, ImageLimits(), 2, first_tasks=2)
    assert part.plan.order == whole.plan.order[:2]
    assert part.plan.tasks == whole.plan.tasks[:2]
    assert rows(part.tasks[1].test) == rows(whole.tasks[1].test)
    prints = {
        build_stream(SPEC, lambda _: DATA, ImageLimits(), seed, **kind).fingerprint
        for kind in ({}, {"first_tasks": 1}, {"first_tasks": 2}, VALIDATION, {"first_tasks": 2, **VALIDATION})
        for seed in (0, 1)
    }
    assert len(prints) == 5
    with pytest.raises(RequestError, match="3 tasks, fewer than 4"):
        build_stream(SPEC, lambda _: DATA, ImageLimits(), 2, first_tasks=4)


def test_too_few_to_withhold() -> None:
    few = raw_dataset([3] * 6, [10] * 6)
    with pytest.raises(RequestError, match="has 1 validation images: none can be withheld"):
        build_stream(SPEC, lambda _: few, ImageLimits(), 0, **VALIDATION)
