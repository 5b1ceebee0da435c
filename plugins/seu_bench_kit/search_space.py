"""The vocabulary that searchers and creators share: operations, genotypes, the plan of cells.

An *extension unit* is a cell (paper, figure 2b): two input nodes (0 and 1, the outputs of the two layers before),
four intermediate nodes (2 to 5), each the sum of its incoming edges, and the concatenation of the four as output.
Every edge carries one of eight operations. No torch here: sizes are known before anything is allocated.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seu_bench.config.options import did_you_mean
from seu_bench.errors import OptionError

__all__ = [
    "EDGES",
    "GENOTYPES",
    "OPERATIONS",
    "Edge",
    "Genotype",
    "SearchSpace",
    "named_genotype",
    "uniform_genotype",
]

#: The eight operations in the order of their indices (paper, section II-D).
OPERATIONS = (
    "none",
    "max_pool_3x3",
    "avg_pool_3x3",
    "skip_connect",
    "sep_conv_3x3",
    "sep_conv_5x5",
    "dil_conv_3x3",
    "dil_conv_5x5",
)
INPUTS = 2
NODES = 4
_INTERMEDIATE = range(INPUTS, INPUTS + NODES)
#: Every possible edge as (node, source), 14 of them, in the order of the rows of a probability table.
EDGES = tuple((node, source) for node in _INTERMEDIATE for source in range(node))
#: Output channels of the stem, as a multiple of the initial channels.
STEM_MULTIPLIER = 3

Table: TypeAlias = NDArray[np.float64]
CellKind: TypeAlias = Literal["normal", "reduction"]


class Edge(NamedTuple):
    """An operation on the way from ``source`` to ``node``."""

    node: int
    source: int
    operation: str


@dataclass(frozen=True)
class Genotype:
    """Architecture of an extension unit: the edges of its normal and of its reduction form.

    The order of a form's edges is free. A node may not take the same source twice; with ``edges="top2"`` each of the
    four nodes (2 to 5) has exactly two edges and none is ``none``, with ``all14`` a form has all of ``EDGES``. With
    ``cell_types=1`` both forms are equal. :meth:`SearchSpace.fault` says what is wrong with one.
    """

    normal: tuple[Edge, ...]
    reduction: tuple[Edge, ...]

    def __post_init__(self) -> None:
        for edge in (*self.normal, *self.reduction):
            if (edge.node, edge.source) not in EDGES or edge.operation not in OPERATIONS:
                raise ValueError(f"{edge} is not an edge of this search space")
        for kind in (self.normal, self.reduction):
            if {edge.node for edge in kind} != set(_INTERMEDIATE):
                raise ValueError("every intermediate node needs at least one incoming edge")
            if len({(edge.node, edge.source) for edge in kind}) != len(kind):
                raise ValueError("an edge is given twice")

    def edges(self, kind: CellKind) -> tuple[Edge, ...]:
        """The edges of one form."""
        return self.reduction if kind == "reduction" else self.normal

    def to_dict(self) -> dict[str, list[list[Any]]]:
        """Plain values for JSON: ``{"normal": [[node, source, operation], ...], "reduction": ...}``."""
        return {"normal": [list(edge) for edge in self.normal], "reduction": [list(edge) for edge in self.reduction]}

    @classmethod
    def from_dict(cls, value: Any) -> Genotype:
        """The inverse of :meth:`to_dict`.

        Raises:
            ValueError: it is not a genotype of this space.
        """
        try:
            forms = [
                tuple(Edge(int(node), int(source), str(operation)) for node, source, operation in value[kind])
                for kind in ("normal", "reduction")
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a genotype: {error}") from error
        return cls(*forms)


@dataclass(frozen=True)
class SearchSpace:
    """The genotypes that can be found, and how units are built of them.

    Attributes:
        edges: ``top2`` keeps the two strongest edges of each node and never chooses ``none`` (the published code);
            ``all14`` keeps every edge, ``none`` allowed (the paper's equation 11).
        cell_types: 2 for separate normal and reduction architectures, 1 for one that serves both.
        factorized_reduce_norm: whether FactorizedReduce applies its BatchNorm.
    """

    edges: Literal["top2", "all14"] = "top2"
    cell_types: Literal[1, 2] = 2
    factorized_reduce_norm: bool = True

    def derive(self, tables: Sequence[Table], tie_order: Callable[[int], Sequence[int]] = range) -> Genotype:
        """The genotype of the highest probabilities.

        Args:
            tables: one table ``[14, 8]`` per cell type: a row per edge of ``EDGES``, a column per operation.
            tie_order: order in which ``n`` equal candidates are preferred; the first index by default.

        Raises:
            ValueError: a table holds NaN, which no rule can rank.

        Example:
            ``SearchSpace(edges="all14", cell_types=1).derive([table])``
        """
        if any(np.isnan(table).any() for table in tables):
            raise ValueError("a table of operations holds NaN")
        kinds = [self._derive_kind(table, tie_order) for table in tables]
        return Genotype(kinds[0], kinds[-1])

    def random_genotype(self, below: Callable[[int], int] = random.randrange) -> Genotype:
        """A genotype drawn uniformly: for each node two of its possible sources and an operation other than ``none``
        for each (``top2``), or an operation for every edge (``all14``).

        Args:
            below: draws an integer from 0 to n - 1; by Python's global generator by default, which a stage seeds.
        """
        kinds = [self._random_kind(below) for _ in range(self.cell_types)]
        return Genotype(kinds[0], kinds[-1])

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
                for node in _INTERMEDIATE:
                    if (count := sum(edge.node == node for edge in kind)) != 2:
                        return f"node {node} has {count} edges in place of 2"
                if any(edge.operation == OPERATIONS[0] for edge in kind):
                    return f"{OPERATIONS[0]!r} is on an edge, and edges=top2 never chooses it"
        return None

    def _random_kind(self, below: Callable[[int], int]) -> tuple[Edge, ...]:
        if self.edges == "all14":
            return tuple(Edge(*edge, OPERATIONS[below(len(OPERATIONS))]) for edge in EDGES)
        drawn = []
        for node in _INTERMEDIATE:
            sources = list(range(node))
            pair = sorted(sources.pop(below(len(sources))) for _ in range(2))
            drawn += [Edge(node, source, OPERATIONS[1 + below(len(OPERATIONS) - 1)]) for source in pair]
        return tuple(drawn)

    def _derive_kind(self, table: Table, tie_order: Callable[[int], Sequence[int]]) -> tuple[Edge, ...]:
        first = 1 if self.edges == "top2" else 0
        # The first of equal candidates wins, in the order of tie_order.
        best = [first + max(tie_order(len(row) - first), key=row[first:].__getitem__) for row in table]
        chosen = []
        for node in _INTERMEDIATE:
            rows = [row for row, (end, _) in enumerate(EDGES) if end == node]
            if self.edges == "top2":
                ranked = [rows[position] for position in tie_order(len(rows))]
                ranked.sort(key=lambda row: -table[row, best[row]])  # a stable sort: ties keep tie_order
                rows = sorted(ranked[:2])
            chosen += rows
        return tuple(Edge(*EDGES[row], OPERATIONS[best[row]]) for row in chosen)


@dataclass(frozen=True)
class CellPlan:
    """Place of a cell in a network: channels in and out, and whether it halves the resolution.

    Attributes:
        older, newer: channels of its two inputs.
        channels: C; the output has 4C.
        reduction: whether edges from the inputs have stride 2.
        after_reduction: whether the cell before halved the resolution, so that the older input must be halved.
    """

    older: int
    newer: int
    channels: int
    reduction: bool
    after_reduction: bool

    @property
    def kind(self) -> CellKind:
        """The form of a genotype that stands here."""
        return "reduction" if self.reduction else "normal"

    @property
    def output(self) -> int:
        """Channels of the output."""
        return NODES * self.channels


def cell_plans(cells: int, channels: int) -> tuple[CellPlan, ...]:
    """Places of a network's cells: channels double, resolution halves at cells L//3 and 2L//3 (published code)."""
    plans: list[CellPlan] = []
    older = newer = STEM_MULTIPLIER * channels
    after_reduction = False
    for index in range(cells):
        reduction = index in (cells // 3, 2 * cells // 3)
        channels *= 2 if reduction else 1
        plans.append(CellPlan(older, newer, channels, reduction, after_reduction))
        older, newer, after_reduction = newer, NODES * channels, reduction
    return tuple(plans)


def stem_parameters(image_channels: int, channels: int) -> int:
    """Parameters of the stem: a 3x3 convolution to 3C channels and its BatchNorm."""
    return 27 * image_channels * channels + 2 * STEM_MULTIPLIER * channels


def _pairs(text: str) -> tuple[Edge, ...]:
    short = {"sep3": "sep_conv_3x3", "sep5": "sep_conv_5x5", "dil3": "dil_conv_3x3", "dil5": "dil_conv_5x5"}
    short |= {"max": "max_pool_3x3", "avg": "avg_pool_3x3", "skip": "skip_connect"}
    words = enumerate(word.split(":") for word in text.split())
    return tuple(Edge(INPUTS + place // 2, int(source), short[operation]) for place, (operation, source) in words)


#: Published genotypes: DARTS (Liu et al., ICLR 2019) and the two the authors of SEU stored with their code.
GENOTYPES: dict[str, Genotype] = {
    "darts_v1": Genotype(
        _pairs("sep3:1 sep3:0 skip:0 sep3:1 skip:0 sep3:1 sep3:0 skip:2"),
        _pairs("max:0 max:1 skip:2 max:0 max:0 skip:2 skip:2 avg:0"),
    ),
    "darts_v2": Genotype(
        _pairs("sep3:0 sep3:1 sep3:0 sep3:1 sep3:1 skip:0 skip:0 dil3:2"),
        _pairs("max:0 max:1 skip:2 max:1 max:0 skip:2 skip:2 max:1"),
    ),
    "mdenas_pmnist": Genotype(
        _pairs("max:0 avg:1 max:1 sep3:0 avg:0 skip:3 dil3:1 dil3:0"),
        _pairs("dil3:1 avg:0 max:2 dil5:1 skip:2 avg:1 avg:3 sep3:4"),
    ),
    "mdenas_mixture": Genotype(
        _pairs("dil5:0 dil5:1 avg:2 max:1 sep3:2 dil3:1 sep3:1 avg:3"),
        _pairs("dil3:0 sep3:1 skip:2 avg:0 dil5:2 dil3:0 avg:0 skip:2"),
    ),
}


def uniform_genotype(operation: str, edges: Literal["top2", "all14"] = "top2") -> Genotype:
    """The genotype with the same operation everywhere; with ``top2`` each node takes both inputs of the cell."""
    pairs = EDGES if edges == "all14" else tuple(edge for edge in EDGES if edge[1] < INPUTS)
    form = tuple(Edge(node, source, operation) for node, source in pairs)
    return Genotype(form, form)


def named_genotype(name: str) -> Genotype:
    """A published genotype by name.

    Raises:
        OptionError: there is none of that name.
    """
    if name not in GENOTYPES:
        raise OptionError(
            f"no genotype is called {name!r}{did_you_mean(name, GENOTYPES)}",
            remedy=f"the genotypes are: {', '.join(GENOTYPES)}",
        )
    return GENOTYPES[name]
