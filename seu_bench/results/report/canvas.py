"""How figures look, and matplotlib without pyplot: colours, styles, panels, legends.

The colours are those of Okabe and Ito, "Color Universal Design", 2008, without yellow, which is too faint on white.
Each goes with a marker and a kind of line of its own, so that no figure needs its colours.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import textwrap
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import MaxNLocator

from seu_bench.results.report.layout import FAINT, INK, MUTED, PAPER, Layout
from seu_bench.utils.text import printable

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


def marker_size(share: float = 1.0) -> float:
    """Points of a marker, as a share of the usual size."""
    return float(share * rcParams["lines.markersize"])


class Style(NamedTuple):
    """Look of one configuration, or of one task."""

    color: str
    marker: str
    line: tuple[int, tuple[float, ...]]  # matplotlib's offset and lengths of dashes and gaps

    def plotted(self) -> dict[str, Any]:
        """Keywords of matplotlib for a line with markers."""
        size = marker_size({"*": 1.7, "P": 1.3, "X": 1.3}.get(self.marker, 1.0))
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


def reference_styles(count: int) -> list[Style]:
    """A style for each of so many references, in grey: markers and lines tell them apart."""
    return [style(number)._replace(color=MUTED) for number in range(count)]


def short(text: str, width: int = 34, lines: int = 2) -> str:
    """``text`` on a few lines for a figure; what does not fit ends in an ellipsis."""
    return textwrap.fill(printable(text), width, max_lines=lines, placeholder=" …", break_on_hyphens=False)


def legend_label(title: str, width: int = 44) -> str:
    """A title for a legend, with enough lines for what distinguishes a configuration, which is at its end."""
    return short(title, width, math.ceil(6 * 44 / width))


def fill(text: str, width: int) -> str:
    """A text of our own on lines of this many letters, as few and as even as can be; its own lines stay."""
    lines = []
    for line in text.split("\n"):
        parts = math.ceil(len(line) / width)
        even = max(math.ceil(len(line) / max(1, parts)) + 3, 8)
        lines.append(textwrap.fill(line, min(width, even) if parts > 1 else width, break_long_words=False))
    return "\n".join(lines)


class Draw(Protocol):
    """Draws a figure for a layout."""

    def __call__(self, layout: Layout = ..., /) -> Figure:
        """The figure, not yet in any format."""


class Picture(NamedTuple):
    """A picture that has not been drawn yet.

    ``kind`` is part of its file name. ``draw`` is to be called within the settings of the same layout. ``alt`` says
    what it shows in words and numbers; if these are not too many, ``numbers`` has them as headings and rows.
    """

    kind: str
    heading: str
    caption: str
    alt: str
    draw: Draw
    numbers: Sequence[Sequence[str]] = ()


#: Inches of a figure's width at the least on a page, which does not stretch what is wider.
_LEAST_WIDTH: Final = 6.7
#: Settings of matplotlib for sizes of texts.
FontSize: TypeAlias = Literal["axes.labelsize", "legend.fontsize", "xtick.labelsize"]
#: Width of a letter beside the size of its font, on average.
_LETTER: Final = 0.56
#: Letters of a line of a legend at the most, before its columns become fewer, and at the least.
_LEGEND_LETTERS, _ENOUGH, _SHORTEST = 44, 28, 12


def panels(
    titles: Sequence[str],
    columns: int,
    size: tuple[float, float],
    x: str = "",
    y: str = "",
    *,
    layout: Layout,
    share: tuple[str, str] = ("all", "all"),
    keep: bool = False,
) -> tuple[Figure, list[Axes]]:
    """Create a figure of axes with these titles, ``columns`` in a row, each of this size in inches with its labels.

    A layout of a width makes them smaller, and puts fewer in a row unless ``keep``. ``x`` stands below the last of each
    column, ``y`` at the left of each row. ``share`` says for x and y which have the same scale: all, those of a row
    (``row``), those of a column (``col``). Titles and labels are broken where they would be wider than their panel.
    """
    columns, width, height = layout.panels(columns, size, keep=keep)
    rows = math.ceil(len(titles) / columns)
    whole = layout.width or max(_LEAST_WIDTH, columns * width)
    figure = Figure(figsize=(whole, rows * height), layout="constrained")
    scales: Any = dict(zip(("sharex", "sharey"), share, strict=True))
    axes = list(figure.subplots(rows, columns, squeeze=False, **scales).flat)
    for empty in axes[len(titles) :]:
        empty.remove()
    for place, (panel, title) in enumerate(zip(axes, titles, strict=False)):
        panel.set_title(_title(title, width - 0.2))
        if place % columns == 0:
            panel.set_ylabel(fill(y, letters(height - 0.25, "axes.labelsize")))
        if place + columns >= len(titles):
            panel.set_xlabel(fill(x, letters(width - 0.1, "axes.labelsize")))
            panel.tick_params(labelbottom=True)
    return figure, axes[: len(titles)]


def letters(inches: float, size: FontSize) -> int:
    """How many letters of a size, a setting of matplotlib's, fit into a line of this length."""
    return max(6, int(72 * inches / (_LETTER * rcParams[size])))


def _title(text: str, inches: float) -> str:
    """A title on lines of this length, measured: axes do not make room for a title that is wider than they are."""
    text = printable(text)
    settings = {"size": rcParams["axes.titlesize"], "weight": rcParams["axes.titleweight"]}
    font = FontProperties(family=rcParams["font.family"], **settings)
    wide, _, _ = text_to_path.get_text_width_height_descent(text or " ", font, ismath=False)
    return short(text, max(6, int(len(text) * 72 * inches / (1.06 * max(wide, 1.0)))))


def small() -> float:
    """Points of the smallest text of a figure."""
    return float(rcParams["xtick.labelsize"])


def whole_ticks(*axis: Axis) -> None:
    """Put ticks at whole numbers only: tasks, layers, epochs."""
    for each in axis:
        each.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))


def percent_scale(axes: Axes, lowest: float) -> None:
    """Scale accuracies from the tens below the lowest to 100 percent."""
    bottom = max(0.0, 10 * math.floor(min(lowest, 89.9) / 10))
    margin = (100 - bottom) / 25
    axes.yaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10]))
    axes.set_ylim(bottom - margin, 100 + margin)


def without_margins(figure: Figure) -> Figure:
    """The figure without what panels of a fixed aspect leave free above and below them."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        height = figure.get_tightbbox().height + 2 * rcParams["figure.constrained_layout.h_pad"]
        figure.set_figheight(min(height, figure.get_figheight()))
    return figure


def with_legend(figure: Figure, handles: list[Any], columns: int) -> Figure:
    """The figure with a legend at its foot, grown by the legend's height.

    It has at most so many columns: as many as its labels, in lines of some length, leave room for.
    """
    size, width = rcParams["legend.fontsize"], figure.get_figwidth()
    look = {"handlelength": 3.2, "columnspacing": 1.6, "borderpad": 0.2}
    labels = [str(handle.get_label()) for handle in handles]
    beside = (look["handlelength"] + look["columnspacing"] + 0.8) * size / 72  # inches of a column without its label
    longest = max(map(len, labels), default=0)
    columns = max(1, min(columns, len(handles)))
    while columns > 1 and letters(width / columns - beside, "legend.fontsize") < min(longest, _ENOUGH):
        columns -= 1
    line = min(_LEGEND_LETTERS, letters(width / columns - beside, "legend.fontsize"))
    while True:
        shown = [legend_label(label, line) for label in labels]
        legend = figure.legend(handles, shown, loc="outside lower center", ncols=columns, **look)
        box = legend.get_window_extent()
        if box.width <= 0.98 * figure.bbox.width or line <= _SHORTEST:
            break
        legend.remove()
        line -= 3
    figure.set_figheight(figure.get_figheight() + box.height / figure.dpi)
    return figure
