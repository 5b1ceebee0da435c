"""``seu-bench leaderboard``: leaderboards made from records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Group, RenderableType
from rich.text import Text

from seu_bench.cli.completion import names_of
from seu_bench.cli.options import known_registry, pause_collection, print_as, request_command
from seu_bench.cli.tables import leaderboard_table, literal, new_table, wide_console
from seu_bench.cli.verbosity import is_quiet, quiet_option
from seu_bench.config.commands import command
from seu_bench.errors import OptionError
from seu_bench.results.building import LeaderboardBuild, make_leaderboards, unranked_leaderboards
from seu_bench.results.comparison import BenchmarkComparison, compare_over_benchmarks
from seu_bench.results.formats import to_bibtex, to_csv, to_latex, to_markdown
from seu_bench.results.leaderboard import Leaderboard, count, parse_metric, parse_view
from seu_bench.results.metric import Metric
from seu_bench.results.record_files import require_records
from seu_bench.results.record_metrics import known_metric
from seu_bench.utils.text import printable_lines


@quiet_option
@request_command("results")
@click.option("--benchmark", default=None, shell_complete=names_of("benchmarks"), help="Only this benchmark.")
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    metavar="NAME=LIMIT",
    shell_complete=names_of("metrics"),
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
    shell_complete=names_of("metrics"),
    help="Only the Pareto front in these metrics, by default accuracy and memory (parameters where a row has none).",
)
@click.option(
    "--sort",
    default=None,
    metavar="METRIC",
    shell_complete=names_of("metrics"),
    help="Sort by a metric, the best first [default: acc].",
)
@click.option(
    "--ranks",
    is_flag=False,
    flag_value="acc",
    default=None,
    metavar="[METRIC]",
    shell_complete=names_of("metrics"),
    help="In place of leaderboards: average ranks over the benchmarks of each protocol and scenario, in accuracy or "
    "another metric, with Friedman's test and Holm's correction.",
)
@click.option(
    "--columns",
    "chosen",
    default=None,
    metavar="METRIC,...",
    shell_complete=names_of("metrics"),
    help="Columns to show, by the ids of metrics, or all [default: in the terminal and in LaTeX the main ones, else "
    "all].",
)
@click.option(
    "--unranked",
    is_flag=True,
    help="Show runs that are never ranked (smoke, --limit, --synthetic, --first-tasks, --evaluation validation), in "
    "tables of their own, too; they are in no file.",
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
    type=click.Choice(["table", "md", "csv", "latex", "bibtex", "json"]),
    default="table",
    show_default=True,
    help="Output format; bibtex: what the tables of latex cite.",
)
def leaderboard(
    benchmark: str | None,
    budgets: tuple[str, ...],
    axes: str | None,
    sort: str | None,
    ranks: str | None,
    chosen: str | None,
    unranked: bool,
    rows: int,
    form: str,
    results: Path,
) -> None:
    """Build leaderboards from records.

    Their files hold every row; --budget, --pareto, --sort and --rows choose what is shown. Save a view with --format
    and redirection.
    """
    pause_collection()
    registry = known_registry()
    metrics = registry.known_metrics
    view = parse_view(budgets, axes, sort, metrics)
    ranked_by = parse_metric("--ranks", ranks, metrics) if ranks is not None else None
    columns = _parse_columns(chosen, metrics) if chosen not in (None, "all") else {}
    if ranked_by and form not in ("table", "json"):
        raise OptionError(f"--ranks has no --format {form}", remedy="choose --format table or json")
    if ranked_by and unranked:
        raise OptionError("--ranks is of ranked runs alone", remedy="leave out --ranks, or --unranked")
    require_records(results)
    made = make_leaderboards(results, metrics)
    every = [*made.boards, *(unranked_leaderboards(made.records, metrics) if unranked else ())]
    every = [replace(board, installed=registry.kinds) for board in every]
    boards = [view(board) for board in every if benchmark in (None, board.benchmark)]
    if ranked_by:
        compared = compare_over_benchmarks(boards, ranked_by, metrics)
        tables = [part for each in compared for part in ("", rank_table(each, metrics))]
        none = "no two configurations were run on two benchmarks of one protocol and scenario"
        print_as(form, [each.document() for each in compared], tables[1:] or [none])
        return
    boards = [replace(board, columns=columns) for board in boards] if columns else boards
    is_shown = form == "table" and not is_quiet()
    if (is_shown and all(it.unranked for it in boards)) or (form in ("csv", "md", "latex", "bibtex") and not boards):
        _say_none(made, benchmark, results, unranked=unranked, aside=not is_shown)
    if form != "table":
        click.echo(_text(boards, form, usual=chosen is None), nl=False)
        return
    for number, board in enumerate(boards if is_shown else ()):
        _print_table(board, rows or None, first=number == 0, usual=chosen is None)
    for path in made.paths:
        click.echo(str(path))


def _parse_columns(text: str | None, metrics: Mapping[str, Metric]) -> dict[str, Metric]:
    known = {name: metric for name, metric in metrics.items() if metric.column}
    names = [parse_metric("--columns", name, known) for name in (text or "").split(",")]
    return {name: metrics[name] for name in names}


def _text(boards: Sequence[Leaderboard], form: str, *, usual: bool) -> str:
    if form == "json":
        return json.dumps([board.document() for board in boards], indent=1) + "\n"
    if form == "csv":
        return to_csv(boards)
    if form == "bibtex":
        return to_bibtex(boards)
    return "\n".join(
        to_markdown(board) if form == "md" else to_latex(board, None if usual else list(board.columns))
        for board in boards
    )


def _print_table(board: Leaderboard, most: int | None, *, first: bool, usual: bool) -> None:
    console = wide_console()
    console.print(Group(*([] if first else [""]), leaderboard_table(board, most, usual=usual)))
    if board.missing is not None:
        names = ", ".join(board.missing.names)
        line = f"references that are missing here: {names}; make them: {board.missing.command}"
        console.print(Text(printable_lines(line)), soft_wrap=True)  # each blank of a command counts


def _say_none(
    made: LeaderboardBuild, benchmark: str | None, results: Path, *, unranked: bool, aside: bool = False
) -> None:
    click.echo("no record can be ranked" + (f" for benchmark {benchmark!r}" if benchmark else ""), err=aside)
    for line in made.excluded(benchmark, unranked=unranked):
        click.echo(f"  {line}", err=aside)
    others = [board.records for board in unranked_leaderboards(made.records) if benchmark in (None, board.benchmark)]
    if others and not unranked:
        shown = command("leaderboard", "--unranked", benchmark=benchmark, results=results)
        click.echo(f"{shown} shows {count(sum(others), 'finished run')} of these, not ranked", err=aside)


def rank_table(compared: BenchmarkComparison, metrics: Mapping[str, Metric]) -> RenderableType:
    """Average ranks, the best first, with each benchmark's mean; below, test, seeds, settings, what is not compared."""
    metric, ranks = known_metric(compared.metric, metrics), compared.ranks
    rows = [
        (
            row.configuration,
            f"{row.average_rank:.2f}",
            "-" if row.p_holm is None else f"{row.p_holm:.4f}",
            row.verdict or "the best",
            *[metric.format_cell(means[row.configuration]) for means in compared.means.values()],
        )
        for row in ranks.rows
    ]
    headings = ("configuration", ">rank", ">p (Holm)", "beside the best", *[f">{name}" for name in ranks.benchmarks])
    title = f"{compared.place}: average ranks in {metric.column or compared.metric}"
    tested = "no test: too few benchmarks or configurations"
    if ranks.friedman_p_value is not None:
        tested = f"Friedman's test: chi-squared {ranks.friedman_chi_squared:.2f}, p = {ranks.friedman_p_value:.4f}"
    lines = [tested, *compared.conditions, *[f"not compared: {name}" for name in compared.excluded]]
    return Group(new_table(title, headings, rows, pad=0), Text("\n").join(map(literal, lines)))
