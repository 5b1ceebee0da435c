"""Cells as modules: operations, the stem, the extension unit of a genotype, the proxy network that searches run on.

The exact forms of the eight operations are the published code's (paper, section II-D). All convolutions are bias-free;
``affine`` is false in a proxy network and true in the super model. Images are ``[N, C, H, W]``; stride 2 maps H to
ceil(H / 2) for every operation. Operations that begin with a ReLU share it: where several read one :class:`State`, it
is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from operator import add
from typing import Any, Self, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from seu_bench.models.layers import ChannelsLastConv2d
from seu_bench.models.modes import freeze
from seu_bench_kit.kernels import DepthwiseConv2d, concatenate, pick_pixels
from seu_bench_kit.search_space import (
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


class State:
    """Input that several operations of a cell share, ``[N, C, H, W]``, and its ReLU, computed on first use.

    Without gradients every operation computes its own: there it hardly counts, and hooks on the calls of ReLU,
    which scores of untrained networks use, see all of them.
    """

    def __init__(self, features: Tensor) -> None:
        self.features = features
        self._rectified: Tensor | None = None

    @property
    def rectified(self) -> Tensor:
        """The ReLU of the features."""
        if self._rectified is not None:
            return self._rectified
        rectified = functional.relu(self.features)
        if torch.is_grad_enabled():
            self._rectified = rectified
        return rectified

    def through(self, operation: nn.Module) -> Tensor:
        """The output of an operation that :func:`make_operation` built."""
        first = operation[0] if isinstance(operation, nn.Sequential) else operation
        y: Tensor = operation(self if isinstance(first, LeadingReLU | FactorizedReduce) else self.features)
        return y


class LeadingReLU(nn.ReLU):
    """The ReLU that an operation begins with: of images, or that of a :class:`State`."""

    def forward(self, x: Tensor | State) -> Tensor:
        return x.rectified if isinstance(x, State) else functional.relu(x)


class Zero(nn.Module):
    """``none``: zeros, at half resolution where the stride is 2."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x[:, :, :: self.stride, :: self.stride])


class FactorizedReduce(nn.Module):
    """Halve the resolution: two stride-2 1x1 convolutions, one of them shifted by a pixel, side by side."""

    def __init__(self, inputs: int, outputs: int, *, affine: bool, norm: bool = True) -> None:
        super().__init__()
        self.relu = LeadingReLU()
        self.even = nn.Conv2d(inputs, outputs // 2, 1, bias=False)
        self.odd = nn.Conv2d(inputs, outputs - outputs // 2, 1, bias=False)
        # The published code builds this BatchNorm, counts it and does not call it (docs/explanation/seu.md).
        self.norm = nn.BatchNorm2d(outputs, affine=affine)
        self.apply_norm = norm

    def forward(self, x: Tensor | State) -> Tensor:
        """``[N, C_in, H, W]`` -> ``[N, C_out, ceil(H/2), ceil(W/2)]``."""
        # Pixels are picked before the convolutions rather than by their stride: in torch 2.15 on CPUs the backward pass
        # of a 1x1 convolution with stride 2 writes past its memory for 2 to 7 channels in channels-last layout.
        even, odd = pick_pixels(self.relu(x))
        y = torch.cat([self.even(even), self.odd(odd)], dim=1)
        return self.norm(y) if self.apply_norm else y


def relu_conv_norm(inputs: int, outputs: int, *, affine: bool) -> nn.Module:
    """ReLU, 1x1 convolution, BatchNorm."""
    return nn.Sequential(
        LeadingReLU(), nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs, affine=affine)
    )


def separable(
    channels: int, kernel: int, stride: int, dilation: int, relu: nn.ReLU, *, affine: bool
) -> list[nn.Module]:
    """``relu``, depthwise convolution, pointwise convolution, BatchNorm."""
    return [
        relu,
        DepthwiseConv2d(channels, kernel, stride, dilation),
        nn.Conv2d(channels, channels, 1, bias=False),
        nn.BatchNorm2d(channels, affine=affine),
    ]


def make_operation(
    name: str, channels: int, stride: int, *, affine: bool, pool_norm: bool = False, reduce_norm: bool = True
) -> nn.Module:
    """Build an operation of :data:`~seu_bench_kit.search_space.OPERATIONS`.

    Args:
        pool_norm: put a BatchNorm without affine parameters behind pooling (the proxy network does).
        reduce_norm: whether FactorizedReduce applies its BatchNorm.

    Raises:
        ValueError: there is no such operation.
    """
    if name == "none":
        return Zero(stride)
    if name == "skip_connect":
        if stride == 1:
            return nn.Identity()
        return FactorizedReduce(channels, channels, affine=affine, norm=reduce_norm)
    if name in ("max_pool_3x3", "avg_pool_3x3"):
        average = nn.AvgPool2d(3, stride, padding=1, count_include_pad=False)
        pool = nn.MaxPool2d(3, stride, padding=1) if name == "max_pool_3x3" else average
        return nn.Sequential(pool, nn.BatchNorm2d(channels, affine=False)) if pool_norm else pool
    if name.startswith("sep_conv"):
        kernel = int(name[-1])
        # The second ReLU may write over its input: BatchNorm does not need its output for gradients.
        return nn.Sequential(
            *separable(channels, kernel, stride, 1, LeadingReLU(), affine=affine),
            *separable(channels, kernel, 1, 1, nn.ReLU(inplace=True), affine=affine),
        )
    if name.startswith("dil_conv"):
        return nn.Sequential(*separable(channels, int(name[-1]), stride, 2, LeadingReLU(), affine=affine))
    raise ValueError(f"no operation is called {name!r}")


def sample_of(genotype: Genotype) -> Sample:
    """Sample by which a proxy network computes a genotype: absent edges carry ``none``."""
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

    def forward(self, images: Tensor, sample: Sample | Mixture) -> Tensor:
        """Logits ``[N, num_classes]`` of the sampled network on ``images`` ``[N, C, H, W]``, or of all operations."""
        if isinstance(sample[0], Tensor):
            return self.mixture(images, sample)
        return self.logits(images, lambda cell, *inputs: cell(*inputs, sample[cell.plan.reduction]))

    def sample_function(self, sample: Sample) -> Callable[[Tensor], Tensor]:
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
