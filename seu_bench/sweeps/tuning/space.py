"""Search spaces: values and ranges of hyper-parameters."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from seu_bench.config.options import format_option
from seu_bench.sweeps.spec import parse_values

_NUMBER: Final = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE: Final = re.compile(rf"\s*({_NUMBER})\s*\.\.\s*({_NUMBER})\s*(:\s*log)?\s*", re.ASCII)
#: Values drawn from a range have so many significant digits, which can be read and typed.
_DIGITS: Final = 4


@dataclass(frozen=True)
class Choices:
    """Values one by one, in the order in which they are tried."""

    values: tuple[Any, ...]

    def __str__(self) -> str:
        return ",".join(map(format_option, self.values))


@dataclass(frozen=True)
class Range:
    """Numbers between two ends, both included; whole ones if both ends are."""

    low: float
    high: float
    log: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it holds whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def rounded(self, value: float) -> float:
        """A number of the range with few digits, near ``value``."""
        short = int(value) if self.is_whole else float(f"{value:.{_DIGITS}g}")
        return min(max(short, self.low), self.high)

    def __str__(self) -> str:
        return f"{self.low}..{self.high}{':log' if self.log else ''}"


Dimension: TypeAlias = Choices | Range


def parse_dimension(given: Any) -> Dimension:
    """Read ``"1,10,100"``, ``"1..100"``, ``"0.001..0.1:log"`` or a list of values.

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(given, Choices | Range):
        return given
    if isinstance(given, str) and not given.strip():
        raise ValueError("there is no value")
    if not isinstance(given, str):
        values = tuple(given) if isinstance(given, list | tuple) else (given,)
    elif found := _RANGE.fullmatch(given):
        low, high = (int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text) for text in found.groups()[:2])
        if low >= high:
            raise ValueError(f"the range {given.strip()} ends before it begins")
        if found[3] and low <= 0:
            raise ValueError(f"the range {given.strip()} begins at {low}: a logarithmic one begins above 0")
        return Range(low, high, bool(found[3]))
    else:
        values = tuple(parse_values(given))
    if not values:
        raise ValueError("there is no value")
    if len({format_option(value) for value in values}) < len(values):
        raise ValueError(f"a value is given twice: {Choices(values)}")
    return Choices(values)


def grid(space: Mapping[str, Dimension]) -> Iterator[dict[str, Any]]:
    """Every combination of the values, the last option changing fastest.

    Example:
        ``list(grid({"a": Choices((1, 2)), "b": Choices((3,))})) == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]``
    """
    values: list[Sequence[Any]] = [part.values for part in space.values() if isinstance(part, Choices)]
    for combination in itertools.product(*values):
        yield dict(zip(space, combination, strict=True))


def at_an_end(space: Mapping[str, Dimension], options: Mapping[str, Any]) -> Iterator[str]:
    """Say of which options the value chosen is the least or the greatest one tried: a better one may lie beyond."""
    for key, part in space.items():
        value = options[key]
        if isinstance(part, Range):
            least, greatest = part.low, part.high
        elif len(part.values) < 3 or not all(
            isinstance(one, int | float) and not isinstance(one, bool) for one in part.values
        ):
            continue
        else:
            least, greatest = min(part.values), max(part.values)
        if value in (least, greatest):
            end, beyond = ("least", "lower") if value == least else ("greatest", "higher")
            yield f"{key}={format_option(value)} is the {end} value tried: a {beyond} one may be better"
