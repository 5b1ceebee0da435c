"""Search spaces: what a genotype may be, and the modules that are made of one.

A searcher knows nothing of operations: it samples *choices*, whole numbers by which a proxy network computes one
architecture on shared weights, or it makes *decisions*, whole numbers that spell out a genotype. No torch here.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

from seu_bench.config.common_options import SpaceOptions
from seu_bench.errors import RequestError
from seu_bench.plugin.registration import Deferred

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from seu_bench.data import InputKind, InputShape
    from seu_bench_kit.units import Unit

#: Draws a whole number from 0 to n - 1.
Below: TypeAlias = Callable[[int], int]
#: The order in which n equal candidates are preferred.
TieOrder: TypeAlias = Callable[[int], Sequence[int]]
#: For each choice of a space the index of an option, or weights ``[options]`` of all options.
Sample: TypeAlias = "Sequence[int] | Sequence[Tensor]"
Vector: TypeAlias = "NDArray[np.float64]"


class Arrow(NamedTuple):
    """An operation in the picture of a genotype, on the way from ``source`` to ``target``."""

    source: str
    target: str
    operation: str


#: Output channels of the stem, and of a cell, as multiples of the initial channels.
STEM_MULTIPLIER: Final = 3
CELL_MULTIPLIER: Final = 4

CellKind: TypeAlias = Literal["normal", "reduction"]


@dataclass(frozen=True)
class CellPlan:
    """Place of a unit in a network on images: channels in and out, and whether it halves the resolution.

    Attributes:
        older, newer: channels of its two inputs, the outputs of the two layers before.
        channels: C; the output has 4C.
        reduction: whether it halves the resolution.
        after_reduction: whether the unit before halved it, so that the older input must be halved.
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
        return CELL_MULTIPLIER * self.channels


def cell_plans(cells: int, channels: int) -> tuple[CellPlan, ...]:
    """Places of a network's units: channels double, resolution halves at cells L//3 and 2L//3 (published code)."""
    plans: list[CellPlan] = []
    older = newer = STEM_MULTIPLIER * channels
    after_reduction = False
    for index in range(cells):
        reduction = index in (cells // 3, 2 * cells // 3)
        channels *= 2 if reduction else 1
        plans.append(CellPlan(older, newer, channels, reduction, after_reduction))
        older, newer, after_reduction = newer, plans[-1].output, reduction
    return tuple(plans)


@dataclass
class SpaceFactory:
    """Factory of a search space, for ``register_spaces``.

    Args:
        summary: one line for ``seu-bench list spaces``.
        build: a class of :class:`SearchSpace`, or a function that returns one, or ``"package.module:name"`` of it.
        inputs: kinds of samples that its stem takes, of ``image``, ``features`` and ``tokens``; others are refused
            before any data is loaded.

    Example:
        ::

            @hookimpl
            def register_spaces(register: Register[SpaceFactory]) -> None:
                register("mine", SpaceFactory("one of mine", MySpace))
    """

    contract: ClassVar[str] = "seu_bench_kit.space_contract:SpaceContract"

    summary: str
    build: Any
    inputs: Sequence[InputKind] = ("image",)

    def __post_init__(self) -> None:
        if isinstance(self.build, str):
            self.build = Deferred(self.build)


class SearchSpace(ABC):
    """The genotypes that can be found, and the modules that networks are built of.

    A genotype is any value that can be compared and hashed, and has ``to_dict()``, plain values for JSON.
    :class:`ChoiceSpace` is a base for spaces whose genotypes are independent choices.
    """

    #: Published genotypes by name.
    named: ClassVar[Mapping[str, Any]] = {}

    # ------------------------------------------------------------------ genotypes

    @property
    @abstractmethod
    def decisions(self) -> tuple[int, ...]:
        """Number of options of each decision that spells out a genotype."""

    @abstractmethod
    def decode(self, decisions: Sequence[int]) -> Any:
        """The genotype of an option for each of ``decisions``."""

    @abstractmethod
    def encode(self, genotype: Any) -> tuple[int, ...]:
        """Decisions that :meth:`decode` makes the genotype of."""

    @abstractmethod
    def from_dict(self, value: Any) -> Any:
        """The genotype whose ``to_dict()`` is ``value``.

        Raises:
            ValueError: it is not a genotype.
        """

    @abstractmethod
    def fault(self, genotype: object) -> str | None:
        """The reason why ``genotype`` is none of this space; ``None`` if it is one."""

    @property
    def extremes(self) -> tuple[Any, Any]:
        """The genotypes of the fewest and of the most parameters and operations, by which costs are estimated."""
        return self.decode([0] * len(self.decisions)), self.decode([size - 1 for size in self.decisions])

    def random_genotype(self, below: Below = random.randrange) -> Any:
        """A genotype drawn uniformly, by Python's global generator by default, which a stage seeds."""
        return self.decode([below(size) for size in self.decisions])

    def mutate(self, genotype: Any, below: Below = random.randrange) -> Any:
        """Another genotype: one decision, drawn uniformly, is made anew.

        Raises:
            ValueError: there is no other.
        """
        before = self.encode(genotype)
        places = [place for place, size in enumerate(self.decisions) if size > 1]
        if not places:
            raise ValueError("the space has a single genotype")
        while True:
            after, place = [*before], places[below(len(places))]
            after[place] = (after[place] + 1 + below(self.decisions[place] - 1)) % self.decisions[place]
            if (changed := self.decode(after)) != genotype:
                return changed

    # ------------------------------------------------------------------ the proxy network's choices

    @property
    def choices(self) -> tuple[int, ...]:
        """Number of options of each choice by which a proxy network computes one architecture: the decisions."""
        return self.decisions

    def sample_of(self, genotype: Any) -> Sequence[int]:
        """The choices by which a proxy network computes a genotype."""
        return self.encode(genotype)

    def derive(self, rows: Sequence[Vector], tie_order: TieOrder = range) -> Any:
        """The genotype of the highest values.

        Args:
            rows: ``[options]`` of each of ``choices``, e.g. probabilities.
            tie_order: the order in which ``n`` equal candidates are preferred; the first index by default.

        Raises:
            ValueError: a row holds NaN, which no rule can rank.
        """
        if any(math.isnan(value) for row in rows for value in row):
            raise ValueError("a table of operations holds NaN")
        return self._derive(rows, tie_order)

    def _derive(self, rows: Sequence[Vector], tie_order: TieOrder) -> Any:
        return self.decode([max(tie_order(len(row)), key=row.__getitem__) for row in rows])

    # ------------------------------------------------------------------ modules

    def places(self, cells: int, channels: int) -> Sequence[Any]:
        """Places of a network's units, :func:`cell_plans` or others; they must have ``newer`` and ``output``."""
        return cell_plans(cells, channels)

    def stem(self, input: InputShape, channels: int) -> Unit:
        """The first layer, samples ``[N, *input.shape]`` -> what the first unit gets twice: by default a 3x3
        convolution, of images."""
        from seu_bench_kit.units import Stem

        return Stem(input.shape[0], self.places(1, channels)[0].newer)

    @abstractmethod
    def unit(self, genotype: Any, place: Any) -> Unit:
        """The extension unit of a genotype, called with the outputs of the two layers before it.

        Any two units of one place are interchangeable: ``[N, place.older, ...], [N, place.newer, ...] ->
        [N, place.output, ...]``.
        """

    def proxy(self, place: Any) -> nn.Module:
        """All units of a place on shared weights, called with the two inputs and a :data:`Sample`.

        Where it has ``copy_to(unit, genotype)``, which gives a unit the weights that its genotype shares, the contract
        compares the two.

        Raises:
            RequestError: the space has none.
        """
        raise RequestError(
            f"the search space {type(self).__name__} has no proxy network, which this searcher needs",
            where="space",
            remedy="choose a searcher that needs none: --searcher random, or --searcher zero_cost",
        )

    def draw(self, genotype: Any) -> Mapping[str, Sequence[Arrow]]:
        """Pictures of a genotype by their names, each a graph of operations; by default one of ``to_dict()``."""
        told = ", ".join(f"{name} {value}" for name, value in genotype.to_dict().items())
        return {"unit": [Arrow("input", "output", told)]}


#: Options of the space ``darts_cell`` alone.
CELL_OPTIONS: Final = ("edges", "cell_types", "factorized_reduce_norm")


def make_space(options: SpaceOptions, factory: Any) -> SearchSpace:
    """Build the space that a strategy's options name; what they say of cells is for the paper's.

    Raises:
        RequestError: another space was chosen, and an option of cells is given.
    """
    fields = type(options).model_fields
    given = {name: getattr(options, name) for name in CELL_OPTIONS if name in fields}
    if options.space != "darts_cell":
        if changed := [name for name, value in given.items() if value != fields[name].default]:
            raise RequestError(
                f"the search space {options.space!r} has no {', '.join(changed)}",
                where=changed[0],
                remedy="leave it out, or choose -o space=darts_cell",
            )
        given = {}
    space: SearchSpace = factory.build(**given)
    return space


@dataclass(frozen=True)
class Chosen:
    """Genotype of a :class:`ChoiceSpace`: a name and a value for each choice, in their order."""

    values: tuple[tuple[str, Any], ...]

    def __getitem__(self, name: str) -> Any:
        return dict(self.values)[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dict(self.values)


class ChoiceSpace(SearchSpace):
    """Base of spaces whose genotypes are independent choices: a subclass writes unit, and proxy.

    Example:
        ``options = {"kernel": (3, 5), "expansion": (1, 2, 4)}``
    """

    #: By name of each choice its options, plain values in ascending order of their cost.
    options: ClassVar[Mapping[str, Sequence[Any]]]

    @cached_property
    def decisions(self) -> tuple[int, ...]:
        """Number of options of each choice."""
        return tuple(map(len, self.options.values()))

    def decode(self, decisions: Sequence[int]) -> Chosen:
        """The genotype of an option for each choice."""
        pairs = zip(self.options.items(), decisions, strict=True)
        return Chosen(tuple((name, values[index]) for (name, values), index in pairs))

    def encode(self, genotype: Chosen) -> tuple[int, ...]:
        """The index of each value among its choice's options."""
        return tuple(list(self.options[name]).index(value) for name, value in genotype.values)

    def from_dict(self, value: Any) -> Chosen:
        """The genotype of values by name."""
        if not isinstance(value, Mapping) or (fault := self._fault_of(value)):
            raise ValueError(f"not a genotype: {fault if isinstance(value, Mapping) else value!r}")
        return Chosen(tuple((name, value[name]) for name in self.options))

    def fault(self, genotype: object) -> str | None:
        """The reason why ``genotype`` is none of this space; ``None`` if it is one."""
        if not isinstance(genotype, Chosen):
            return f"it is no {Chosen.__name__} but {type(genotype).__name__}"
        if tuple(name for name, _ in genotype.values) != tuple(self.options):
            return f"it chooses {', '.join(name for name, _ in genotype.values)} in place of {', '.join(self.options)}"
        return self._fault_of(dict(genotype.values))

    def _fault_of(self, values: Mapping[str, Any]) -> str | None:
        if values.keys() != self.options.keys():
            return f"it chooses {', '.join(map(str, values))} in place of {', '.join(self.options)}"
        for name, options in self.options.items():
            # Not "in": True is equal to 1.
            if not any(values[name] == option and type(values[name]) is type(option) for option in options):
                return f"its {name} is {values[name]!r}, and can be {', '.join(map(repr, options))}"
        return None
