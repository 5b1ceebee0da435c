"""``seu-bench compare``: runs of one benchmark, task by task, and their configurations over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import click
from rich.console import Group, RenderableType

from seu_bench.cli.completion import run_ids
from seu_bench.cli.options import format_option, known_registry, print_as, request_command
from seu_bench.cli.tables import literal, new_table
from seu_bench.errors import RequestError
from seu_bench.results import comparison
from seu_bench.results.building import read_leaderboards
from seu_bench.results.leaderboard import count
from seu_bench.results.metric import Metric
from seu_bench.results.record_files import find_record
from seu_bench.results.record_metrics import METRICS, known_metric
from seu_bench.results.reference_rows import reference_of

#: Headings of the three columns of what two runs are compared by.
_SIDES: Final = ("1", "2", "2 - 1")
#: Tables of tasks: measures and decimals of their units.
_TABLES: Final[Mapping[str, Mapping[str, int]]] = {
    "accuracy of each task (%)": {"final": 1, "learned": 1, "forgetting": 1},
    "cost after and of each task": {"parameters": 0, "memory": 0, "seconds": 2},
}


@request_command("results")
@click.argument("run_names", metavar="RUN RUN...", nargs=-1, required=True, shell_complete=run_ids)
@format_option
def compare(run_names: tuple[str, ...], form: str, results: Path) -> None:
    """Compare runs of one benchmark task by task, and their configurations over all of their seeds.

    The first run is compared with each of the others. RUN is a run id, a unique prefix of one, or the run's folder.
    What is significant is decided over seeds, with Holm's correction for the runs named.
    """
    if len(run_names) < 2:
        raise RequestError("one run cannot be compared", remedy="name two runs or more")
    first, *others = [find_record(results, name) for name in run_names]
    metrics = known_registry().known_metrics
    compared = [comparison.compare(first, other, metrics) for other in others]
    boards = read_leaderboards(results, metrics).boards if results.is_dir() else ()
    seeds = comparison.compare_over_seeds(boards, [first.run_id, *[other.run_id for other in others]], metrics)
    document = {"runs": [it.document() for it in compared], "over_seeds": seeds.document() if seeds else None}
    none = "over seeds: no comparison, since these runs are of one configuration, or not ranked in one leaderboard"
    parts = [part for it in compared for part in (comparison_tables(it, metrics), "")]
    print_as(form, document, [*parts, Group(*_seed_tables(seeds, metrics)) if seeds else none])


def comparison_tables(found: comparison.Comparison, metrics: Mapping[str, Metric] = METRICS) -> RenderableType:
    """Name both runs, and show accuracies and costs of each task, metrics, and the settings that are not the same."""
    parts: list[RenderableType] = []
    for side, run in zip(_SIDES, (found.one, found.other), strict=False):
        what = reference_of(run)
        parts.append(literal(f"{side}: {run.run_id}" + (f" (a reference: {what})" if what else "")))
    if not found.same_order:
        parts.append("They learned the tasks in another order; rows are in that of the first.")
    for title, measures in _TABLES.items():
        headings = [f">{measure if side == _SIDES[0] else ''}\n{side}" for measure in measures for side in _SIDES]
        rows = [
            (task["name"], *[text for it, digits in measures.items() for text in _texts(task[it], digits)])
            for task in found.tasks
        ]
        parts += ["", new_table(title, ("task", *headings), rows, pad=0)]
    rows = [(key, *_metric_texts(known_metric(key, metrics), sides)) for key, sides in found.metrics.items()]
    parts += ["", new_table("metrics", ("metric", *[f">{side}" for side in _SIDES]), rows), ""]
    settings = [(name, *["-" if it is None else it for it in pair]) for name, pair in found.settings.items()]
    different = new_table("settings that differ (-: not set)", ("setting", *_SIDES[:2]), settings)
    return Group(*parts, different if settings else "settings: all the same")


def _texts(sides: Sequence[float | None], digits: int) -> Iterator[str]:
    """Numbers with so many decimals, shares in percent; the last one, a difference, with its sign."""
    for value, sign in zip(sides, ("", "", "+"), strict=True):
        number = None if value is None else round(value * (100 if digits == 1 else 1), digits) + 0.0  # no negative zero
        yield "-" if number is None else f"{number:{sign if number else ''},.{digits}f}"


def _metric_texts(metric: Metric, sides: comparison.Sides) -> list[str]:
    change, sign = sides[2], ""
    if change is not None:
        sign = "+" if change > 0 else "-" if change < 0 and metric.unit == "seconds" else ""
        change = abs(change) if metric.unit == "seconds" else change
    return [*map(metric.format, sides[:2]), sign + metric.format(change).replace("%", "points")]


def _seed_tables(seeds: comparison.SeedComparison, metrics: Mapping[str, Metric]) -> Iterator[RenderableType]:
    headings = ("metric", *[f">{it}" for it in comparison.HEADINGS[:-1]], comparison.HEADINGS[-1])
    for place, other in enumerate(seeds.others):
        found = {known_metric(name, metrics): (name, its[place]) for name, its in seeds.metrics.items()}
        pairs = max((each.pairs for _, each in found.values()), default=0)
        title = f"over {count(pairs, 'common seed')}: {other.configuration} less {seeds.one.configuration}"
        rows = [(it.column or name, *comparison.difference_cells(each, it)) for it, (name, each) in found.items()]
        yield from (new_table(title, headings, rows, pad=0), "")
    yield comparison.MEANING
