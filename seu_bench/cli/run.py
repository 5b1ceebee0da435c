"""``seu-bench run``."""

from __future__ import annotations

from typing import Any

import click

from seu_bench.cli.options import make_registry, request_command


@request_command()
def run(**fields: Any) -> None:
    """Run a strategy on a benchmark and write the record.

    The same command resumes an interrupted run, and shows a finished one.
    """
    from seu_bench.cli.progress import ProgressDisplay
    from seu_bench.cli.tables import record_summary, wide_console
    from seu_bench.config.run import Request
    from seu_bench.engine.launcher import launch
    from seu_bench.engine.stopping import StopRequest

    request = Request(**fields)
    registry = make_registry()
    metrics = registry.known_metrics
    stop = StopRequest(request.max_seconds)
    with stop.on_signals():
        outcome = launch(
            request, registry, watcher=lambda resolved: ProgressDisplay(shorter=resolved.shorter), stop=stop
        )
    from seu_bench.results.labels import why_not_ranked
    from seu_bench.results.leaderboard.building import make_leaderboards

    console = wide_console()
    console.print(record_summary(outcome.record, metrics))
    if outcome.reused:
        console.print("the run was finished before; nothing was computed (--restart runs it again)")
    click.echo(f"record: {outcome.path}")
    if outcome.record.may_be_ranked:
        for board in make_leaderboards(request.results, metrics).boards:
            if (board.benchmark, board.protocol, board.data_fingerprint) == (
                outcome.record.benchmark,
                outcome.record.protocol,
                outcome.record.data_fingerprint,
            ):
                click.echo(f"leaderboard: {request.results / 'leaderboards' / board.name}.md")
    else:
        click.echo(f"leaderboard: none ({why_not_ranked(outcome.record)})")
