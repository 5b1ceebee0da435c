"""Sizes that a strategy on trial is measured with: beside its state, and beside what its cost estimate said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from seu_bench.engine.checkpoint import is_resumable
from seu_bench.models.sizes import count_bytes
from seu_bench.testing.trial import Learner, from_file, require
from seu_bench.training.monitoring.memory import LABEL_BYTES
from seu_bench.training.strategy import StagedStrategy


def check_sizes(learner: Learner, task: int) -> None:
    """Fail unless what was measured after a task is what the model and the strategy's state hold, and was forecast."""
    sizes, cost = learner.sizes, learner.cost
    require(bool(sizes.params_total), "no sizes were measured: hand context.evaluator on")
    total, active, memory = sizes.params_total[-1], sizes.params_active[-1], sizes.memory_bytes[-1]
    state = set(learner.model.state_dict(keep_vars=True).values())
    held = sum(tensor.numel() for tensor in state if isinstance(tensor, torch.nn.Parameter))
    require(total == held, f"task {task}: {total} parameters were counted, and the model's state holds {held}")
    require(active <= total, f"task {task}: {active} active parameters of {total} in all")
    ranges: list[tuple[str, Mapping[int, int] | Sequence[int], int, Mapping[int, int] | Sequence[int]]] = [
        ("parameters", cost.params_total_min, total, cost.params_total),
        ("macs", cost.macs_min, sizes.macs[-1], cost.macs),
    ]
    forecast = cost.mask_bits[task] if cost.mask_bits else 0
    ranges.append(("bits of masks", {task: forecast}, sizes.mask_bits[-1], {task: forecast}))
    room = 8 * count_bytes(learner.model.packed_masks())
    require(
        sizes.mask_bits[-1] <= room,
        f"task {task}: mask_bits is {sizes.mask_bits[-1]}, and packed_masks() returns tensors of {room} bits: where "
        "masks are kept, it must return them",
    )
    if memory is not None:
        _check_memory(learner, task, memory)
        if cost.memory_bytes:
            ranges.append(("bytes of memory", cost.memory_bytes_min, memory, cost.memory_bytes))
    for what, least, found, most in ranges:
        require(
            least[task] <= found <= most[task],
            f"task {task}: {found} {what} were measured, and cost said {least[task]} to {most[task]}",
        )


def _check_memory(learner: Learner, task: int, memory: int) -> None:
    parts = learner.sizes.memory_by_kind
    require(sum(parts.values()) == memory, f"task {task}: {memory} bytes of memory are not the sum of {parts}")
    if not is_resumable(learner.strategy):
        return
    whole, learned = state_bytes(learner)
    if getattr(type(learner.strategy), "kept", None) is StagedStrategy.kept:
        require(memory == whole, f"task {task}: {memory} bytes of memory were counted, and the state holds {whole}")
    require(
        memory >= learned,
        f"task {task}: {memory} bytes of memory were counted ({parts}), and the state that learning goes on from holds "
        f"{learned}: kept() must return all of it",
    )


def state_bytes(learner: Learner) -> tuple[int, int]:
    """Bytes of the tensors in the state that learning goes on from, as it comes back from a file.

    Returns:
        All of them but states of random generators; and those of what was learned, where images are counted as such,
        and int64 is not, such as places of images in a stream.
    """
    state, plan = from_file(learner.strategy.state_dict()), learner.stream.plan
    weights = _distinct(state["weights"])
    generator = torch.get_rng_state().shape
    own = [it for it in _distinct(state["own"]) if it.dtype != torch.uint8 or it.shape != generator]
    image = (plan.channels, plan.height, plan.width)
    learned = 0
    for tensor in own:
        if tensor.shape[1:] == image:
            learned += len(tensor) * (image[0] * image[1] * image[2] + LABEL_BYTES)
        elif tensor.dtype != torch.int64:
            learned += tensor.nbytes
    model = sum(tensor.nbytes for tensor in weights)
    return model + sum(tensor.nbytes for tensor in own), model + learned


def _distinct(state: Any) -> list[Tensor]:
    """The tensors of a state in any nesting, those at one place in memory once."""
    return list({(tensor.data_ptr(), tensor.shape): tensor for tensor in _tensors(state)}.values())


def _tensors(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor) and state.numel():
        yield state
    elif isinstance(state, dict):
        yield from (tensor for part in state.values() for tensor in _tensors(part))
    elif isinstance(state, list | tuple):
        yield from (tensor for part in state for tensor in _tensors(part))
