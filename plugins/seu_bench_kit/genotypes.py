"""The genotypes of the paper's search space, as values.

An *extension unit* is a cell (paper, figure 2b): two input nodes (0 and 1, the outputs of the two layers before),
four intermediate nodes (2 to 5), each the sum of its incoming edges, and the concatenation of the four as output.
Every edge carries one of eight operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from seu_bench_kit.search_space import CellKind

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
INTERMEDIATE = range(INPUTS, INPUTS + 4)
#: Every possible edge as (node, source), 14 of them, in the order of the rows of a probability table.
EDGES = tuple((node, source) for node in INTERMEDIATE for source in range(node))


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
    ``cell_types=1`` both forms are equal. :meth:`CellSpace.fault` says what is wrong with one.
    """

    normal: tuple[Edge, ...]
    reduction: tuple[Edge, ...]

    def __post_init__(self) -> None:
        for edge in (*self.normal, *self.reduction):
            if (edge.node, edge.source) not in EDGES or edge.operation not in OPERATIONS:
                raise ValueError(f"{edge} is not an edge of this search space")
        for kind in (self.normal, self.reduction):
            if {edge.node for edge in kind} != set(INTERMEDIATE):
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
