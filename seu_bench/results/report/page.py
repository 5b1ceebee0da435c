"""The page: plans and finished pictures into one file. Whatever comes from records is escaped by Jinja2."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

from seu_bench._version import __version__
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.report.paper import Beside, beside_ours, source
from seu_bench.results.report.picture import Numbers, Picture
from seu_bench.results.report.plan import Limits, Plan
from seu_bench.utils.text import printable

_TITLE: Final = "Lifelong learning: results"


@dataclass(frozen=True)
class RenderedFigure:
    """A picture as it enters the page.

    Attributes:
        id: of its element, and the beginning of its files' names.
        file: where its files lie, without ending, as the reader is told.
        svg: its drawing.
        width, height: in the page's pixels.
    """

    id: str
    file: str
    picture: Picture
    svg: str
    width: int
    height: int

    @property
    def source(self) -> str:
        """The drawing as a data URI."""
        return "data:image/svg+xml;base64," + base64.b64encode(self.svg.encode()).decode()


def render(
    plans: Sequence[Plan], finished: Mapping[int, RenderedFigure], outside: Sequence[str], limits: Limits
) -> str:
    """The whole page.

    Args:
        finished: the pictures of the plans, by ``id``.
        outside: which records are in no group, and why.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    folder = files("seu_bench.results.report") / "templates"
    style, script = ((folder / f"report.{ending}").read_text(encoding="utf-8") for ending in ("css", "js"))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = environment.from_string((folder / "report.html.j2").read_text(encoding="utf-8"))
    runs = [run for plan in plans for configuration in plan.group.drawn for run in configuration.runs]
    return template.render(
        title=_TITLE,
        version=__version__,
        policy=_policy(style, script),
        # Our own files, which hold nothing of a record; as text they would be escaped.
        style=Markup(style),
        script=Markup(script),
        paper_source=source(),
        records=sum(plan.group.records for plan in plans),
        figures=len(finished),
        latest=printable(max([run.started for run in runs], default="")),
        groups=[_group(number, plan, plans, finished, limits) for number, plan in enumerate(plans)],
        outside=list(outside),
    )


def _policy(style: str, script: str) -> str:
    """What the page may load: pictures within itself, its one style and its one script, and nothing else."""
    allowed = [_hash(text) for text in (style, script)]
    return (
        f"default-src 'none'; img-src data:; style-src '{allowed[0]}'; script-src '{allowed[1]}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _group(
    number: int, plan: Plan, plans: Sequence[Plan], finished: Mapping[int, RenderedFigure], limits: Limits
) -> dict[str, Any]:
    group = plan.group
    place = (group.benchmark, group.version, group.protocol)
    others = [(p.group.benchmark, p.group.version, p.group.protocol) for p in plans]
    runs = [(str(configuration.rank), run) for configuration in group.drawn for run in configuration.runs]
    paper = beside_ours(*place, group.drawn)
    return {
        "id": f"group-{number}",
        "name": group.name,
        "title": printable(group.title),
        "twin": others.count(place) > 1,
        "fingerprint": printable(group.fingerprint),
        "records": group.records,
        "legend": group.legend,
        "headings": group.headings,
        "rows": group.rows[: limits.rows],
        "all_rows": len(group.rows),
        "strategies": sorted({row.strategy for row in group.rows[: limits.rows]}),
        "paper": _by_place(paper),
        "notes": plan.notes,
        "comparing": [_figure(finished[id(picture)]) for picture in plan.comparing],
        "single": [_figure(finished[id(picture)]) for picture in plan.single],
        "runs": [_run(rank, run) for rank, run in runs[: limits.runs]],
        "all_runs": len(runs),
        "excluded": group.excluded,
    }


def _by_place(paper: Sequence[Beside]) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Rows of tables, one table for each place in the paper."""
    tables: dict[str, list[tuple[str, ...]]] = {}
    for one in paper:
        row = (one.method, one.configuration, one.what, one.printed, one.ours, one.difference)
        tables.setdefault(one.place, []).append(row)
    return list(tables.items())


def _figure(shown: RenderedFigure) -> dict[str, Any]:
    numbers: Numbers | None = shown.picture.numbers
    return {
        "id": shown.id,
        "file": shown.file,
        "heading": printable(shown.picture.heading),
        "caption": shown.picture.caption,
        "alt": printable(shown.picture.alt),
        "source": shown.source,
        "width": shown.width,
        "height": shown.height,
        "numbers": numbers,
    }


def _run(rank: str, run: Record) -> tuple[str, ...]:
    shown = ("acc", "forgetting", "params_total", "train_seconds")
    values = [METRICS[name].format(run.metrics.get(name)) for name in shown]
    return (rank, run.run_id, str(run.seed), *values, printable(run.environment.device), printable(run.started))
