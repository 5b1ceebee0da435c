"""``seu-bench compare``: runs of one benchmark, task by task, and their configurations over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.console import Group, RenderableType
from rich.table import Table

from seu_bench.cli.completion import run_ids
from seu_bench.cli.options import format_option, known_metrics, print_as, request_command
from seu_bench.cli.tables import literal, new_table
from seu_bench.errors import RequestError
from seu_bench.results.comparison import Comparison, Pair, difference
from seu_bench.results.comparison import compare as compared
from seu_bench.results.leaderboard import tuned_rows
from seu_bench.results.leaderboard.building import read_leaderboards
from seu_bench.results.leaderboard.tuned_rows import tuning_cells
from seu_bench.results.metric import Metric
from seu_bench.results.over_seeds import SeedComparison, compare_over_seeds
from seu_bench.results.record_files import find_record
from seu_bench.results.record_metrics import METRICS, known_metric
from seu_bench.results.reference_rows import reference_of
from seu_bench.results.statistics.words import HEADINGS, MEANING, difference_cells

if TYPE_CHECKING:
    from seu_bench.results.record import Record

#: Headings of the three columns of what two runs are compared by.
_SIDES: Final = ("1", "2", "2 - 1")

_TESTS: Final = "effect size, what so many seeds detect, and the paired t-test"
#: What stands in place of a comparison over seeds that there is none of.
_NONE: Final = "over seeds: no comparison, since these runs are of one configuration, or not ranked in one leaderboard"


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
    metrics = known_metrics()
    comparisons = [compared(first, other, metrics) for other in others]
    boards = read_leaderboards(results, metrics).boards if results.is_dir() else ()
    seeds = compare_over_seeds(boards, [first.run_id, *[other.run_id for other in others]], metrics)
    parts = [part for comparison in comparisons for part in ("", comparison_tables(comparison, metrics))]
    print_as(
        form,
        {
            "runs": [comparison.document() for comparison in comparisons],
            "over_seeds": seeds.document() if seeds else None,
        },
        [*parts[1:], "", _NONE if seeds is None else seed_tables(seeds, metrics)],
    )


def comparison_tables(comparison: Comparison, metrics: Mapping[str, Metric] = METRICS) -> RenderableType:
    """Both runs named, accuracies and costs of each task, metrics, and the settings that are not the same."""
    runs = zip(_SIDES, (comparison.one, comparison.other), strict=False)
    parts: list[RenderableType] = [literal(f"{side}: {_named(run)}") for side, run in runs]
    if not comparison.same_order:
        parts.append("They learned the tasks in another order; rows are in that of the first.")
    shares, costs = ("final", "learned", "forgetting"), ("parameters", "memory", "seconds")
    parts += ["", _task_table("accuracy of each task (%)", comparison, shares, is_share=True)]
    parts += ["", _task_table("cost after and of each task", comparison, costs, is_share=False), ""]
    rows = [_metric_row(key, known_metric(key, metrics), pair) for key, pair in comparison.metrics.items()]
    parts += [new_table("metrics", ("metric", *[f">{side}" for side in _SIDES]), rows), ""]
    settings = [(name, *["-" if it is None else it for it in pair]) for name, pair in comparison.settings.items()]
    different = new_table("settings that differ (-: not set)", ("setting", *_SIDES[:2]), settings)
    return Group(*parts, different if settings else "settings: all the same")


def _named(record: Record) -> str:
    """Its run id, and what it is a reference of."""
    what = reference_of(record)
    return record.run_id + (f" (a reference: {what})" if what else "")


def _task_table(title: str, comparison: Comparison, measures: Sequence[str], *, is_share: bool) -> Table:
    def three(pair: Pair) -> list[str]:
        return [*[_measured(value, is_share) for value in pair], _measured(difference(pair), is_share, signed=True)]

    headings = [f">{measure if side == _SIDES[0] else ''}\n{side}" for measure in measures for side in _SIDES]
    rows = [
        (task.name, *[text for measure in measures for text in three(task.values[measure])])
        for task in comparison.tasks
    ]
    return new_table(title, ("task", *headings), rows, pad=0)


def _measured(value: float | None, is_share: bool, signed: bool = False) -> str:
    """Format shares in percent, whole numbers as such and others, seconds, with two decimals."""
    if value is None:
        return "-"
    digits = 1 if is_share else 0 if isinstance(value, int) else 2
    value = round(100 * value if is_share else value, digits) + 0.0  # adding 0.0 turns -0.0 into 0.0
    return ("+" if signed and value > 0 else "") + f"{value:,.{digits}f}"


def _metric_row(key: str, metric: Metric, pair: Pair) -> Sequence[str]:
    change, sign = difference(pair), ""
    if change is not None:
        sign = "+" if change > 0 else "-" if change < 0 and metric.unit == "seconds" else ""
        change = abs(change) if metric.unit == "seconds" else change
    return key, *map(metric.format, pair), sign + metric.format(change).replace("%", "points")


def seed_tables(seeds: SeedComparison, metrics: Mapping[str, Metric]) -> RenderableType:
    """The differences of each other configuration to the first: means, intervals, verdicts; effects and tests below."""
    parts: list[RenderableType] = []
    for place, other in enumerate(seeds.others):
        found = {name: differences[place] for name, differences in seeds.metrics.items()}
        pairs = max((each.pairs for each in found.values()), default=0)
        title = f"over {pairs} common seeds: {other.configuration} less {seeds.one.configuration}"
        names = {name: known_metric(name, metrics).column or name for name in found}
        cells = {names[name]: difference_cells(each, known_metric(name, metrics)) for name, each in found.items()}
        for heading, part, pad in ((title, slice(4), 0), (_TESTS, slice(4, None), 1)):
            headings = ("metric", *[f"{'' if it == 'verdict' else '>'}{it}" for it in HEADINGS[part]])
            parts += ["", new_table(heading, headings, [(name, *row[part]) for name, row in cells.items()], pad=pad)]
    if tuned := tuning_cells([seeds.one, *seeds.others]):
        parts += ["", new_table("tuning of the hyper-parameters, in no other cost", tuned_rows.HEADINGS, tuned, pad=0)]
    return Group(*parts[1:], "", MEANING)
