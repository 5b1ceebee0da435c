"""``seu-bench run``."""

from __future__ import annotations

from typing import Any

import click

from seu_bench.cli.options import request_command
from seu_bench.config.run import Request
from seu_bench.config.unapplied import unapplied_lines
from seu_bench.engine.stopping import StopRequest
from seu_bench.plugin.registry import Registry
from seu_bench.results.labels import why_not_ranked
from seu_bench.results.leaderboard.building import make_leaderboards


@request_command()
def run(**fields: Any) -> None:
    """Run a strategy on a benchmark and write the record.

    The same command resumes an interrupted run, and shows a finished one.
    """
    from seu_bench.cli.progress import ProgressDisplay
    from seu_bench.cli.tables import record_summary, wide_console
    from seu_bench.engine.launcher import launch

    request = Request(**fields)
    registry = Registry()
    metrics = registry.known_metrics
    stop = StopRequest(request.max_seconds)
    with stop.on_signals():
        outcome = launch(
            request, registry, watcher=lambda resolved: ProgressDisplay(shorter=resolved.shorter), stop=stop
        )
    console, record = wide_console(), outcome.record
    # Before anything is printed: standard output may be closed.
    boards = make_leaderboards(request.results, metrics).boards if record.may_be_ranked else ()
    console.print(record_summary(record, metrics))
    if outcome.reused:
        console.print("the run was finished before; nothing was computed (--restart runs it again)")
        has_model = record.weights_sha256 is not None
        for line in unapplied_lines(request, record.run_id, record.environment.device, has_model=has_model):
            click.echo(line, err=True)
    click.echo(f"record: {outcome.path}")
    if record.may_be_ranked:
        for board in boards:
            if all(getattr(board, it) == getattr(record, it) for it in ("benchmark", "protocol", "data_fingerprint")):
                click.echo(f"leaderboard: {request.results / 'leaderboards' / board.name}.md")
    else:
        click.echo(f"leaderboard: none ({why_not_ranked(record)})")
