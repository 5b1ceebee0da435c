"""Charts for plotly.js: traces and layout as plain values. plotly.js takes some markup in texts, so all are escaped."""

from __future__ import annotations

import math
import textwrap
from html import escape
from typing import Any, Final

from seu_bench.results.report.charts import GREY, Chart, Series, Values
from seu_bench.utils.text import printable

#: Markers of matplotlib by the names of plotly.js.
_SYMBOLS: Final = {"o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down",
                   "P": "cross", "*": "star", "X": "x"}  # fmt: skip
#: Panels in a row; tasks of an axis that has room for their names.
_COLUMNS, _MOST_NAMED = 4, 12


def plotly_figure(chart: Chart) -> dict[str, Any]:
    """Return ``data`` and ``layout`` of a chart; report.js adds fonts, colours, and the height of the legend."""
    shown = [each.name for each in chart.series if each.look != "step"]
    axis: dict[str, Any] = {"automargin": True, "zeroline": False}
    x, y = axis | {"title": {"text": _text(chart.x)}}, axis | {"title": {"text": _text(chart.y, 40)}}
    layout: dict[str, Any] = {
        "margin": {"l": 60, "r": 15, "t": 30, "b": 50},
        "legend": {"orientation": "h", "y": 0, "yref": "container", "yanchor": "bottom"},
        "hoverlabel": {"namelength": -1},
    }
    named = {"tickvals": list(range(1, len(chart.tasks) + 1)), "ticktext": [_text(task, 99) for task in chart.tasks]}
    named = named if 0 < len(chart.tasks) <= _MOST_NAMED else {}
    if chart.matrices:
        return _matrices(chart, layout, x | {"nticks": 6}, y | named)
    x |= named
    if chart.is_log:
        x["type"] = "log"
    if chart.categories:
        y |= {"autorange": "reversed", "tickvals": list(range(len(chart.categories)))}
        y["ticktext"] = [_text(name, 30) for name in chart.categories]
    if chart.span:
        span = {"x0": chart.span[0], "x1": chart.span[1], "y0": 0, "y1": 1, "yref": "y domain", "fillcolor": GREY}
        layout["shapes"] = [{"type": "rect", "opacity": 0.2, "line": {"width": 0}, **span}]
    height = 28 * len(chart.categories) + 110 if chart.categories else 380
    data = [_trace(each) | {"showlegend": each.name in shown} for each in chart.series]
    return {"data": data, "layout": layout | {"height": height, "xaxis": x, "yaxis": y}}


def _matrices(chart: Chart, layout: dict[str, Any], x: dict[str, Any], y: dict[str, Any]) -> dict[str, Any]:
    columns = min(len(chart.matrices), _COLUMNS)
    rows = math.ceil(len(chart.matrices) / columns)
    ends = ["", *map(str, range(2, rows * columns + 1))]
    subplots = [[f"x{end}y{end}" for end in ends[row * columns : (row + 1) * columns]] for row in range(rows)]
    layout |= {"height": 300 * rows + 40, "annotations": []}
    layout["grid"] = {"subplots": subplots, "xgap": 0.06, "ygap": 0.3}
    data = []
    for number, (end, (title, matrix)) in enumerate(zip(ends, chart.matrices.items(), strict=False)):
        layout[f"xaxis{end}"] = x | {"constrain": "domain", "constraintoward": "left"}
        layout[f"yaxis{end}"] = y | {"autorange": "reversed", "scaleanchor": f"x{end}", "constrain": "domain"}
        if number % columns:
            layout[f"yaxis{end}"] |= {"showticklabels": False, "title": None}
        place = {"xref": f"x{end} domain", "yref": f"y{end} domain", "x": 0, "y": 1, "yanchor": "bottom"}
        layout["annotations"].append(place | {"text": _text(title, 30), "showarrow": False, "xanchor": "left"})
        cells = {"z": [_numbers(row) for row in matrix], "zmin": 0, "zmax": 100, "colorscale": "Cividis"}
        cells |= {"x0": 1, "y0": 1}
        cells |= {"texttemplate": "%{z:.0f}", "hoverongaps": False, "xaxis": f"x{end}", "yaxis": f"y{end}"}
        bar = {"colorbar": {"title": {"text": "accuracy (%)"}}, "showscale": not end}
        data.append({"type": "heatmap", **cells, **bar})
    return {"data": data, "layout": layout}


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
