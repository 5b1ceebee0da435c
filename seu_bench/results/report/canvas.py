"""Set-up of matplotlib without pyplot: settings, panels, lines, legends, and files that are the same every time."""

from __future__ import annotations

import contextlib
import io
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from seu_bench.results.report.picture import DARK, FAINT, INK, MUTED, PAPER
from seu_bench.results.report.summary import SeedSummary

#: Dots per inch of PNG files, and of the page's pixels.
PNG_DPI: Final = 150
PAGE_DPI: Final = 96
#: Inches of a figure's width at the least: legends need it, and pages do not stretch what is wider.
_LEAST_WIDTH: Final = 6.7

_SETTINGS: Final[dict[str, Any]] = {
    "font.family": "DejaVu Sans",
    "figure.facecolor": "none",
    "figure.constrained_layout.w_pad": 0.07,
    "figure.constrained_layout.h_pad": 0.07,
    "axes.facecolor": "none",
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
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("font.size", "axes.labelsize"), 9),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 8),
    **dict.fromkeys(("text.color", "axes.titlecolor", "axes.labelcolor", "legend.labelcolor"), INK),
    **dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), MUTED),
    # Names come from records: a dollar sign in one is no formula.
    "text.parse_math": False,
    "svg.fonttype": "none",
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
    count: int,
    columns: int,
    size: tuple[float, float],
    *,
    shared: bool = True,
    layout: Literal["constrained", "compressed"] = "constrained",
) -> tuple[Figure, list[Axes]]:
    """Create a figure of ``count`` axes, ``columns`` in a row.

    Args:
        size: width and height of one of them with its labels, inches.
        shared: whether all have the same scales; otherwise those of a column and those of a row have.
        layout: engine of matplotlib; ``compressed`` for axes of a fixed aspect.
    """
    rows = max(1, math.ceil(count / columns))
    figure = Figure(figsize=(max(_LEAST_WIDTH, columns * size[0]), rows * size[1]), layout=layout)
    scales: Any = {"sharex": "all", "sharey": "all"} if shared else {"sharex": "col", "sharey": "row"}
    grid = list(figure.subplots(rows, columns, squeeze=False, **scales).flat)
    for empty in grid[count:]:
        empty.remove()
    return figure, grid[:count]


def label_outer(axes: Sequence[Axes], columns: int, x: str, y: str) -> None:
    """Name the scales of panels: at the left of each row, and below the last of each column."""
    for place, panel in enumerate(axes):
        if place % columns == 0:
            panel.set_ylabel(y)
        if place + columns >= len(axes):
            panel.set_xlabel(x)
            panel.tick_params(labelbottom=True)


def whole_ticks(*axis: Axis) -> None:
    """Put ticks at whole numbers only: tasks, layers, epochs."""
    for each in axis:
        each.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))


def percent_scale(axes: Axes, lowest: float) -> None:
    """Scale accuracies from the tens below the lowest to 100 percent."""
    bottom = max(0.0, 10 * math.floor(min(lowest, 89.9) / 10))
    margin = (100 - bottom) / 25
    axes.set_ylim(bottom - margin, 100 + margin)


def line_and_band(axes: Axes, first: int, summary: SeedSummary, alpha: float, **look: Any) -> None:
    """Draw means at ``first``, ``first + 1``, ..., and a band of one deviation."""
    places = np.arange(first, first + len(summary.mean))
    axes.plot(places, summary.mean, **look)
    if np.isfinite(summary.std).any():
        axes.fill_between(places, *summary.band, color=look["color"], alpha=alpha, linewidth=0)


def legend_below(figure: Figure, handles: list[Any], columns: int) -> None:
    """Add a legend at the foot of the figure, which grows by the legend's height."""
    legend = figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, handlelength=3.4, columnspacing=1.8
    )
    figure.set_figheight(figure.get_figheight() + legend.get_window_extent().height / figure.dpi)


def to_png(figure: Figure) -> bytes:
    """Render the figure on white."""
    _prepare(figure, PAPER)
    figure.set_dpi(PNG_DPI)
    buffer = io.BytesIO()
    FigureCanvasAgg(figure).print_png(buffer, metadata={"Software": None})  # type: ignore[no-untyped-call]
    return buffer.getvalue()


def to_svg(figure: Figure) -> str:
    """Render the figure on its own background, light or dark as the reader's system is. It loads nothing."""
    _prepare(figure, "none")
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    FigureCanvasSVG(figure).print_svg(buffer, metadata=nothing)  # type: ignore[no-untyped-call]
    text = buffer.getvalue()
    head, _, rest = text[text.index("<svg") :].partition(">")
    # Texts stay texts; a browser that has not this font takes another one.
    rest = re.sub(r"font-family: 'DejaVu Sans'(?=[;\"])", "font-family: 'DejaVu Sans', sans-serif", rest)
    rules = [f"svg{{background:{DARK[PAPER]}}}"]
    for light, dark in DARK.items():
        rules += [f'[style*="{part}: {light}"]{{{part}:{dark} !important}}' for part in ("fill", "stroke")]
    theme = f"svg{{background:{PAPER}}}@media (prefers-color-scheme:dark){{{''.join(rules)}}}"
    return f'<?xml version="1.0" encoding="utf-8"?>\n{head}>\n<style>{theme}</style>{rest}'


def _prepare(figure: Figure, background: str) -> None:
    """Find the places of everything, once: ``savefig`` would do it twice for each file, in most of its time."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
    figure.set_facecolor(background)
