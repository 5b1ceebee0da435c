"""Charts for plotly.js: traces and layout as plain values. plotly.js takes some markup in texts, so all are escaped."""

from __future__ import annotations

import math
import textwrap
from html import escape
from typing import Any, Final

from seu_bench.results.report.charts import Chart, Panel, Series
from seu_bench.results.report.configurations import GREY, Values
from seu_bench.utils.text import printable

#: Markers of matplotlib by the names of plotly.js.
_SYMBOLS: Final = {"o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down",
                   "P": "cross", "*": "star", "X": "x"}  # fmt: skip
_COLUMNS: Final = 3


def plotly_figure(chart: Chart) -> dict[str, Any]:
    """Return ``data`` and ``layout`` of a chart."""
    columns = min(chart.columns, len(chart.panels), _COLUMNS)
    rows = math.ceil(len(chart.panels) / columns)
    height = 28 * len(chart.categories) if chart.categories else 300 * rows if columns > 1 else 380
    names = list(dict.fromkeys(s.name for panel in chart.panels for s in panel.series if s.look != "step"))
    names_of_axes = [f"x{place or ''}y{place or ''}" for place in (0, *range(2, rows * columns + 1))]
    subplots = [names_of_axes[row * columns : (row + 1) * columns] for row in range(rows)]
    layout: dict[str, Any] = {
        "height": height + 24 * len(names) + 90,
        "margin": {"l": 60, "r": 15, "t": 40, "b": 50},
        "grid": {"subplots": subplots, "xgap": 0.16, "ygap": 0.3},
        "legend": {"orientation": "h", "y": 0, "yref": "container", "yanchor": "bottom"},
        "hoverlabel": {"namelength": -1},
        "annotations": [],
    }
    data: list[dict[str, Any]] = []
    shown: set[str] = set()
    for place, panel in enumerate(chart.panels):
        end = str(place + 1) if place else ""
        layout[f"xaxis{end}"], layout[f"yaxis{end}"] = _axes(chart, panel, place)
        title = {"text": _text(panel.title, 30), "xref": f"x{end} domain", "yref": f"y{end} domain", "x": 0, "y": 1}
        layout["annotations"].append(title | {"showarrow": False, "xanchor": "left", "yanchor": "bottom"})
        axes = {"xaxis": f"x{end}", "yaxis": f"y{end}"}
        if panel.matrix is not None:
            cells = {"z": [_numbers(row) for row in panel.matrix], "zmin": 0, "zmax": 100, "colorscale": "Cividis"}
            bar = {"colorbar": {"title": {"text": chart.color_label}}, "showscale": place == 0}
            data.append({"type": "heatmap", "texttemplate": "%{z:.0f}", "hoverongaps": False, **cells, **bar, **axes})
        for each in panel.series:
            data.append(_trace(each) | axes | {"showlegend": each.name in names and each.name not in shown})
            shown.add(each.name)
    if chart.span:
        span = {"x0": chart.span[0], "x1": chart.span[1], "y0": 0, "y1": 1, "yref": "y domain", "fillcolor": GREY}
        layout["shapes"] = [{"type": "rect", "opacity": 0.2, "line": {"width": 0}, **span}]
    return {"data": data, "layout": layout}


def _axes(chart: Chart, panel: Panel, place: int) -> tuple[dict[str, Any], dict[str, Any]]:
    x: dict[str, Any] = {"title": {"text": _text(chart.x)}, "automargin": True, "zeroline": False}
    y: dict[str, Any] = {"title": {"text": _text(panel.y or chart.y, 40)}, "automargin": True, "zeroline": False}
    if chart.is_log:
        x["type"] = "log"
    if chart.color_label:
        y |= {"autorange": "reversed", "scaleanchor": f"x{place + 1 if place else ''}", "constrain": "domain"}
    if chart.categories:
        ticks = {"tickvals": list(range(len(chart.categories))), "ticktext": [_text(c, 30) for c in chart.categories]}
        y |= {"autorange": "reversed", **ticks}
    elif place and not panel.y:  # one scale in all panels
        x["matches"], y["matches"] = "x", "y"
    return x, y


def _trace(each: Series) -> dict[str, Any]:
    color, is_marked = each.style.color, each.look in ("line", "point")
    marker = {"color": color, "size": 8 if each.look == "line" else 11}
    marker["symbol"] = _SYMBOLS[each.style.marker] + ("-open" if each.is_hollow else "")
    dashes = ",".join(f"{2 * length:g}px" for length in each.style.dashes) or "solid"
    line = {"color": color, "dash": dashes, "width": 2 if each.look == "line" else 1.2}
    errors = {f"error_{axis}": {"array": _numbers(std), "color": color, "thickness": 1, "width": 3}
              for axis, std in (("y", each.std), ("x", each.x_std)) if std is not None}  # fmt: skip
    return {
        "x": _numbers(each.x),
        "y": _numbers(each.y),
        "name": _text(each.name),
        "legendgroup": _text(each.name, 10**6),
        "mode": "markers" if each.look == "point" else "lines+markers" if is_marked else "lines",
        "marker": marker,
        "line": line | ({"shape": "hv"} if each.look == "step" else {}),
        "hoverinfo": "skip" if each.look == "step" else "all",
        **errors,
    }


def _numbers(values: Values) -> list[float | None]:
    """Seven digits, more than can be seen; ``None`` where it was not measured."""
    return [float(f"{float(value):.7g}") if math.isfinite(value) else None for value in values]


def _text(text: str, letters: int = 44) -> str:
    lines = textwrap.wrap(printable(text), letters, max_lines=4, placeholder=" …")
    return "<br>".join(escape(line, quote=False) for line in lines)
