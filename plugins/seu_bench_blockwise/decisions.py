"""A unit as a sequence of decisions, one after another: what Q-learning walks through.

With ``edges=top2`` a node takes a first source and its operation, then a second source among the others and its
operation; with ``edges=all14`` every edge takes an operation. Normal and reduction form one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from seu_bench_kit import EDGES, OPERATIONS, Edge, Genotype, SearchSpace
from seu_bench_kit.search_space import INPUTS, NODES


def decision_sizes(space: SearchSpace) -> tuple[int, ...]:
    """Number of choices of each decision."""
    if space.edges == "all14":
        form = [len(OPERATIONS)] * len(EDGES)
    else:
        operations = len(OPERATIONS) - 1
        form = [size for node in range(INPUTS, INPUTS + NODES) for size in (node, operations, node - 1, operations)]
    return tuple(form * space.cell_types)


def decoded(space: SearchSpace, decisions: Sequence[int]) -> Genotype:
    """The genotype that a whole sequence of decisions makes."""
    length = len(decisions) // space.cell_types
    forms = [_form(space, decisions[start : start + length]) for start in range(0, len(decisions), length)]
    return Genotype(forms[0], forms[-1])


def _form(space: SearchSpace, decisions: Sequence[int]) -> tuple[Edge, ...]:
    if space.edges == "all14":
        return tuple(Edge(*edge, OPERATIONS[choice]) for edge, choice in zip(EDGES, decisions, strict=True))
    edges = []
    for place, node in enumerate(range(INPUTS, INPUTS + NODES)):
        first, first_operation, second, second_operation = decisions[4 * place : 4 * place + 4]
        others = [source for source in range(node) if source != first]
        pairs = [(first, first_operation), (others[second], second_operation)]
        edges += [Edge(node, source, OPERATIONS[1 + operation]) for source, operation in sorted(pairs)]
    return tuple(edges)
