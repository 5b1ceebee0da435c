"""Bytes kept by every registered strategy, beside a direct sum over the state that a later process resumes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from support.tried import ALL, FIXED_SEU, each, tried
from torch import Tensor

from seu_bench.testing.trial import Learner, from_file

#: Bytes of an image of the tiny streams, 8x8 and grey, with its label and task.
IMAGE = 8 * 8 + 2


def tensors(state: Any) -> list[Tensor]:
    """All tensors in it."""
    if isinstance(state, Tensor):
        return [state]
    values = state.values() if isinstance(state, Mapping) else state if isinstance(state, list | tuple) else ()
    return [tensor for value in values for tensor in tensors(value)]


def direct_sum(name: str, learner: Learner) -> int:
    """Bytes of the state as it comes back from a file; images are counted where it has them, or their places."""
    if learner.whole_stream:
        weights, own = learner.model.state_dict(), {"tasks": learner.tasks}
    else:
        state = from_file(learner.strategy.state_dict())
        weights, own = state["weights"], dict(state["own"])
    own.pop("randomness", None)  # of generators: nothing that was learned
    total = sum(tensor.element_size() * tensor.numel() for tensor in tensors(weights))
    for tensor in tensors(own):
        if tensor.dtype == torch.int64 and tensor.dim() == 2 and tensor.shape[1] == 2:
            total += len(tensor) * IMAGE  # places of images in the stream
        elif tensor.dim() == 4 and tensor.shape[1:] == (1, 8, 8):
            total += len(tensor) * IMAGE  # images
        elif tensor.dtype != torch.int64:  # labels and tasks of images
            total += tensor.element_size() * tensor.numel()
    if name in ("cumulative", "joint"):
        total += sum(len(learner.stream.tasks[task].train) for task in range(own["tasks"])) * IMAGE
    return total


@pytest.mark.parametrize("name", each([*ALL, FIXED_SEU]))
def test_every_strategy(name: str) -> None:
    """Neither less nor more, after each task."""
    trial = tried(name)
    learner = trial.learner("tiny_two")
    for task in range(learner.tasks):
        learner.learn(task)
        if not learner.whole_stream or task == learner.tasks - 1:
            assert learner.sizes.memory_bytes[-1] == direct_sum(name, learner), learner.sizes.memory_by_kind
            assert sum(learner.sizes.memory_by_kind.values()) == learner.sizes.memory_bytes[-1]
