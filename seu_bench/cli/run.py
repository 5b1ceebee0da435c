"""``seu-bench run``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from seu_bench.cli.options import (
    data_option,
    device_option,
    logger_options,
    make_registry,
    make_request,
    number_of_bytes,
    request_options,
    results_option,
)


@click.command()
@request_options
@data_option
@results_option
@device_option
@click.option("--restart", is_flag=True, help="Begin anew, even if the run is finished or could be gone on with.")
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
@click.option("--compile", "compile", is_flag=True, help="Compile SEU's units for their training (see docs).")
@click.option("--no-weights", "keep_weights", flag_value=False, default=True, help="Keep no model of a finished run.")
@logger_options
def run(
    results: Path,
    data_root: Path | None,
    device: str,
    restart: bool,
    checkpoint_every: float | None,
    max_seconds: float | None,
    feature_cache: int | None,
    compile: bool,
    keep_weights: bool,
    loggers: tuple[str, ...],
    logger_assignments: tuple[str, ...],
    **asked: Any,
) -> None:
    """Learn a benchmark and write the record.

    The same command goes on with a run that was interrupted, and shows one that is finished.
    """
    from seu_bench.engine.stopping import StopRequest

    stop = StopRequest(max_seconds)
    request = make_request(asked)
    registry = make_registry()
    from seu_bench.engine.resolve import resolve

    resolved = resolve(registry, request)  # what can be refused is refused before torch is imported
    from seu_bench.config.options import parse_assignments
    from seu_bench.engine.loggers import add_loggers

    add_loggers(registry, loggers, parse_assignments(logger_assignments, "--log-option"), results)
    from seu_bench.cli.progress import ProgressDisplay
    from seu_bench.cli.tables import record_summary, wide_console
    from seu_bench.config.run import Execution
    from seu_bench.engine.runner import execute
    from seu_bench.results.labels import why_not_ranked
    from seu_bench.results.leaderboard import make_leaderboards

    registry.manager.register(ProgressDisplay(shorter=resolved.shorter), name="progress")
    execution = Execution(results, data_root, device, restart, checkpoint_every, keep_weights, feature_cache, compile)
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
