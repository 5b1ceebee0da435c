"""``seu-bench compare``: runs of one benchmark, task by task."""

from __future__ import annotations

from pathlib import Path

import click

from seu_bench.cli.options import format_option, known_metrics, print_as, request_command
from seu_bench.cli.tables import comparison_tables
from seu_bench.errors import RequestError
from seu_bench.results.comparison import compare as compared
from seu_bench.results.record_files import find_record


@request_command("results")
@click.argument("run_names", metavar="RUN RUN...", nargs=-1, required=True)
@format_option
def compare(run_names: tuple[str, ...], form: str, results: Path) -> None:
    """Compare runs of one benchmark task by task.

    The first run is compared with each of the others. RUN is a run id, a unique prefix of one, or the run's folder.
    """
    if len(run_names) < 2:
        raise RequestError("one run cannot be compared", remedy="name two runs or more")
    first, *others = [find_record(results, name) for name in run_names]
    metrics = known_metrics()
    comparisons = [compared(first, other, metrics) for other in others]
    parts = [part for comparison in comparisons for part in ("", comparison_tables(comparison, metrics))]
    print_as(form, [comparison.document() for comparison in comparisons], parts[1:])
