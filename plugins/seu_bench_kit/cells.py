"""The paper's search space: cells of eight operations, as modules and on shared weights.

The exact forms of the eight operations are the published code's (paper, section II-D). All convolutions are bias-free;
``affine`` is false in a proxy network and true in the super model. Images are ``[N, C, H, W]``; stride 2 maps H to
ceil(H / 2) for every operation. Operations that begin with a ReLU share it: where several read one :class:`State`, it
is computed once.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from seu_bench_kit.genotypes import EDGES, GENOTYPES, INPUTS, INTERMEDIATE, OPERATIONS, Edge, Genotype, uniform_genotype
from seu_bench_kit.kernels import DepthwiseConv2d, concatenate, pick_pixels
from seu_bench_kit.search_space import Arrow, Below, CellPlan, Sample, SearchSpace, TieOrder, Vector
from seu_bench_kit.units import Unit


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
    """Build an operation of :data:`~seu_bench_kit.genotypes.OPERATIONS`.

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
    for node in INTERMEDIATE:
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

    def __init__(self, genotype: Genotype, plan: CellPlan, space: CellSpace) -> None:
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

    def __init__(self, plan: CellPlan, space: CellSpace) -> None:
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

    def forward(self, older: Tensor, newer: Tensor, sample: Sample) -> Tensor:
        """Output with one operation on each edge, or with all of them, multiplied by their weights and summed (DARTS,
        equation 2); each node sums its edges (docs/explanation/seu.md).

        ``none`` gives zeros, so that a mixture does without it; its weight acts through what it takes from the others.
        """
        # With one cell type the same rows serve both kinds of cell.
        chosen = sample[-len(EDGES) :] if self.plan.reduction else sample[: len(EDGES)]

        def edge(row: int, state: State) -> Tensor:
            here = chosen[row]
            if not isinstance(here, Tensor):
                return state.through(self._operation(row, here))
            return reduce(add, (here[at] * state.through(self._operation(row, at)) for at in range(1, len(OPERATIONS))))

        return _cell(self.inputs(older, newer), EDGES, edge)

    def copy_to(self, unit: ExtensionUnit, genotype: Genotype) -> None:
        """Give a unit the weights that its genotype shares; what is affine in it alone stays as it is."""
        unit.inputs.load_state_dict(self.inputs.state_dict(), strict=False)
        for edge, operation in zip(genotype.edges(self.plan.kind), unit.operations, strict=True):
            here = self._operation(EDGES.index((edge.node, edge.source)), OPERATIONS.index(edge.operation))
            operation.load_state_dict(here.state_dict(), strict=False)

    def _operation(self, row: int, index: int) -> nn.Module:
        return cast(nn.ModuleList, self.edges[row])[index]


@dataclass(frozen=True)
class CellSpace(SearchSpace):
    """The paper's search space (section II-D): two forms of a cell with four nodes, whose edges carry operations.

    Attributes:
        edges: ``top2`` keeps the two strongest edges of each node and never chooses ``none`` (the published code);
            ``all14`` keeps every edge, ``none`` allowed (the paper's equation 11).
        cell_types: 2 for separate normal and reduction architectures, 1 for one that serves both.
        factorized_reduce_norm: whether FactorizedReduce applies its BatchNorm.
    """

    edges: Literal["top2", "all14"] = "top2"
    cell_types: Literal[1, 2] = 2
    factorized_reduce_norm: bool = True

    named = GENOTYPES

    @property
    def decisions(self) -> tuple[int, ...]:
        """For ``top2``, of each node: a source, its operation, another source, its operation; else the choices."""
        if self.edges == "all14":
            return self.choices
        operations = len(OPERATIONS) - 1
        form = [size for node in INTERMEDIATE for size in (node, operations, node - 1, operations)]
        return tuple(form * self.cell_types)

    def decode(self, decisions: Sequence[int]) -> Genotype:
        """The genotype of decisions, each node's edges in the order of their sources."""
        length = len(decisions) // self.cell_types
        forms = [self._decode_form(decisions[start : start + length]) for start in range(0, len(decisions), length)]
        return Genotype(forms[0], forms[-1])

    def encode(self, genotype: Genotype) -> tuple[int, ...]:
        """Decisions that make the genotype."""
        if self.edges == "all14":
            return tuple(self.sample_of(genotype))
        forms = (genotype.normal, genotype.reduction)[: self.cell_types]
        return tuple(decision for form in forms for decision in self._encode_form(form))

    def from_dict(self, value: Any) -> Genotype:
        """The genotype of its edges."""
        return Genotype.from_dict(value)

    def fault(self, genotype: object) -> str | None:
        """The reason why ``genotype`` is none of this space; ``None`` if it is one."""
        if not isinstance(genotype, Genotype):
            return f"it is no Genotype but {type(genotype).__name__}"
        if self.cell_types == 1 and genotype.normal != genotype.reduction:
            return "its normal and its reduction form differ, and with cell_types=1 they are one"
        for kind in (genotype.normal, genotype.reduction):
            if self.edges == "all14" and len(kind) != len(EDGES):
                return f"it has {len(kind)} edges in place of {len(EDGES)}"
            if self.edges == "top2":
                for node in INTERMEDIATE:
                    if (count := sum(edge.node == node for edge in kind)) != 2:
                        return f"node {node} has {count} edges in place of 2"
                if any(edge.operation == OPERATIONS[0] for edge in kind):
                    return f"{OPERATIONS[0]!r} is on an edge, and edges=top2 never chooses it"
        return None

    @property
    def extremes(self) -> tuple[Genotype, Genotype]:
        """Pooling everywhere, and separable 5x5 convolutions."""
        return uniform_genotype("max_pool_3x3", self.edges), uniform_genotype("sep_conv_5x5", self.edges)

    def random_genotype(self, below: Below = random.randrange) -> Genotype:
        """A genotype drawn uniformly: for each node two of its possible sources and an operation other than ``none``
        for each (``top2``), or an operation for every edge (``all14``)."""
        if self.edges == "all14":
            return self.decode([below(size) for size in self.decisions])
        kinds = [self._random_kind(below) for _ in range(self.cell_types)]
        return Genotype(kinds[0], kinds[-1])

    @property
    def choices(self) -> tuple[int, ...]:
        """An operation for every edge, of the normal and of the reduction cells."""
        return (len(OPERATIONS),) * (len(EDGES) * self.cell_types)

    def sample_of(self, genotype: Genotype) -> list[int]:
        """The operation of each edge; absent edges carry ``none``."""
        chosen = []
        for kind in (genotype.normal, genotype.reduction)[: self.cell_types]:
            operations = {(edge.node, edge.source): OPERATIONS.index(edge.operation) for edge in kind}
            chosen += [operations.get(edge, 0) for edge in EDGES]
        return chosen

    def unit(self, genotype: Genotype, place: CellPlan) -> ExtensionUnit:
        """A cell."""
        return ExtensionUnit(genotype, place, self)

    def proxy(self, place: CellPlan) -> ProxyCell:
        """A cell with every operation on every edge."""
        return ProxyCell(place, self)

    def draw(self, genotype: Genotype) -> Mapping[str, Sequence[Arrow]]:
        """One picture of each form; the output is all nodes side by side."""
        names = {0: "older", 1: "newer"}

        def arrows(form: Sequence[Edge]) -> list[Arrow]:
            found = [
                Arrow(names.get(edge.source, str(edge.source)), str(edge.node), edge.operation)
                for edge in form
                if edge.operation != OPERATIONS[0]
            ]
            return [*found, *(Arrow(str(node), "output", "") for node in INTERMEDIATE)]

        forms = {"normal": genotype.normal, "reduction": genotype.reduction}
        return {name: arrows(form) for name, form in list(forms.items())[: self.cell_types]}

    def _decode_form(self, decisions: Sequence[int]) -> tuple[Edge, ...]:
        if self.edges == "all14":
            return tuple(Edge(*edge, OPERATIONS[choice]) for edge, choice in zip(EDGES, decisions, strict=True))
        edges = []
        for place, node in enumerate(INTERMEDIATE):
            first, first_operation, second, second_operation = decisions[4 * place : 4 * place + 4]
            others = [source for source in range(node) if source != first]
            pairs = [(first, first_operation), (others[second], second_operation)]
            edges += [Edge(node, source, OPERATIONS[1 + operation]) for source, operation in sorted(pairs)]
        return tuple(edges)

    @staticmethod
    def _encode_form(form: Sequence[Edge]) -> list[int]:
        decisions: list[int] = []
        for node in INTERMEDIATE:
            first, second = (edge for edge in form if edge.node == node)
            place = second.source - (second.source > first.source)
            labels = [OPERATIONS.index(edge.operation) - 1 for edge in (first, second)]
            decisions += [first.source, labels[0], place, labels[1]]
        return decisions

    @staticmethod
    def _random_kind(below: Below) -> tuple[Edge, ...]:
        drawn = []
        for node in INTERMEDIATE:
            sources = list(range(node))
            pair = sorted(sources.pop(below(len(sources))) for _ in range(2))
            drawn += [Edge(node, source, OPERATIONS[1 + below(len(OPERATIONS) - 1)]) for source in pair]
        return tuple(drawn)

    def _derive(self, rows: Sequence[Vector], tie_order: TieOrder) -> Genotype:
        kinds = [
            self._derive_kind(np.stack(rows[start : start + len(EDGES)]), tie_order)
            for start in range(0, len(rows), len(EDGES))
        ]
        return Genotype(kinds[0], kinds[-1])

    def _derive_kind(self, table: Vector, tie_order: TieOrder) -> tuple[Edge, ...]:
        first = 1 if self.edges == "top2" else 0
        # The first of equal candidates wins, in the order of tie_order.
        best = [first + max(tie_order(len(row) - first), key=row[first:].__getitem__) for row in table]
        chosen = []
        for node in INTERMEDIATE:
            rows = [row for row, (end, _) in enumerate(EDGES) if end == node]
            if self.edges == "top2":
                ranked = [rows[position] for position in tie_order(len(rows))]
                ranked.sort(key=lambda row: -table[row, best[row]])  # a stable sort: ties keep tie_order
                rows = sorted(ranked[:2])
            chosen += rows
        return tuple(Edge(*EDGES[row], OPERATIONS[best[row]]) for row in chosen)
