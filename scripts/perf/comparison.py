"""What a comparison is, what it measures, and which figures are wanted of it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Value: TypeAlias = float | bool | None
Unit: TypeAlias = Literal["times", "share", "seconds", "yes"]


@dataclass(frozen=True)
class Wanted:
    """A figure that has to reach something.

    Attributes:
        id: its name among the values of the comparison.
        least, most: what it has to be at least or at most; of a ``yes`` neither: it has to be true.
    """

    id: str
    text: str
    unit: Unit = "times"
    least: float | None = None
    most: float | None = None

    def reached(self, value: Value) -> bool | None:
        """Whether it is reached; ``None``: it was not measured."""
        if value is None:
            return None
        if self.unit == "yes":
            return value is True
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)


@dataclass(frozen=True)
class Size:
    """Size of a measurement.

    Attributes:
        scale: factor of images and rounds.
        quick: as little as shows that everything works; the figures say nothing then.
    """

    scale: float = 1.0
    quick: bool = False

    def count(self, normal: int, quick: int) -> int:
        """A number that grows with the scale: of images, or of rounds."""
        return quick if self.quick else max(1, round(normal * self.scale))

    def whole(self, normal: int, quick: int, step: int) -> int:
        """As :meth:`count`, in multiples of ``step``: of images in whole batches."""
        return max(step, self.count(normal, quick) // step * step)

    def fixed(self, normal: int, quick: int) -> int:
        """A number that the scale leaves alone, such as one of epochs."""
        return quick if self.quick else normal


@dataclass(frozen=True)
class Table:
    """Rows of text, numbers, truths and ``None``, with a title and a heading for each column."""

    title: str
    columns: tuple[str, ...]
    rows: list[list[Any]]


@dataclass(frozen=True)
class Result:
    """Measurements of a comparison.

    Attributes:
        settings: what was computed, by name.
        values: figures by id.
    """

    settings: Mapping[str, Any]
    values: Mapping[str, Value]
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Comparison:
    """One comparison, measured by the function ``measure(name, size)`` of a module of this package.

    Attributes:
        text: what is compared, for the page; numbers are in the settings.
    """

    name: str
    title: str
    module: str
    text: str
    wanted: tuple[Wanted, ...] = ()

    def measure(self, size: Size) -> Result:
        """Measure, in this process."""
        result: Result = importlib.import_module(f"scripts.perf.{self.module}").measure(self.name, size)
        return result
