"""The part of the network that a task's head reads (Yoon et al., algorithm 2): what is retrained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from seu_bench.models import GrowingNetwork


@torch.no_grad()
def reached_units(network: GrowingNetwork, task: int) -> list[Tensor]:
    """Follow weights that are not 0 from a task's outputs downwards.

    Args:
        network: whose newest task has a head that was trained with l1.
        task: its index.

    Returns:
        For each layer the units that an output depends on, bool ``[units]``.
    """
    reached = [(network.head(task).weight != 0).any(dim=0)]
    for index in range(len(network.layers) - 1, 0, -1):
        weight = network.layer(index).weight(task)
        reached.insert(0, (weight[reached[0]] != 0).any(dim=0))
    return reached


def subgraph_masks(network: GrowingNetwork, task: int, units: Sequence[Tensor]) -> Mapping[Tensor, Tensor]:
    """The weights between units of a sub-graph, zeros included, and their biases.

    Args:
        network: without units of the task's own.
        task: whose head is on the sub-graph.
        units: what :func:`reached_units` returned.

    Returns:
        For each parameter what trains of it, bool and of its shape; all weights of pixels are between units.
    """
    masks: dict[Tensor, Tensor] = {}
    below = units[0].new_ones(network.chain[0].inputs * network.chain[0].spread)
    for index, reached in enumerate(units):
        masks |= dict(network.layer(index).parts(task, reached[:, None] & below, reached))
        below = reached
    head = network.head(task)
    masks[head.weight] = below.expand_as(head.weight)
    masks[head.bias] = torch.ones_like(head.bias, dtype=torch.bool)
    return masks
