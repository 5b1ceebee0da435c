"""``seu-bench run``."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from seu_bench.cli.options import format_option, request_command
from seu_bench.cli.output.verbosity import is_quiet, is_verbose, progress_console, verbosity_options
from seu_bench.config.commands import unused_flags
from seu_bench.config.run import Request
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import SeuBenchError
from seu_bench.plugin.registry import use_plugins
from seu_bench.results.building import make_leaderboards
from seu_bench.results.labels import why_not_ranked
from seu_bench.utils.startup import collection_paused
from seu_bench.utils.text import about

if TYPE_CHECKING:
    from seu_bench.engine.resolve import ResolvedRun
    from seu_bench.engine.runner import Outcome
    from seu_bench.plugin.registry import Registry
    from seu_bench.results.leaderboard import Leaderboard
    from seu_bench.results.metric import Metric
    from seu_bench.training.interfaces import Cost


@verbosity_options
@request_command()
@format_option
def run(form: str, **fields: Any) -> None:
    """Run a strategy on a benchmark and write the record.

    The same command resumes an interrupted run, and shows a finished one. A summary is printed; seu-bench show has the
    rest. With --quiet the run id is all that is printed, with --format json the record.
    """
    from seu_bench.cli.progress import ProgressDisplay
    from seu_bench.engine.launcher import launch

    request = Request(**fields)
    registry = use_plugins(request.plugin)
    metrics = registry.known_metrics

    stop = StopRequest(request.max_seconds)
    with collection_paused() as go_on, stop.on_signals():

        def watcher(resolved: ResolvedRun) -> ProgressDisplay:
            display = ProgressDisplay(
                progress_console(),
                resolved.shorter,
                each_stage=is_verbose(),
                begun=go_on,
                foretell=partial(_time, registry, resolved),
            )
            if is_verbose():
                _print_resolved(resolved, display)
            return display

        outcome = launch(request, registry, watcher=watcher, stop=stop)
    # Before anything is printed: standard output may be closed.
    boards = make_leaderboards(request.results, metrics).boards if outcome.record.may_be_ranked else ()
    if outcome.reused and not is_quiet() and (unused := unused_flags(request)):
        how = "--restart makes it again, seu-bench log sends its record"
        click.echo(f"without effect, because the run was finished before: {unused} ({how})", err=True)
    if form == "json":
        click.echo(outcome.path.read_text(encoding="utf-8"), nl=False)
    elif is_quiet():
        click.echo(outcome.record.run_id)
    else:
        _print_outcome(request, outcome, boards, metrics)


#: Operations, and image passes, of a run that takes long enough for its time to be measured beforehand.
_WORTH_MEASURING: Final = 2e12, 1e6


def _time(registry: Registry, run: ResolvedRun, cost: Cost) -> str:
    """The time that a run takes, and that of a shorter protocol if it is above an hour."""
    from seu_bench.cli.progress import LONG_RUN
    from seu_bench.engine.environment import choose_device
    from seu_bench.engine.forecast import measure_speed
    from seu_bench.engine.resolve import resolve

    if is_quiet() or ((cost.train_flops or 0) < _WORTH_MEASURING[0] and cost.image_passes < _WORTH_MEASURING[1]):
        return ""
    if (speed := measure_speed(run, cost, choose_device(run.request.device))) is None:
        return ""
    seconds, advice = speed.predict(cost), ""
    if seconds > LONG_RUN and run.shorter is not None:
        with contextlib.suppress(SeuBenchError):  # options of the one may not fit the other
            other = resolve(registry, run.request.model_copy(update={"protocol": run.shorter}))
            took = speed.predict(other.cost(other.context(other.plan())))
            advice = f"; --protocol {run.shorter} {about(took)}"
    return f", {about(seconds)}{advice}"


def _print_resolved(resolved: ResolvedRun, display: Any) -> None:
    from seu_bench.cli.output.run_summary import resolved_lines

    for line in resolved_lines(resolved):
        display.console.print(line)


def _print_outcome(
    request: Request, outcome: Outcome, boards: tuple[Leaderboard, ...], metrics: Mapping[str, Metric]
) -> None:
    """Print the summary, or everything where that was asked for, and where record and leaderboards are."""
    from rich.text import Text

    from seu_bench.cli.output.run_summary import summary_lines
    from seu_bench.cli.tables import record_summary, wide_console

    console, record = wide_console(), outcome.record
    if is_verbose():
        console.print(record_summary(record, metrics))
    else:
        for line in summary_lines(record, request.results, metrics):
            console.print(line, soft_wrap=isinstance(line, Text))  # the command on the last line can be pasted
    if outcome.reused:
        click.echo("the run was finished before; nothing was computed (--restart runs it again)")
    click.echo(f"record: {outcome.path}")
    for board in boards:
        if all(getattr(board, it) == getattr(record, it) for it in ("benchmark", "protocol", "data_fingerprint")):
            click.echo(f"leaderboard: {request.results / 'leaderboards' / board.name}.md")
    if not record.may_be_ranked:
        click.echo(f"leaderboard: none ({why_not_ranked(record)})")
