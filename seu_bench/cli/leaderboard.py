"""``seu-bench leaderboard``: leaderboards made from records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from seu_bench.cli.options import known_metrics, request_command
from seu_bench.cli.tables import leaderboard_table, wide_console
from seu_bench.results.leaderboard.boards import Leaderboard, to_csv
from seu_bench.results.leaderboard.building import make_leaderboards
from seu_bench.results.leaderboard.markdown import to_markdown
from seu_bench.results.record_files import require_records


@request_command("results")
@click.option("--benchmark", default=None, help="Only this benchmark.")
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    metavar="NAME=LIMIT",
    help="Only configurations within a budget of any metric that should be low: memory=20e6 (bytes), params=5e6, "
    "seconds=600, ...; may be repeated.",
)
@click.option(
    "--pareto",
    "axes",
    is_flag=False,
    flag_value="",
    default=None,
    metavar="[AXES]",
    help="Only the Pareto front in these metrics, by default accuracy and memory (parameters where a row has none).",
)
@click.option(
    "--sort",
    default=None,
    metavar="METRIC",
    help="Sort by a metric, the best first [default: the front of accuracy against memory, then by accuracy].",
)
@click.option(
    "--rows",
    type=click.IntRange(min=0),
    default=25,
    show_default=True,
    help="Maximum rows of each leaderboard in the terminal; 0: all.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "md", "csv", "json"]),
    default="table",
    show_default=True,
    help="Output format.",
)
def leaderboard(
    benchmark: str | None,
    budgets: tuple[str, ...],
    axes: str | None,
    sort: str | None,
    rows: int,
    form: str,
    results: Path,
) -> None:
    """Build leaderboards from records.

    Their files hold every row; --budget, --pareto, --sort and --rows choose what is shown. Save a view with --format
    and redirection.
    """
    from seu_bench.results.leaderboard import views

    metrics = known_metrics()
    limits = views.parse_budgets(budgets, metrics)
    dimensions = views.parse_axes(axes, metrics) if axes else ()
    sorted_by = views.parse_sort(sort, metrics) if sort is not None else None
    require_records(results)
    made = make_leaderboards(results, metrics)
    boards = [
        views.within_budget(board, limits, metrics) for board in made.boards if benchmark in (None, board.benchmark)
    ]
    if axes is not None:
        boards = [views.pareto_front(board, dimensions, metrics) for board in boards]
    if sorted_by:
        boards = [views.in_order_of(board, sorted_by, metrics) for board in boards]
    if form != "table":
        click.echo(_text(boards, form), nl=False)
        return
    console = wide_console()
    for board in boards:
        console.print(leaderboard_table(board, rows or None))
    if not boards:
        click.echo("no record can be ranked" + (f" for benchmark {benchmark!r}" if benchmark else ""))
        for line in made.excluded(benchmark):
            click.echo(f"  {line}")
    for path in made.paths:
        click.echo(str(path))


def _text(boards: Sequence[Leaderboard], form: str) -> str:
    """Join all leaderboards: Markdown below each other, one CSV, or one list of JSON."""
    if form == "json":
        return json.dumps([board.document() for board in boards], indent=1) + "\n"
    if form == "md":
        return "\n".join(to_markdown(board) for board in boards)
    return to_csv(boards)
