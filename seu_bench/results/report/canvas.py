"""How figures look, and matplotlib without pyplot: colours, settings, panels, legends.

The colours are those of Okabe and Ito, "Color Universal Design", 2008, without yellow, which is too faint on white.
Each goes with a marker and a kind of line of its own, so that no figure needs its colours.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import textwrap
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

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


class Style(NamedTuple):
    """Look of one configuration, or of one task."""

    color: str
    marker: str
    line: tuple[int, tuple[float, ...]]  # matplotlib's offset and lengths of dashes and gaps

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


def reference_styles(count: int) -> list[Style]:
    """A style for each of so many references, in grey: markers and lines tell them apart."""
    return [style(number)._replace(color=MUTED) for number in range(count)]


def short(text: str, width: int = 34, lines: int = 2) -> str:
    """``text`` on a few lines for a figure; what does not fit ends in an ellipsis."""
    return textwrap.fill(printable(text), width, max_lines=lines, placeholder=" …", break_on_hyphens=False)


def legend_label(title: str) -> str:
    """A title for a legend, wide enough for what distinguishes a configuration, which is at its end."""
    return short(title, 44, 6)


class Picture(NamedTuple):
    """A picture that has not been drawn yet; ``draw`` is to be called within :func:`settings`.

    ``kind`` is part of its file name. ``alt`` says what it shows in words and numbers; if these are not too many,
    ``numbers`` has them as headings and rows.
    """

    kind: str
    heading: str
    caption: str
    alt: str
    draw: Callable[[], Figure]
    numbers: Sequence[Sequence[str]] = ()


#: Inches of a figure's width at the least: legends need it, and pages do not stretch what is wider.
_LEAST_WIDTH: Final = 6.7

_SETTINGS: Final[dict[str, Any]] = {
    "font.family": "DejaVu Sans",
    "axes.titleweight": "bold",
    "axes.titlesize": 9.5,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "hatch.linewidth": 0.8,
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), "none"),
    **dict.fromkeys(("figure.constrained_layout.w_pad", "figure.constrained_layout.h_pad"), 0.07),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("font.size", "axes.labelsize"), 9),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 8),
    **dict.fromkeys(("text.color", "axes.titlecolor", "axes.labelcolor", "legend.labelcolor"), INK),
    **dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), MUTED),
    # Names come from records: a dollar sign in one is no formula.
    "text.parse_math": False,
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "svg.hashsalt": "seu-bench",
}


@contextlib.contextmanager
def settings() -> Iterator[None]:
    """Apply the report's settings: figures look the same whatever a user has set up."""
    with matplotlib.style.context(_SETTINGS, after_reset=True), warnings.catch_warnings():
        # A name may be in letters that the font has not; browsers have others.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def panels(
    titles: Sequence[str], columns: int, size: tuple[float, float], x: str = "", y: str = "", *, shared: bool = True
) -> tuple[Figure, list[Axes]]:
    """Create a figure of axes with these titles, ``columns`` in a row, each of this size in inches with its labels.

    ``x`` stands below the last of each column, ``y`` at the left of each row. All have the same scales if ``shared``,
    otherwise those of a column and those of a row have.
    """
    rows = math.ceil(len(titles) / columns)
    figure = Figure(figsize=(max(_LEAST_WIDTH, columns * size[0]), rows * size[1]), layout="constrained")
    scales: Any = {"sharex": "all", "sharey": "all"} if shared else {"sharex": "col", "sharey": "row"}
    axes = list(figure.subplots(rows, columns, squeeze=False, **scales).flat)
    for empty in axes[len(titles) :]:
        empty.remove()
    for place, (panel, title) in enumerate(zip(axes, titles, strict=False)):
        panel.set_title(title)
        if place % columns == 0:
            panel.set_ylabel(y)
        if place + columns >= len(titles):
            panel.set_xlabel(x)
            panel.tick_params(labelbottom=True)
    return figure, axes[: len(titles)]


def whole_ticks(*axis: Axis) -> None:
    """Put ticks at whole numbers only: tasks, layers, epochs."""
    for each in axis:
        each.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))


def percent_scale(axes: Axes, lowest: float) -> None:
    """Scale accuracies from the tens below the lowest to 100 percent."""
    bottom = max(0.0, 10 * math.floor(min(lowest, 89.9) / 10))
    margin = (100 - bottom) / 25
    axes.set_ylim(bottom - margin, 100 + margin)


def with_legend(figure: Figure, handles: list[Any], columns: int) -> Figure:
    """The figure with a legend at its foot, grown by the legend's height."""
    legend = figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, handlelength=3.4, columnspacing=1.8
    )
    figure.set_figheight(figure.get_figheight() + legend.get_window_extent().height / figure.dpi)
    return figure
