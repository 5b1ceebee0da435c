"""What a comparison is, what it measures, and which figures are wanted of it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Value: TypeAlias = float | bool | None
Unit: TypeAlias = Literal["times", "seconds", "yes"]


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
    """One comparison, measured by the function ``measure(name)`` of a module of this package.

    Attributes:
        text: what is compared, for the page; numbers are in the settings.
    """

    name: str
    title: str
    module: str
    text: str
    wanted: tuple[Wanted, ...] = ()

    def measure(self) -> Result:
        """Measure, in this process."""
        result: Result = importlib.import_module(f"scripts.perf.{self.module}").measure(self.name)
        return result
