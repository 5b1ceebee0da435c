"""The command line: parse, call, print. Nothing is imported before a command needs it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seu_bench import bars
from seu_bench._version import __version__
from seu_bench.cli_models import export, verify
from seu_bench.cli_options import (
    data_option,
    device_option,
    logger_options,
    number_of_bytes,
    request_options,
    results_option,
)
from seu_bench.cli_plugins import check_plugin, list_
from seu_bench.cli_report import report
from seu_bench.cli_results import compare, leaderboard, show
from seu_bench.cli_runs import runs
from seu_bench.cli_sweep import sweep
from seu_bench.errors import Interruption, SeuBenchError

if TYPE_CHECKING:
    from seu_bench.registry import Registry
    from seu_bench.resolve import Request

#: Exit status of a request that cannot be met, and of a run that the user interrupted.
REFUSED = 2
INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="seu-bench")
def cli() -> None:
    """Benchmark lifelong learning: accuracy, forgetting and size together.

    Begin with: seu-bench run --strategy seu --benchmark split_digits
    """


@cli.command()
@request_options
@data_option
@results_option
@device_option
@click.option("--restart", is_flag=True, help="Begin anew, even if the run is finished or could be gone on with.")
@click.option(
    "--patience",
    type=click.FloatRange(min=0, min_open=True),
    default=1800,
    show_default=True,
    help="Seconds that a searcher or a creator may compute without an image or an epoch before it counts as stuck.",
)
@click.option(
    "--checkpoint-every",
    type=click.FloatRange(min=0),
    default=None,
    metavar="SECONDS",
    help="Seconds between checkpoints at least; 0: after every epoch [default: as often as takes 2 % of the time].",
)
@click.option(
    "--max-seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=None,
    help="Stop at a checkpoint before so many seconds are over, with exit status 75; the same command goes on.",
)
@click.option(
    "--feature-cache",
    callback=number_of_bytes,
    metavar="BYTES",
    default=None,
    help="Memory for outputs of frozen layers, such as 0, 500M or 2G [default: half of what is free].",
)
@click.option("--compile", "compiles", is_flag=True, help="Compile SEU's units for their training (see docs).")
@click.option("--no-weights", "keep_weights", flag_value=False, default=True, help="Keep no model of a finished run.")
@logger_options
def run(
    results: Path,
    data_root: Path | None,
    device: str,
    restart: bool,
    patience: float,
    checkpoint_every: float | None,
    max_seconds: float | None,
    feature_cache: int | None,
    compiles: bool,
    keep_weights: bool,
    loggers: tuple[str, ...],
    logger_assignments: tuple[str, ...],
    **asked: Any,
) -> None:
    """Learn a benchmark and write the record.

    The same command goes on with a run that was interrupted, and shows one that is finished.
    """
    from seu_bench.stopping import StopRequest

    stop = StopRequest(max_seconds)
    request = _request(asked)
    registry = _registry()
    from seu_bench.resolve import resolve

    resolved = resolve(registry, request)  # what can be refused is refused before torch is imported
    from seu_bench.loggers import add_loggers
    from seu_bench.options import parse_assignments

    add_loggers(registry, loggers, parse_assignments(logger_assignments, "--log-option"), results)
    from seu_bench.execution import Execution
    from seu_bench.leaderboard import make_leaderboards
    from seu_bench.progress import ProgressDisplay
    from seu_bench.runner import execute
    from seu_bench.tables import record_summary, wide_console
    from seu_bench.wording import why_not_ranked

    registry.manager.register(ProgressDisplay(shorter=resolved.shorter), name="progress")
    execution = Execution(
        results, data_root, device, restart, patience, checkpoint_every, keep_weights, feature_cache, compiles
    )
    with stop.on_signals():
        outcome = execute(registry, resolved, execution, stop=stop)
    console = wide_console()
    console.print(record_summary(outcome.record))
    if outcome.reused:
        console.print("this run was finished before: nothing was computed (--restart runs it again)")
    click.echo(f"record: {outcome.path}")
    if outcome.record.may_be_ranked:
        for board in make_leaderboards(results).boards:
            if (board.benchmark, board.protocol, board.data_fingerprint) == (
                outcome.record.benchmark,
                outcome.record.protocol,
                outcome.record.data_fingerprint,
            ):
                click.echo(f"leaderboard: {results / 'leaderboards' / board.name}.md")
    else:
        click.echo(f"leaderboard: none ({why_not_ranked(outcome.record)})")


@cli.command()
@request_options
@data_option
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def cost(data_root: Path | None, form: str, **asked: Any) -> None:
    """Tell what a run would cost.

    Parameters, multiply-accumulates per image and image passes, computed without training, weights or data sets (but
    for the shape of your own data).
    """
    from seu_bench.cost_report import cost_document, cost_lines
    from seu_bench.resolve import resolve

    resolved = resolve(_registry(), _request(asked))
    document = cost_document(resolved, data_root)
    if form == "json":
        click.echo(json.dumps(document, indent=1))
    else:
        for line in cost_lines(document):
            click.echo(line)


@cli.group(invoke_without_command=True)
@data_option
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.pass_context
def data(context: click.Context, data_root: Path | None, form: str) -> None:
    """Show data sets, or fetch one.

    For each: whether it is whole, its size, and where it is looked for.
    """
    if context.invoked_subcommand is not None:
        return
    rows: list[dict[str, Any]] = []
    for entry in bars.tracked(_registry().datasets.values(), "checking data sets"):
        state = entry.factory.state(data_root)
        rows.append(
            {
                "name": entry.name,
                "status": state.status,
                "where": str(state.where) if state.where is not None else None,
                "bytes": state.bytes,
                "detail": state.detail,
                "summary": entry.summary,
            }
        )
    if form == "json":
        click.echo(json.dumps(rows, indent=1))
        return
    for row in rows:
        size = f"{row['bytes'] / 1e6:.1f} MB" if row["bytes"] else "-"
        where = row["where"] or "comes with a dependency"
        click.echo(f"{row['name']:<16} {row['status']:<10} {size:>10}  {where}")
        if row["detail"]:
            click.echo(f"{'':<16} {row['detail']}")


@data.command()
@click.argument("name")
@data_option
@click.pass_context
def fetch(context: click.Context, name: str, data_root: Path | None) -> None:
    """Download a data set and check it."""
    from seu_bench.sources import default_data_root

    source = _registry().datasets.find(name).factory
    if data_root is None and context.parent is not None:
        data_root = context.parent.params["data_root"]  # seu-bench data --data-root FOLDER fetch NAME
    root = default_data_root(data_root)
    source.fetch(root)
    state = source.state(root)
    click.echo(f"{name}: {state.status}" + (f", {state.where}" if state.where else ""))


cli.add_command(list_)
cli.add_command(check_plugin)
cli.add_command(show)
cli.add_command(compare)
cli.add_command(leaderboard)
cli.add_command(runs)
cli.add_command(sweep)
cli.add_command(report)
cli.add_command(verify)
cli.add_command(export)


def main() -> None:
    """Entry point of the command ``seu-bench``: errors become one message and exit status 2."""
    try:
        with bars.shown():
            status = cli.main(prog_name="seu-bench", standalone_mode=False)
    except SeuBenchError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(REFUSED)
    except click.ClickException as error:
        error.show()
        sys.exit(REFUSED)
    except (click.Abort, KeyboardInterrupt) as stopped:
        # click wraps every KeyboardInterrupt.
        cause = stopped.__cause__ if isinstance(stopped, click.Abort) else stopped
        if isinstance(cause, Interruption):
            click.echo(f"{cause.reason}; the same command goes on with the run", err=True)
            sys.exit(cause.status)
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    sys.exit(status if isinstance(status, int) else 0)


def _registry() -> Registry:
    from seu_bench.registry import Registry

    return Registry()


def _request(asked: dict[str, Any]) -> Request:
    from seu_bench.options import parse_assignments
    from seu_bench.resolve import Request

    options = parse_assignments(asked.pop("assignments"))
    return Request(options=options, **asked)


if __name__ == "__main__":
    main()
