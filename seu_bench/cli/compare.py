"""``seu-bench compare``: runs of one benchmark, task by task, and their configurations over seeds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click
from rich.console import Group, RenderableType

from seu_bench.cli.options import format_option, known_metrics, print_as, request_command
from seu_bench.cli.tables import comparison_tables, new_table
from seu_bench.errors import RequestError
from seu_bench.results.comparison import compare as compared
from seu_bench.results.leaderboard.building import read_leaderboards
from seu_bench.results.metric import UNITS, Metric
from seu_bench.results.over_seeds import SeedComparison, compare_over_seeds
from seu_bench.results.record_files import find_record
from seu_bench.results.record_metrics import known_metric
from seu_bench.results.statistics.differences import PairedDifference

#: What stands in place of a comparison over seeds that there is none of.
_NONE = "over seeds: no comparison, since these runs are of one configuration, or not ranked in one leaderboard"

#: Below the tables over seeds.
_MEANING = (
    "Significant: paired t-test over the common seeds, p < 0.05 after Holm's correction for the configurations named. "
    "Intervals are of the mean difference, each by itself. Detectable: what so many seeds find with 80 % power."
)


@request_command("results")
@click.argument("run_names", metavar="RUN RUN...", nargs=-1, required=True)
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


def seed_tables(seeds: SeedComparison, metrics: Mapping[str, Metric]) -> RenderableType:
    """The differences of each other configuration to the first: means, intervals, verdicts; effects and tests below."""
    parts: list[RenderableType] = []
    for place, other in enumerate(seeds.others):
        found = {name: differences[place] for name, differences in seeds.metrics.items()}
        pairs = max((each.pairs for each in found.values()), default=0)
        title = f"over {pairs} common seeds: {other.configuration} less {seeds.one.configuration}"
        names = {name: known_metric(name, metrics).column or name for name in found}
        differences = [
            (names[name], *_differences(each, known_metric(name, metrics)), each.verdict)
            for name, each in found.items()
        ]
        tests = [(names[name], *_tests(each, known_metric(name, metrics))) for name, each in found.items()]
        headings = ("metric", ">difference", ">95 % interval", ">bootstrap", "verdict")
        parts += ["", new_table(title, headings, differences, pad=0)]
        headings = ("metric", ">Hedges' g", ">detectable", ">p", ">p (Holm)")
        parts += ["", new_table("effect size, what so many seeds detect, and the paired t-test", headings, tests)]
    return Group(*parts[1:], "", _MEANING)


def _differences(found: PairedDifference, metric: Metric) -> tuple[str, str, str]:
    if found.summary is None:
        return "-", "-", "-"
    own, bootstrap = found.summary, found.bootstrap
    interval = "-" if own.low is None or own.high is None else _between((own.low, own.high), metric)
    return _signed(own.mean, metric), interval, _between(bootstrap, metric) if bootstrap else "-"


def _tests(found: PairedDifference, metric: Metric) -> tuple[str, str, str, str]:
    effect = "-" if found.effect is None else f"{found.effect:+.2f}"
    detectable = "-" if found.detectable is None else metric.format_cell(found.detectable)
    return effect, detectable, _p_value(found.p_value), _p_value(found.corrected)


def _between(ends: tuple[float, float], metric: Metric) -> str:
    return " to ".join(_signed(end, metric) for end in ends)


def _signed(value: float, metric: Metric) -> str:
    text = metric.format_cell(value)
    return text if text.startswith("-") or value * UNITS[metric.unit].factor <= 0 else f"+{text}"


def _p_value(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}" if value >= 1e-4 else "<0.0001"
