"""Cells as modules: the stem, the extension unit of a genotype, and the proxy network that searches run on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add
from typing import Any, Self, TypeAlias, cast

from torch import Tensor, nn

from seu_bench.models.kernels import concatenate
from seu_bench.models.layers import ChannelsLastConv2d
from seu_bench.models.modes import freeze
from seu_bench.models.operations import FactorizedReduce, State, make_operation, relu_conv_norm
from seu_bench.search_space import (
    EDGES,
    INPUTS,
    NODES,
    OPERATIONS,
    STEM_MULTIPLIER,
    CellPlan,
    Genotype,
    SearchSpace,
    cell_plans,
)

#: One operation index per edge, for the normal and for the reduction cells.
Sample: TypeAlias = tuple[Sequence[int], Sequence[int]]
#: One weight per edge and operation, ``[14, 8]``, for the normal and for the reduction cells.
Mixture: TypeAlias = tuple[Tensor, Tensor]


def sample_of(genotype: Genotype) -> Sample:
    """Sample by which a proxy network computes a genotype: absent edges carry ``none``.

    Args:
        genotype: to compute.

    Returns:
        Index of the operation of each edge, of the normal and of the reduction cells.
    """
    chosen = []
    for kind in (genotype.normal, genotype.reduction):
        operations = {(edge.node, edge.source): OPERATIONS.index(edge.operation) for edge in kind}
        chosen.append([operations.get(edge, 0) for edge in EDGES])
    return chosen[0], chosen[1]


class Unit(nn.Module):
    """A module that a layer of the super model can choose. A frozen unit never trains again."""

    frozen = False

    def freeze(self) -> None:
        """Stop training for good: no gradients, BatchNorm with the statistics it has."""
        self.frozen = True
        freeze(self)
        self.eval()

    def train(self, mode: bool = True) -> Self:
        """Switch to training, unless frozen: an Avalanche strategy calls this on the whole model."""
        return super().train(mode and not self.frozen)


class Stem(Unit):
    """First layer: 3x3 convolution to 3C channels, BatchNorm. A unit that can be chosen but is not searched.

    Args:
        image_channels: of the images.
        channels: C.
    """

    def __init__(self, image_channels: int, channels: int) -> None:
        super().__init__()
        outputs = STEM_MULTIPLIER * channels
        self.conv = ChannelsLastConv2d(image_channels, outputs, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, images: Tensor) -> Tensor:
        """``[N, image_channels, H, W] -> [N, 3C, H, W]``."""
        features: Tensor = self.norm(self.conv(images))
        return features


class _Inputs(nn.Module):
    """Bring a cell's two inputs to C channels and the same resolution."""

    def __init__(self, plan: CellPlan, *, affine: bool, reduce_norm: bool) -> None:
        super().__init__()
        if plan.after_reduction:
            self.older: nn.Module = FactorizedReduce(plan.older, plan.channels, affine=affine, norm=reduce_norm)
        else:
            self.older = relu_conv_norm(plan.older, plan.channels, affine=affine)
        self.newer = relu_conv_norm(plan.newer, plan.channels, affine=affine)

    def forward(self, older: Tensor, newer: Tensor) -> list[State]:
        """Return both as ``[N, C, H, W]``."""
        return [State(self.older(older)), State(self.newer(newer))]


def _cell(states: list[State], edges: Sequence[tuple[int, int]], edge: Callable[[int, State], Tensor]) -> Tensor:
    """A cell's nodes side by side, each the sum of ``edge(row, source)`` over its rows of ``edges``: node, source."""
    for node in range(INPUTS, INPUTS + NODES):
        arriving = [edge(row, states[source]) for row, (end, source) in enumerate(edges) if end == node]
        states.append(State(reduce(add, arriving)))
    return concatenate([state.features for state in states[INPUTS:]])


def _stride(plan: CellPlan, source: int) -> int:
    """Edges from the inputs of a reduction cell halve the resolution."""
    return 2 if plan.reduction and source < INPUTS else 1


class ExtensionUnit(Unit):
    """A cell of a genotype at a place of the super model (paper, figure 2b).

    Any two units of one place are interchangeable, whatever their genotypes: ``[N, older, ...], [N, newer, H, W] ->
    [N, 4C, H, W]``, at half the resolution in a reduction cell.

    Args:
        genotype: of the cell.
        plan: place, kind and channels of the cell.
        space: search space of the operations.
    """

    def __init__(self, genotype: Genotype, plan: CellPlan, space: SearchSpace) -> None:
        super().__init__()
        norms = {"affine": True, "reduce_norm": space.factorized_reduce_norm}
        self.inputs = _Inputs(plan, **norms)
        self.edges = genotype.edges(plan.kind)
        self.operations = nn.ModuleList(
            make_operation(edge.operation, plan.channels, _stride(plan, edge.source), **norms) for edge in self.edges
        )

    def forward(self, older: Tensor, newer: Tensor) -> Tensor:
        """Output of the cell."""
        edges = [(edge.node, edge.source) for edge in self.edges]
        return _cell(self.inputs(older, newer), edges, lambda row, state: state.through(self.operations[row]))


class ProxyCell(nn.Module):
    """A cell with every operation on every edge: one per edge is computed, or all of them are mixed."""

    def __init__(self, plan: CellPlan, space: SearchSpace) -> None:
        super().__init__()
        self.plan = plan
        norms = {"affine": False, "reduce_norm": space.factorized_reduce_norm}
        self.inputs = _Inputs(plan, **norms)
        self.edges = nn.ModuleList(
            nn.ModuleList(
                make_operation(name, plan.channels, _stride(plan, source), pool_norm=True, **norms)
                for name in OPERATIONS
            )
            for _, source in EDGES
        )

    def forward(self, older: Tensor, newer: Tensor, chosen: Sequence[int]) -> Tensor:
        """Output with operation ``chosen[e]`` on edge e; each node sums its edges (docs/explanation/seu.md)."""
        states = self.inputs(older, newer)
        return _cell(states, EDGES, lambda row, state: state.through(self._operation(row, chosen[row])))

    def mixture(self, older: Tensor, newer: Tensor, weights: Tensor) -> Tensor:
        """Output with every operation on every edge, multiplied by ``weights[e, o]`` and summed (DARTS, equation 2).

        ``none`` gives zeros, so that it is not computed; its weight acts through what it takes from the others.
        """

        def mixed(row: int, state: State) -> Tensor:
            operations = range(1, len(OPERATIONS))
            return reduce(add, (weights[row, at] * state.through(self._operation(row, at)) for at in operations))

        return _cell(self.inputs(older, newer), EDGES, mixed)

    def _operation(self, row: int, index: int) -> nn.Module:
        return cast(nn.ModuleList, self.edges[row])[index]


class CellNetwork(nn.Module):
    """A stem, cells, global average pooling, one head."""

    def __init__(
        self, image_channels: int, num_classes: int, cells: int, channels: int, make: Callable[[CellPlan], nn.Module]
    ) -> None:
        super().__init__()
        plans = cell_plans(cells, channels)
        self.stem = Stem(image_channels, channels)
        self.cells = nn.ModuleList(make(plan) for plan in plans)
        self.head = nn.Linear(plans[-1].output, num_classes)

    def logits(self, images: Tensor, compute: Callable[[Any, Tensor, Tensor], Tensor]) -> Tensor:
        """Logits ``[N, num_classes]``; ``compute(cell, older, newer)`` gives a cell's output."""
        older = newer = self.stem(images)
        for cell in self.cells:
            older, newer = newer, compute(cell, older, newer)
        logits: Tensor = self.head(newer.mean(dim=(2, 3)))
        return logits


class ProxyNetwork(CellNetwork):
    """The small network that a search trains: a stem, proxy cells, global average pooling, one head.

    Args:
        image_channels: of the input.
        num_classes: outputs of the head.
        cells, channels: the proxy's size (4 and 16 in the paper).
        space: what the search chooses from.

    Example:
        ``logits = ProxyNetwork(3, 10, 4, 16, SearchSpace())(images, sample_of(genotype))``
    """

    def __init__(self, image_channels: int, num_classes: int, cells: int, channels: int, space: SearchSpace) -> None:
        super().__init__(image_channels, num_classes, cells, channels, partial(ProxyCell, space=space))

    def forward(self, images: Tensor, sample: Sample) -> Tensor:
        """Logits ``[N, num_classes]`` of the sampled network on ``images`` ``[N, C, H, W]``."""
        return self.logits(images, lambda cell, *inputs: cell(*inputs, sample[cell.plan.reduction]))

    def sampled(self, sample: Sample) -> Callable[[Tensor], Tensor]:
        """The sampled network as a function of images alone."""
        return partial(self.__call__, sample=sample)

    def mixture(self, images: Tensor, weights: Mixture) -> Tensor:
        """Logits ``[N, num_classes]`` of all operations at once, weighted."""
        return self.logits(images, lambda cell, *inputs: cell.mixture(*inputs, weights[cell.plan.reduction]))


class GenotypeNetwork(CellNetwork):
    """The network of one genotype, which is what a task model is whose units are all new, at whatever size.

    Args:
        image_channels: of the input.
        num_classes: outputs of the head.
        cells, channels: the network's size.
        space: how units are built.
    """

    def __init__(
        self, genotype: Genotype, image_channels: int, num_classes: int, cells: int, channels: int, space: SearchSpace
    ) -> None:
        super().__init__(image_channels, num_classes, cells, channels, partial(ExtensionUnit, genotype, space=space))

    def forward(self, images: Tensor) -> Tensor:
        """Logits ``[N, num_classes]`` of ``images`` ``[N, C, H, W]``."""
        return self.logits(images, lambda cell, *inputs: cell(*inputs))
