"""What DEN does to the weights of a growing network: it makes them zero, finds those that a task needs, splits units.

Proximal steps are those of N. Parikh, S. Boyd, "Proximal Algorithms", 2014, sections 6.5.2 and 6.5.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, nn

from seu_bench_kit import GrowingNetwork

#: Weight ``[units, inputs]`` and bias ``[units]``, if there is one, of a layer as of the task before.
OldLayer: TypeAlias = tuple[Tensor, Tensor | None]


@torch.no_grad()
def soft_threshold(weight: Tensor, amount: float) -> None:
    """Bring each weight nearer to 0, in place: w becomes sign(w) max(|w| - amount, 0)."""
    weight.copy_(weight.sign() * (weight.abs() - amount).clamp(min=0.0))


@torch.no_grad()
def shrink_units(weight: Tensor, bias: Tensor | None, amount: float) -> None:
    """Bring the norm of each unit's incoming weights nearer to 0, in place: w becomes max(1 - amount / |w|, 0) w.

    A unit's group has its bias: one that is zero then computes nothing, and can be removed without a trace.

    Args:
        weight: ``[units, ...]``.
        bias: ``[units]``; ``None``: there is none.
        amount: what is taken off each norm.
    """
    squares = weight.flatten(1).square().sum(dim=1)
    norm = (squares if bias is None else squares + bias.square()).sqrt()
    factor = torch.where(norm > amount, 1 - amount / norm.clamp(min=torch.finfo(norm.dtype).tiny), 0.0)
    weight.mul_(factor.view(-1, *(1,) * (weight.dim() - 1)))
    if bias is not None:
        bias.mul_(factor)


@torch.no_grad()
def useful_units(weight: Tensor, bias: Tensor | None) -> Tensor:
    """Units with an incoming weight or a bias, bool ``[units]``."""
    useful = (weight != 0).flatten(1).any(dim=1)
    return useful if bias is None else useful | (bias != 0)


@dataclass(frozen=True)
class Rule:
    """What a stage trains, and how.

    Attributes:
        masks: what trains, by parameter; ``None`` for all of one.
        sparse: weights that l1 makes zero.
        groups: incoming weights and biases of units that group sparsity makes zero.
        pulled: whether old weights are pulled to where they were.
    """

    masks: Mapping[Tensor, Tensor | None]
    sparse: tuple[Tensor, ...] = ()
    groups: tuple[tuple[Tensor, Tensor | None], ...] = ()
    pulled: bool = False

    def apply_to(self, model: nn.Module) -> None:
        """Let a model's parameters require gradients where they train."""
        for parameter in model.parameters():
            mask = self.masks.get(parameter)
            parameter.requires_grad_(parameter in self.masks and (mask is None or bool(mask.any())))

    def add_decay(self, parameters: Iterable[Tensor], strength: float) -> None:
        """Add the gradient of the l2 penalty, and leave none where nothing trains."""
        with torch.no_grad():
            for parameter in parameters:
                if parameter.grad is None:
                    continue
                parameter.grad.add_(parameter, alpha=strength)
                mask = self.masks.get(parameter)
                if mask is not None:
                    parameter.grad.mul_(mask)

    def shrink(self, l1: float, group_sparsity: float) -> None:
        """The proximal step, after the gradient's: l1 and then groups, which together are that of the sum of both."""
        for weight in self.sparse:
            soft_threshold(weight, l1)
        for weight, bias in self.groups:
            shrink_units(weight, bias, group_sparsity)


def whole(*modules: nn.Module) -> dict[Tensor, Tensor | None]:
    """All parameters of some modules, without masks."""
    return {parameter: None for module in modules for parameter in module.parameters()}


def first_rule(network: GrowingNetwork) -> Rule:
    """The first task: everything, with l1 on all weights."""
    layers = [network.layer(index) for index in range(len(network.layers))]
    weights = [weight for layer in layers for weight in layer.own.values()]
    return Rule(whole(network), sparse=(*weights, network.head(0).weight))


def selection_rule(network: GrowingNetwork, task: int) -> Rule:
    """The new head alone, with l1."""
    head = network.head(task)
    return Rule(whole(head), sparse=(head.weight,))


def expansion_rule(network: GrowingNetwork, task: int) -> Rule:
    """What the task added, with l1 and group sparsity, and its head."""
    masks, sparse, groups = whole(network.head(task)), [], []
    for index in range(len(network.layers)):
        layer, name = network.layer(index), str(task)
        for part in (layer.own, layer.across):
            if name in part:
                sparse.append(part[name])
        if name in layer.own:
            groups.append((layer.own[name], layer.biases.get(name, None)))
        masks |= dict.fromkeys(layer.blocks([task]))
    return Rule(masks, tuple(sparse), tuple(groups))


def pulled_rule(network: GrowingNetwork, task: int) -> Rule:
    """All that the task is computed by, old weights held near where they were."""
    return Rule(whole(network.task_module(task)), pulled=True)


@torch.no_grad()
def reached_units(network: GrowingNetwork, task: int) -> list[Tensor]:
    """Follow weights that are not 0 from a task's outputs downwards.

    Returns:
        For each layer the units that an output depends on, bool ``[units]``.
    """
    reached = [(network.head(task).weight != 0).any(dim=0)]
    for index in range(len(network.layers) - 1, 0, -1):
        weight = network.layer(index).weight(task)
        reached.insert(0, (weight[reached[0]] != 0).any(dim=0))
    return reached


def subgraph_masks(network: GrowingNetwork, task: int, units: Sequence[Tensor]) -> Mapping[Tensor, Tensor]:
    """The weights between units of a sub-graph, zeros included, and their biases."""
    masks: dict[Tensor, Tensor] = {}
    below = units[0].new_ones(network.chain[0].inputs * network.chain[0].spread)
    for index, reached in enumerate(units):
        masks |= dict(network.layer(index).parts(task, reached[:, None] & below, reached))
        below = reached
    head = network.head(task)
    masks[head.weight] = below.expand_as(head.weight)
    masks[head.bias] = torch.ones_like(head.bias, dtype=torch.bool)
    return masks


def old_layers(network: GrowingNetwork, task: int) -> list[OldLayer]:
    """Copies of all layers as of a task."""
    layers = [network.layer(index) for index in range(len(network.layers))]
    found = [(layer.weight(task), layer.bias(task)) for layer in layers]
    return [(weight.detach().clone(), None if bias is None else bias.detach().clone()) for weight, bias in found]


def distance(network: GrowingNetwork, task: int, old: Sequence[OldLayer]) -> Tensor:
    """Squared distance of all weights and biases from the old ones, a scalar."""
    terms = []
    for index, before in enumerate(old):
        now = network.layer(index).weight(task), network.layer(index).bias(task)
        pairs = zip(now, before, strict=True)
        terms += [(new - then).square().sum() for new, then in pairs if new is not None and then is not None]
    return torch.stack(terms).sum()


@torch.no_grad()
def drifted_units(
    network: GrowingNetwork,
    task: int,
    old: Sequence[OldLayer],
    threshold: float,
    limit: int,
) -> list[Tensor]:
    """Find the units to split: those that drifted most."""
    found = []
    for index, (before, _) in enumerate(old):
        drift = (network.layer(index).weight(task) - before).flatten(1).norm(dim=1)
        over = (drift > threshold).nonzero().flatten()
        first = drift[over].argsort(descending=True, stable=True)[:limit]
        found.append(over[first].sort().values)
    return found


@torch.no_grad()
def split_units(network: GrowingNetwork, task: int, old: Sequence[OldLayer], units: Sequence[Tensor]) -> None:
    """Give the newest task copies of drifted units, and the units their old weights back.

    A copy has the unit's incoming weights as they are now. What the newest task's own units, the other copies and its
    head read of the unit, they read of the copy from now on; so what they compute stays the same. Old units cannot:
    they go on to read the unit, for earlier tasks do, and begin with a weight of 0 to the copy.
    """
    before, added = network.widths(task - 1), network.widths(task)
    network.widen([len(each) for each in units])
    read: tuple[Tensor, Tensor] | None = None
    for index, split in enumerate(units):
        layer, (old_weight, old_bias) = network.layer(index), old[index]
        weight, bias = layer.weight(task).clone(), layer.bias(task)
        copies = torch.arange(len(split), device=split.device) + added[index]
        known = old_weight.shape[1]
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
        weight[split, :known] = old_weight[split]
        weight[split, known:] = 0.0
        if bias is not None and old_bias is not None:
            bias[split] = old_bias[split]
        layer.assign(task, weight, bias)
        read = (split, copies)
    head = network.head(task)
    if read is not None:
        originals, doubles = read
        head.weight[:, doubles] = head.weight[:, originals]
        head.weight[:, originals] = 0.0
