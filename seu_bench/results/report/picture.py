"""Configurations of a group, pictures of them before they are drawn, and how they look.

The colours are those of Okabe and Ito, "Color Universal Design", 2008, without yellow, which is too faint on white.
Each goes with a marker and a kind of line of its own, so that no figure needs its colours.
"""

from __future__ import annotations

import hashlib
import itertools
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from seu_bench.results.record import Record
from seu_bench.utils.text import printable

INK, MUTED, FAINT, PAPER = "#1b1f24", "#69737d", "#d4d9de", "#ffffff"
BLUE, VERMILLION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
ORANGE, SKY, GREY = "#e69f00", "#56b4e9", "#8a8f95"
#: Replacement of each colour where the reader's system is dark.
DARK: Final = {
    INK: "#e6e9ed",
    MUTED: "#9ea8b3",
    FAINT: "#3b434d",
    PAPER: "#171b21",
    BLUE: "#3f9fec",
    VERMILLION: "#f08445",
    GREEN: "#2fc49a",
    PURPLE: "#e2a5c6",
    ORANGE: "#f2b632",
    SKY: "#9ad5f7",
    GREY: "#aab1b9",
}
#: Of numbers upon a colour; neither is one that a dark page exchanges.
BLACK, WHITE = "#0b0d10", "#fdfdfd"

#: Kinds of line, as matplotlib's offset and lengths of dashes and gaps.
Line: TypeAlias = tuple[int, tuple[float, ...]]
Measured = TypeVar("Measured")


class Style(NamedTuple):
    """Look of one configuration, or of one task."""

    color: str
    marker: str
    line: Line

    def plotted(self) -> dict[str, Any]:
        """Keywords of matplotlib for a line with markers."""
        size = {"*": 11, "P": 8.5, "X": 8.5}.get(self.marker, 6.5)
        look = {"color": self.color, "linestyle": self.line, "marker": self.marker, "markersize": size}
        return look | {"markeredgecolor": PAPER, "markeredgewidth": 0.7}


STYLES: Final = (
    Style(BLUE, "o", (0, ())),
    Style(VERMILLION, "s", (0, (5, 1.6))),
    Style(GREEN, "^", (0, (1.2, 1.2))),
    Style(PURPLE, "D", (0, (6, 1.5, 1.2, 1.5))),
    Style(ORANGE, "v", (0, (3, 1.2, 1, 1.2, 1, 1.2))),
    Style(SKY, "P", (0, (8, 2))),
    Style(GREY, "*", (0, (1, 2.2))),
    Style(INK, "X", (0, (2.5, 1))),
)
#: Begins what is hashed to a strategy's style. Any would do; this one keeps the colours of figures made before.
_SALT: Final = "102718"


def style(number: int) -> Style:
    """The style of a thing counted from 0; beyond the eighth, colours come again with another marker and line."""
    again, first = divmod(number, len(STYLES))
    return STYLES[(number + again) % len(STYLES)]._replace(color=STYLES[first].color)


def styles_of(strategies: Sequence[str]) -> list[Style]:
    """A style for each configuration, all different.

    The first configuration of a strategy has the style that the strategy's name is hashed to, so that it looks the same
    in every figure, or the next free one.
    """
    numbers: dict[int, int] = {}
    places = sorted(range(len(strategies)), key=lambda place: strategies[place] in strategies[:place])
    for place in places:
        name = strategies[place]
        own = 0 if name in strategies[:place] else hashlib.sha256((_SALT + name).encode()).digest()[0] % len(STYLES)
        candidates = itertools.chain(range(own, len(STYLES)), itertools.count())
        numbers[place] = next(number for number in candidates if number not in numbers.values())
    return [style(numbers[place]) for place in range(len(strategies))]


def short(text: str, width: int = 34, lines: int = 2) -> str:
    """``text`` on a few lines for a figure; what does not fit ends in an ellipsis."""
    return textwrap.fill(printable(text), width, max_lines=lines, placeholder=" …", break_on_hyphens=False)


def legend_label(title: str) -> str:
    """A title for a legend, wide enough for what distinguishes a configuration, which is at its end."""
    return short(title, 44, 6)


@dataclass(frozen=True)
class Configuration:
    """A row of a leaderboard with its rank and label there, not escaped, and the records behind it, by seed."""

    rank: int
    label: str
    runs: tuple[Record, ...]
    style: Style

    @property
    def title(self) -> str:
        """Rank and label: a label that a figure cuts short is still found in the leaderboard."""
        return f"{self.rank} {self.label}"

    @property
    def key(self) -> Line2D:
        """Its look and title for a legend."""
        return Line2D([], [], label=legend_label(self.title), **self.style.plotted())

    @property
    def example(self) -> Record:
        """The run of the lowest seed, where a figure can show but one."""
        return min(self.runs, key=lambda run: run.seed)

    @property
    def seeds(self) -> str:
        """``3 seeds``."""
        return f"{len(self.runs)} seed{'s' * (len(self.runs) != 1)}"


@dataclass(frozen=True)
class Picture:
    """A picture that has not been drawn yet.

    Attributes:
        kind: what it shows, as part of a file name.
        caption: how it is to be read.
        alt: what it shows, with its numbers.
        draw: makes the figure; to be called within :func:`~seu_bench.results.report.canvas.settings`.
        numbers: headings and rows of its values, if they are not too many.
    """

    kind: str
    heading: str
    caption: str
    alt: str
    draw: Callable[[], Figure]
    numbers: Sequence[Sequence[str]] = ()


def sentences(parts: Sequence[str], most: int = 12) -> str:
    """Join parts of an alternative text; of very many, the first ``most`` and how many more."""
    more = [f"{len(parts) - most} more are in the table"] if len(parts) > most else []
    return " ".join(f"{part}." for part in [*parts[:most], *more])


def by_configuration(measured: Iterable[tuple[Configuration, Measured]], in_words: Callable[[Measured], str]) -> str:
    """Join an alternative text of each configuration, of what was measured of it."""
    return sentences([f"{configuration.title} ({configuration.seeds}): {in_words(m)}" for configuration, m in measured])
