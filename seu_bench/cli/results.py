"""The commands that read results: records shown and compared, leaderboards made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from seu_bench.cli.options import results_option
from seu_bench.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from seu_bench.results.leaderboard import Leaderboard


@click.command()
@click.argument("run_name", metavar="RUN")
@click.option("--plot", is_flag=True, help="Draw the accuracies instead of listing everything.")
@results_option
def show(run_name: str, plot: bool, results: Path) -> None:
    """Show a record.

    RUN is a run id, a unique beginning of one, or its folder.
    """
    from seu_bench.cli.plots import accuracy_plots
    from seu_bench.cli.tables import record_summary, wide_console
    from seu_bench.results.record_files import find_record

    record = find_record(results, run_name)
    wide_console().print(accuracy_plots(record) if plot else record_summary(record))


@click.command()
@click.argument("run_names", metavar="RUN RUN...", nargs=-1, required=True)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@results_option
def compare(run_names: tuple[str, ...], form: str, results: Path) -> None:
    """Compare runs of one benchmark task by task.

    The first run is compared with each of the others. RUN is a run id, a unique beginning of one, or its folder.
    """
    from seu_bench.cli.comparison import comparison_tables
    from seu_bench.cli.tables import wide_console
    from seu_bench.results.comparison import compare as compared
    from seu_bench.results.record_files import find_record

    if len(run_names) < 2:
        raise RequestError("there is one run, and nothing to compare it with", remedy="name two runs or more")
    first, *others = [find_record(results, name) for name in run_names]
    comparisons = [compared(first, other) for other in others]
    if form == "json":
        click.echo(json.dumps([comparison.document() for comparison in comparisons], indent=1))
        return
    console = wide_console()
    for index, comparison in enumerate(comparisons):
        if index:
            console.print()
        console.print(comparison_tables(comparison))


@click.command()
@click.option("--benchmark", default=None, help="Only this benchmark.")
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    metavar="NAME=LIMIT",
    help="Only configurations that keep to it: params=5e6, macs=1e9 or seconds=600; may be repeated.",
)
@click.option(
    "--pareto",
    "axes",
    is_flag=False,
    flag_value="acc,params_total",
    default=None,
    metavar="[AXES]",
    help="Only configurations that no other one dominates, by default in acc,params_total.",
)
@click.option(
    "--rows",
    type=click.IntRange(min=0),
    default=25,
    show_default=True,
    help="Rows of each leaderboard in the terminal at the most; 0: all.",
)
@click.option("--format", "form", type=click.Choice(["table", "md", "csv", "json"]), default="table", show_default=True)
@results_option
def leaderboard(
    benchmark: str | None, budgets: tuple[str, ...], axes: str | None, rows: int, form: str, results: Path
) -> None:
    """Make leaderboards from records.

    Their files are always written whole; --budget, --pareto and --rows choose what is shown. A view is kept with
    --format and a redirection.
    """
    from seu_bench.results.leaderboard import make_leaderboards
    from seu_bench.results.leaderboard.views import pareto_front, parse_axes, parse_budgets, within_budget
    from seu_bench.results.record_files import require_records

    limits = parse_budgets(budgets)
    dimensions = parse_axes(axes) if axes is not None else ()
    require_records(results)
    made = make_leaderboards(results)
    boards = [within_budget(board, limits) for board in made.boards if benchmark in (None, board.benchmark)]
    if dimensions:
        boards = [pareto_front(board, dimensions) for board in boards]
    if form != "table":
        click.echo(_text(boards, form), nl=False)
        return
    from seu_bench.cli.tables import leaderboard_table, wide_console

    console = wide_console()
    for board in boards:
        console.print(leaderboard_table(board, rows or None))
    if not boards:
        click.echo("no record can be ranked" + (f" for benchmark {benchmark!r}" if benchmark else ""))
        for line in made.left_out(benchmark):
            click.echo(f"  {line}")
    for path in made.paths:
        click.echo(str(path))


def _text(boards: Sequence[Leaderboard], form: str) -> str:
    """All leaderboards in one text: Markdown below each other, one CSV, or one list of JSON."""
    if form == "json":
        return json.dumps([board.document() for board in boards], indent=1) + "\n"
    if form == "md":
        return "\n".join(board.to_markdown() for board in boards)
    tables = [board.to_csv() for board in boards if board.rows]
    return "".join([*tables[:1], *[table.partition("\n")[2] for table in tables[1:]]])
