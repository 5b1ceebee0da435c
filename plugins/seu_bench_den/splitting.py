"""Units whose incoming weights drifted too far, split in two (Yoon et al., section 3.3, algorithm 4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from seu_bench.models import GrowingNetwork


@dataclass(frozen=True)
class OldLayer:
    """A layer as of the task before.

    Attributes:
        weight: ``[units, inputs]``.
        bias: ``[units]``; ``None``: there is none.
    """

    weight: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, network: GrowingNetwork, task: int) -> list[OldLayer]:
        """Copies of all layers as of a task."""
        layers = [network.layer(index) for index in range(len(network.layers))]
        found = [(layer.weight(task), layer.bias(task)) for layer in layers]
        return [cls(weight.detach().clone(), None if bias is None else bias.detach().clone()) for weight, bias in found]


def distance(network: GrowingNetwork, task: int, old: Sequence[OldLayer]) -> Tensor:
    """Squared distance of all weights and biases from the old ones, a scalar.

    Args:
        network: as it is now.
        task: as of which ``old`` is.
        old: by layer.

    Returns:
        The sum over everything that there was then.
    """
    terms = []
    for index, before in enumerate(old):
        layer = network.layer(index)
        terms.append((layer.weight(task) - before.weight).square().sum())
        bias = layer.bias(task)
        if bias is not None and before.bias is not None:
            terms.append((bias - before.bias).square().sum())
    return torch.stack(terms).sum()


@torch.no_grad()
def drifted_units(
    network: GrowingNetwork,
    task: int,
    old: Sequence[OldLayer],
    threshold: float,
    limit: int,
    order: Literal["most_drifted", "least_drifted"] = "most_drifted",
) -> list[Tensor]:
    """Find the units to split.

    Args:
        network: as it is now.
        task: as of which ``old`` is.
        old: by layer.
        threshold: L2 distance of a unit's incoming weights from the old ones, above which it drifted.
        limit: units of a layer, at most.
        order: which of more are taken; those of equal drift in the order of their indices.

    Returns:
        For each layer the indices of units, int64, ascending.
    """
    found = []
    for index, before in enumerate(old):
        drift = (network.layer(index).weight(task) - before.weight).flatten(1).norm(dim=1)
        over = (drift > threshold).nonzero().flatten()
        first = drift[over].argsort(descending=order == "most_drifted", stable=True)[:limit]
        found.append(over[first].sort().values)
    return found


@torch.no_grad()
def split_units(network: GrowingNetwork, task: int, old: Sequence[OldLayer], units: Sequence[Tensor]) -> None:
    """Give the newest task copies of drifted units, and the units their old weights back.

    A copy has the unit's incoming weights as they are now. What the newest task's own units, the other copies and its
    head read of the unit, they read of the copy from now on; so what they compute stays the same. Old units cannot:
    they go on to read the unit, for earlier tasks do, and begin with a weight of 0 to the copy.

    Args:
        network: whose newest task is ``task``.
        task: 1 or more.
        old: layers as of the task before.
        units: of each layer, int64; none where it is empty.
    """
    before, added = network.widths(task - 1), network.widths(task)
    network.widen([len(each) for each in units])
    read: tuple[Tensor, Tensor] | None = None
    for index, split in enumerate(units):
        layer, then = network.layer(index), old[index]
        weight, bias = layer.weight(task).clone(), layer.bias(task)
        copies = torch.arange(len(split), device=split.device) + added[index]
        known = then.weight.shape[1]
        weight[copies] = weight[split]
        if bias is not None:
            bias = bias.clone()
            bias[copies] = bias[split]
        if read is not None:
            originals, doubles = read
            new = torch.arange(before[index], len(weight), device=split.device)[:, None]
            weight[: before[index], doubles] = 0.0
            weight[new, doubles] = weight[new, originals]
            weight[new, originals] = 0.0
        weight[split, :known] = then.weight[split]
        weight[split, known:] = 0.0
        if bias is not None and then.bias is not None:
            bias[split] = then.bias[split]
        layer.assign(task, weight, bias)
        read = (split, copies)
    head = network.head(task)
    if read is not None:
        originals, doubles = read
        head.weight[:, doubles] = head.weight[:, originals]
        head.weight[:, originals] = 0.0
