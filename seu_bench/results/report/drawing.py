"""Charts drawn by matplotlib, without pyplot, for the page's width or a paper's column, as PDF, SVG and PNG.

Files of the same records are the same bytes. Fonts are embedded as TrueType (Type 42), since publishers refuse Type 3;
in the SVG texts stay texts.
"""

from __future__ import annotations

import inspect
import io
import math
import re
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast
from xml.sax.saxutils import escape

import matplotlib.style
import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from seu_bench.results.report.charts import GREY, Chart, Series, Values
from seu_bench.utils.text import printable

#: Inches that a figure may be wide, and of a panel at the least, before fewer are in a row; panels in a row.
_NARROWEST, _WIDEST, _LEAST_PANEL, _COLUMNS = 2.5, 20.0, 1.5, 4
_UNITS: Final = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}  # a point of TeX's, as \columnwidth is in
#: Families that come with matplotlib: one like Times, and one with most letters.
_FALLBACKS: Final = ("STIXGeneral", "DejaVu Sans")
_STYLE: Final[dict[str, Any]] = {
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "axes.titleweight": "bold",
    "grid.color": "#d4d9de",
    "legend.frameon": False,
    "text.parse_math": False,  # names come from records: a dollar sign in one is no formula
    "svg.fonttype": "none",
    "svg.hashsalt": "seu-bench",
    "pdf.fonttype": 42,
}
#: Sizes of texts on a page; in print they are a point smaller, or those of the venue.
_PAGE: Final = {"font.size": 9.0, "axes.labelsize": 9.0, "axes.titlesize": 9.5, "legend.fontsize": 8.5}
_PAGE.update({"xtick.labelsize": 8.0, "ytick.labelsize": 8.0})
#: Metadata by format: who made a file, by which version and when would be other bytes each time.
_METADATA: Final[dict[str, dict[str, Any]]] = {
    "pdf": dict.fromkeys(("Creator", "Producer", "CreationDate")),
    "svg": dict.fromkeys(("Date", "Creator", "Format", "Type")),
    "png": {"Software": None},
}
_THIN: Final = {"lines.linewidth": 1.2, "lines.markersize": 4.5}


@dataclass(frozen=True)
class Layout:
    """Width of figures in inches, and settings of matplotlib for sizes and fonts of texts.

    Example:
        >>> Layout.of("8.25cm").width
        3.248031496062992
    """

    width: float = 7.5
    settings: dict[str, Any] = field(default_factory=lambda: dict(_PAGE))

    @classmethod
    def of(cls, width: str) -> Layout:
        """Return the layout of a paper's column.

        Args:
            width: a length such as ``3.25in``, ``8.25cm``, ``82mm`` or ``234pt`` (TeX's); or a venue of tueplots, such
                as ``icml`` or ``neurips``, with its fonts, and ``-wide`` behind it for both columns.

        Raises:
            ValueError: it is none, or figures cannot be that wide.
        """
        match = re.fullmatch(r"(\d{1,6}(?:\.\d{0,20})?)\s*(in|cm|mm|pt)", width.strip(), re.IGNORECASE | re.ASCII)
        if match is None:
            return cls._of_venue(width)
        inches = float(match[1]) * _UNITS[match[2].lower()]
        if not _NARROWEST <= inches <= _WIDEST:
            raise ValueError(f"{width} is {inches:.2f} inches; figures are {_NARROWEST:g} to {_WIDEST:g} inches wide")
        return cls(inches, {key: size - 1 for key, size in _PAGE.items()} | _THIN)

    @classmethod
    def _of_venue(cls, text: str) -> Layout:
        from matplotlib.font_manager import fontManager
        from tueplots import bundles

        known = {match[1]: name for name in sorted(dir(bundles)) if (match := re.fullmatch(r"([a-z]+)20\d\d", name))}
        venue = text.lower().removesuffix("-wide")
        if venue not in known:
            raise ValueError(f"{printable(text)!r} is no width; give one such as 3.25in, or one of {', '.join(known)}")
        bundle = getattr(bundles, known[venue])  # of several years the last
        given = {"column": "half" if venue == text.lower() else "full", "usetex": False}
        found = bundle(**{key: value for key, value in given.items() if key in inspect.signature(bundle).parameters})
        installed = {font.name for font in fontManager.ttflist if font.fname.lower().endswith(".ttf")}
        families = [*(family for family in found.get("font.serif", ()) if family in installed), *_FALLBACKS]
        sizes = {key: value for key, value in found.items() if key in _PAGE}
        return cls(float(found["figure.figsize"][0]), sizes | _THIN | {"font.family": families})


def render(chart: Chart, layout: Layout) -> dict[str, bytes]:
    """Draw a chart; return the contents of its files by format."""
    title, caption = printable(chart.heading), printable(chart.caption)
    files: dict[str, bytes] = {}
    with matplotlib.style.context(_STYLE | layout.settings, after_reset=True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")  # browsers have others
        figure = draw(chart, layout.width)
        figure.get_layout_engine().execute(figure)  # type: ignore[union-attr]  # once, not for each file twice
        figure.set_layout_engine("none")
        for form, known in {**_METADATA, "pdf": _METADATA["pdf"] | {"Title": title}}.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=form, dpi=300, metadata=known)
            files[form] = buffer.getvalue()
    head, _, rest = files["svg"].decode().partition("<svg")[2].partition(">")
    said = f"<title>{escape(title)}</title><desc>{escape(caption)}</desc>"
    files["svg"] = f'<?xml version="1.0" encoding="utf-8"?>\n<svg{head} role="img">{said}{rest}'.encode()
    return files


def draw(chart: Chart, width: float) -> Figure:
    """Draw a chart within the settings of matplotlib that are set."""
    if chart.matrices:
        return _draw_matrices(chart, width)
    height = 0.24 * len(chart.categories) + 0.8 if chart.categories else 0.57 * width
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.set_xlabel(_fold(chart.x, width - 0.2, "axes.labelsize"))
    axes.set_ylabel(_fold(chart.y, 0.6 * height, "axes.labelsize"))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    for each in chart.series:
        _draw_series(axes, each)
    if chart.is_log:
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 60 else (1.0,), numticks=12))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    if chart.categories:
        names = [_fold(name, 0.35 * width, "ytick.labelsize", 1) for name in chart.categories]
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
    if chart.span:
        axes.axvspan(*chart.span, color=GREY, alpha=0.15, linewidth=0)
    return _with_legend(figure, chart.series, width)


def _look(each: Series) -> dict[str, Any]:
    return {
        "color": each.style.color,
        "linestyle": "none" if each.look == "point" else (0, each.style.dashes),
        "marker": each.style.marker if each.look in ("line", "point") else "",
        "markerfacecolor": "none" if each.is_hollow else each.style.color,
        "linewidth": rcParams["lines.linewidth"] * (1 if each.look == "line" else 0.6),
    }


def _draw_series(axes: Axes, each: Series) -> None:
    drawstyle: Any = "steps-post" if each.look == "step" else "default"
    axes.plot(each.x, each.y, **_look(each), drawstyle=drawstyle, zorder=2 if each.look in ("line", "point") else 1)
    if each.std is not None and np.isfinite(each.std).any():
        std, color = np.nan_to_num(each.std), each.style.color
        if each.look == "point":
            across = None if each.x_std is None else np.nan_to_num(each.x_std)
            axes.errorbar(each.x, each.y, std, across, fmt="none", ecolor=color, elinewidth=1, capsize=2)
        else:
            axes.fill_between(each.x, each.y - std, each.y + std, color=color, alpha=0.16, linewidth=0)


def _draw_matrices(chart: Chart, whole: float) -> Figure:
    """Draw a panel for each matrix, all on one scale."""
    count, largest = len(chart.matrices), max(map(len, chart.matrices.values()))
    columns = max(1, min(_COLUMNS, count, int(whole / _LEAST_PANEL)))
    rows, width = math.ceil(count / columns), whole / columns
    height = 0.57 * width if columns == 1 else max(0.8 * width, 1.0) + 0.8
    figure = Figure(figsize=(whole, rows * height), layout="compressed")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for place, (axes, (title, matrix)) in enumerate(zip(grid.flat, chart.matrices.items(), strict=False)):
        axes.set_title(_fold(title, width * 0.58, "axes.titlesize", 3))
        if place % columns == 0:
            axes.set_ylabel(_fold(chart.y, 0.6 * height, "axes.labelsize"))
        if place + columns >= count:
            axes.set_xlabel(_fold(chart.x, width - 0.2, "axes.labelsize"))
            axes.tick_params(labelbottom=True)
        mesh = _draw_matrix(axes, matrix, width)
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set(xlim=(0.5, largest + 0.5), ylim=(largest + 0.5, 0.5))
    for axes in grid.flat[count:]:
        axes.remove()
    figure.colorbar(mesh, ax=figure.axes, label="accuracy (%)", aspect=30).ax.grid(visible=False)
    return figure


def _draw_matrix(axes: Axes, matrix: Values, width: float) -> Any:
    edges, shown = np.arange(len(matrix) + 1) + 0.5, np.ma.masked_invalid(matrix)
    size = min(7.0, 0.75 * 72 * width / (1.7 * len(matrix)))
    for row, task in np.argwhere(np.isfinite(matrix)) if size >= 5.5 else ():
        ink = "k" if matrix[row, task] >= 50 else "w"
        axes.text(task + 1, row + 1, f"{matrix[row, task]:.0f}", ha="center", va="center", fontsize=size, color=ink)
    axes.set_aspect("equal")
    axes.grid(visible=False)
    return axes.pcolormesh(edges, edges, shown, cmap="cividis", vmin=0, vmax=100, edgecolors="w", linewidth=0.5)


def _with_legend(figure: Figure, series: Sequence[Series], width: float) -> Figure:
    """Put a legend at the foot of the figure, which grows by its height."""
    handles = {each.name: Line2D([], [], **_look(each)) for each in series if each.look != "step"}
    if not handles:
        return figure
    letter = 0.58 * rcParams["legend.fontsize"] / 72  # inches of one, on average
    columns = max(1, min(3, len(handles), int(width / letter / min(max(map(len, handles)) + 9, 30))))
    labels = [_fold(name, width / columns - 9 * letter, "legend.fontsize", 8) for name in handles]
    legend = figure.legend(handles.values(), labels, loc="outside lower center", ncols=columns, handlelength=3)
    figure.set_figheight(figure.get_figheight() + legend.get_window_extent().height / figure.dpi)
    return figure


def _fold(text: str, inches: float, size: str, lines: int = 4) -> str:
    """Break a text into lines of this length; what does not fit ends in an ellipsis."""
    letters = max(6, int(72 * inches / (0.58 * cast(dict[str, float], rcParams)[size])))
    return textwrap.fill(printable(text), letters, max_lines=lines, placeholder=" …", break_on_hyphens=False)
