"""How figures are made: matplotlib's objects without pyplot, its settings, and files that are the same every time."""

from __future__ import annotations

import contextlib
import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from seu_bench.results.report.styles import DARK, FAINT, INK, MUTED, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

#: Dots per inch of PNG files, and of the page's pixels.
PNG_DPI: Final = 150
PAGE_DPI: Final = 96

_SETTINGS: Final[dict[Any, Any]] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.titlecolor": INK,
    # Where a title stands is known; matplotlib would look for it at every drawing.
    "axes.titley": 1.0,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "lines.linewidth": 1.8,
    "lines.markersize": 6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.labelcolor": INK,
    "hatch.linewidth": 0.8,
    "figure.facecolor": "none",
    # Names come from records: a dollar sign in one is no formula.
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "seu-bench",
}


@contextlib.contextmanager
def settings() -> Iterator[None]:
    """Figures are drawn and saved in this context, so that they look the same whatever a user has set up."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_SETTINGS)
        # A name may be in letters that the font has not; browsers have others.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


@dataclass(frozen=True)
class Margins:
    """What stands around axes, in inches; ``across`` and ``down`` are between panels."""

    left: float = 0.62
    right: float = 0.12
    top: float = 0.32
    bottom: float = 0.46
    across: float = 0.22
    down: float = 0.42


def panels(
    count: int,
    columns: int,
    size: tuple[float, float],
    margins: Margins,
    below: float = 0.0,
    least: float = 6.7,
    shared: bool = True,
) -> tuple[Figure, list[Axes]]:
    """A figure of ``count`` axes ``columns`` in a row.

    Places are computed and not left to one of matplotlib's layouts, which take longer than all of the drawing.

    Args:
        size: width and height of one of them, inches.
        below: inches more, for a legend.
        least: width of the figure at the least, inches: legends need it, and pages do not stretch what is wider.
        shared: whether all have the same scales; otherwise those of a column and those of a row have.
    """
    from matplotlib.figure import Figure

    rows = max(1, math.ceil(count / columns))
    wide = columns * size[0] + (columns - 1) * margins.across
    high = rows * size[1] + (rows - 1) * margins.down
    width = max(least, margins.left + wide + margins.right)
    height = margins.top + high + margins.bottom + below
    left = margins.left + (width - margins.left - wide - margins.right) / 2
    figure = Figure(figsize=(width, height))
    grid = figure.subplots(
        rows,
        columns,
        sharex=True if shared else "col",
        sharey=True if shared else "row",
        squeeze=False,
        gridspec_kw={
            "left": left / width,
            "right": (left + wide) / width,
            "top": 1 - margins.top / height,
            "bottom": (margins.bottom + below) / height,
            "wspace": margins.across / size[0],
            "hspace": margins.down / size[1],
        },
    )
    axes = list(grid.flat)
    for empty in axes[count:]:
        empty.set_axis_off()
    return figure, axes[:count]


def label_outer(figure: Figure, axes: Sequence[Axes], columns: int, x: str, y: str) -> None:
    """Name the scales of panels: at the left of each row, and below the last of each column."""
    width, height = axes[0].get_position().size * figure.get_size_inches()
    for place, panel in enumerate(axes):
        if place % columns == 0:
            panel.set_ylabel(y)
            # Matplotlib would measure all numbers beside the axis to find this place.
            panel.yaxis.set_label_coords(-0.38 / width, 0.5)
        if place + columns >= len(axes):
            panel.set_xlabel(x)
            panel.xaxis.set_label_coords(0.5, -0.26 / height)
            panel.tick_params(labelbottom=True)


def whole_numbers(*axis: Axis) -> None:
    """Ticks at whole numbers only: tasks, layers, epochs."""
    from matplotlib.ticker import MaxNLocator

    for each in axis:
        each.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))


def legend_below(figure: Figure, handles: list[Any], columns: int) -> None:
    """A legend at the foot of the figure."""
    figure.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=(0.5, 0.04 / figure.get_figheight()),
        borderaxespad=0,
        ncols=columns,
        handlelength=3.4,
        columnspacing=1.8,
    )


def legend_height(labels: Sequence[str], columns: int) -> float:
    """Inches of a legend of these labels: of its highest column; the first labels fill the first one."""
    rows, longer = divmod(len(labels), columns)
    heights = [0.065 + 0.145 * (label.count("\n") + 1) for label in labels]
    starts = [column * rows + min(column, longer) for column in range(columns + 1)]
    return 0.12 + max(sum(heights[start:end]) for start, end in pairwise(starts))


def to_png(figure: Figure) -> bytes:
    """The figure on white."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=PNG_DPI, facecolor=PAPER, metadata={"Software": None})
    return buffer.getvalue()


def to_svg(figure: Figure) -> str:
    """The figure on its own background, light or dark as the reader's system is. It loads nothing."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", facecolor="none", metadata=nothing)
    text = buffer.getvalue()
    head, _, rest = text[text.index("<svg") :].partition(">")
    # Texts stay texts; a browser that has not this font takes another one.
    rest = re.sub(r"font-family: 'DejaVu Sans'(?=[;\"])", "font-family: 'DejaVu Sans', sans-serif", rest)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head}>\n<style>{_theme()}</style>{rest}'


def size_on_page(figure: Figure) -> tuple[int, int]:
    """Width and height in the page's pixels."""
    width, height = figure.get_size_inches()
    return round(width * PAGE_DPI), round(height * PAGE_DPI)


def _theme() -> str:
    """Every colour of a figure, exchanged where the system is dark."""
    rules = [f"svg{{background:{DARK[PAPER]}}}"]
    for light, dark in DARK.items():
        rules += [f'[style*="{part}: {light}"]{{{part}:{dark} !important}}' for part in ("fill", "stroke")]
    return f"svg{{background:{PAPER}}}@media (prefers-color-scheme:dark){{{''.join(rules)}}}"
