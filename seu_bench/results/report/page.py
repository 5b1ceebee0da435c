"""The page: sections and rendered figures in one file. Whatever comes from records is escaped by Jinja2."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from seu_bench._version import __version__
from seu_bench.results.leaderboard.boards import Leaderboard
from seu_bench.results.leaderboard.markdown import LEGEND, cells
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.report import paper
from seu_bench.results.report.picture import Picture
from seu_bench.results.report.sections import Limits, Section
from seu_bench.utils.text import printable


@dataclass(frozen=True)
class RenderedFigure:
    """A picture as it enters the page.

    Attributes:
        name: of its files, without folder and ending.
        svg: its drawing.
        width, height: in the page's pixels.
    """

    name: str
    picture: Picture
    svg: str
    width: int
    height: int

    def document(self) -> dict[str, Any]:
        """Values of the template."""
        return {
            "id": f"figure-{self.name}",
            "file": f"figures/{self.name}",
            "heading": printable(self.picture.heading),
            "caption": self.picture.caption,
            "alt": printable(self.picture.alt),
            "source": "data:image/svg+xml;base64," + base64.b64encode(self.svg.encode()).decode(),
            "width": self.width,
            "height": self.height,
            "numbers": self.picture.numbers,
        }


def render(
    sections: Sequence[Section], figures: Mapping[int, RenderedFigure], outside: Sequence[str], limits: Limits
) -> str:
    """Render the whole page.

    Args:
        figures: the pictures of the sections, by ``id``.
        outside: which records are in no section, and why.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    folder = files("seu_bench.results.report") / "templates"
    style, script = ((folder / f"report.{ending}").read_text(encoding="utf-8") for ending in ("css", "js"))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = environment.from_string((folder / "report.html.j2").read_text(encoding="utf-8"))
    places = [section.place for section in sections]
    started = [run.started for section in sections for each in section.drawn for run in each.runs]
    return template.render(
        title="Lifelong learning: results",
        version=__version__,
        # The page may load pictures within itself, its one style and its one script, and nothing else.
        policy=f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'",
        # Our own files, which hold nothing of a record; as text they would be escaped.
        style=Markup(style),
        script=Markup(script),
        paper_source=paper.source(),
        records=sum(section.board.records for section in sections),
        figures=len(figures),
        latest=printable(max(started, default="")),
        groups=[
            _group(number, section, figures, limits) | {"twin": places.count(section.place) > 1}
            for number, section in enumerate(sections)
        ],
        outside=list(outside),
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _group(number: int, section: Section, figures: Mapping[int, RenderedFigure], limits: Limits) -> dict[str, Any]:
    board, rows = section.board, _rows(section.board, limits.rows)
    runs = [(str(configuration.rank), run) for configuration in section.drawn for run in configuration.runs]
    return {
        "id": f"group-{number}",
        "name": board.name,
        "title": printable(board.title),
        "fingerprint": printable(board.data_fingerprint),
        "records": board.records,
        "legend": LEGEND,
        "headings": [
            {"text": board.heading(key), "definition": metric.summary} for key, metric in board.columns.items()
        ],
        "rows": rows,
        "all_rows": len(board.rows),
        "strategies": sorted({row["strategy"] for row in rows}),
        "paper": paper.beside_ours(*section.place, section.drawn),
        "notes": section.notes,
        "comparing": [figures[id(picture)].document() for picture in section.comparing],
        "single": [figures[id(picture)].document() for picture in section.single],
        "runs": [_run(rank, run) for rank, run in runs[: limits.runs]],
        "all_runs": len(runs),
        "excluded": board.excluded,
    }


def _rows(board: Leaderboard, most: int) -> list[dict[str, Any]]:
    """Rows of the leaderboard's table; each cell with the number that it is sorted by, ``None``: not measured."""
    return [
        {
            "rank": row.rank,
            "label": printable(row.configuration),
            "strategy": printable(row.record.strategy),
            "seeds": row.seeds,
            "parameters": row.mean("params_total"),
            "cells": [
                {"text": text, "value": row.mean(key)} for key, text in zip(board.columns, texts[3:], strict=True)
            ],
        }
        for row, texts in zip(board.rows[:most], cells(board, most=most), strict=True)
    ]


def _run(rank: str, run: Record) -> tuple[str, ...]:
    shown = ("acc", "forgetting", "params_total", "train_seconds")
    values = [METRICS[name].format(run.metrics.get(name)) for name in shown]
    return (rank, run.run_id, str(run.seed), *values, printable(run.environment.device), printable(run.started))
