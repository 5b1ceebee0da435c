"""``seu-bench run``: make a run, and say what came of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from seu_bench.cli.options import format_option, request_command
from seu_bench.cli.verbosity import is_quiet, progress_console, quiet_option
from seu_bench.config.commands import command, unused_flags
from seu_bench.config.run import Request
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import SeuBenchError
from seu_bench.plugin.registry import Registry, use_plugins
from seu_bench.results.building import make_leaderboards
from seu_bench.results.labels import benchmark_title, why_not_ranked
from seu_bench.results.metric import Metric
from seu_bench.results.record_metrics import METRICS, OVER_IMAGES, measured_rows, says_more
from seu_bench.results.reference_rows import reference_of
from seu_bench.utils.text import format_bytes, format_seconds, printable_lines

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from seu_bench.cli.progress import ProgressDisplay
    from seu_bench.engine.resolve import ResolvedRun
    from seu_bench.engine.runner import Outcome
    from seu_bench.results.leaderboard import Leaderboard
    from seu_bench.results.record import Record
    from seu_bench.training.interfaces import Cost

#: Operations, and image passes, of a run that takes long enough for its time to be measured beforehand; of data of
#: one's own any run's is.
_WORTH_MEASURING: Final = 2e12, 1e6
#: Seconds; of longer runs the time that a shorter protocol takes is told.
_LONG: Final = 3600.0
#: Tasks of the final row that are shown; of more the rest is counted.
_MOST_TASKS: Final = 20
#: Metrics of a summary.
_SUMMARY: Final = (
    *("acc", "learning_acc", "image_acc", "balanced_acc", "avg_incremental_acc", "avg_incremental_image_acc"),
    *("task_accuracy", "forgetting", "params_total", "memory_bytes", "train_seconds", "image_passes"),
)


@quiet_option
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
    stop = StopRequest(request.max_seconds)
    with stop.on_signals():

        def watcher(resolved: ResolvedRun) -> ProgressDisplay:
            foretell = partial(foretell_time, registry, resolved)
            display = ProgressDisplay(progress_console(), foretell=foretell)
            if (file := resolved.request.benchmark) != request.benchmark:
                display.say(f"{resolved.spec.benchmark.summary}: {file}")
            return display

        outcome = launch(request, registry, watcher=watcher, stop=stop)
    boards = boards_of(outcome.record, request.results, registry.known_metrics)
    if outcome.reused and not is_quiet() and (unused := unused_flags(request)):
        told = f"without effect, because the run was finished before: {unused} (--restart makes it again)"
        click.echo(told, err=True)
    if not print_for_program(outcome, form):
        _print_outcome(request, outcome, boards, registry.known_metrics)


def boards_of(record: Record, results: Path, metrics: Mapping[str, Metric]) -> tuple[Leaderboard, ...]:
    """Write the leaderboards of a results folder where a record may be in one, before anything is printed: standard
    output may be closed. Those that it may be in are returned."""
    boards = make_leaderboards(results, metrics).boards if record.may_be_ranked else ()
    same = ("benchmark", "protocol", "data_fingerprint")
    return tuple(board for board in boards if all(getattr(board, it) == getattr(record, it) for it in same))


def print_for_program(outcome: Outcome, form: str) -> bool:
    """Print the record for ``--format json``, or its run id for ``--quiet``; return whether either was asked for."""
    if form == "json":
        click.echo(outcome.path.read_text(encoding="utf-8"), nl=False)
    elif is_quiet():
        click.echo(outcome.record.run_id)
    return form == "json" or is_quiet()


def print_places(outcome: Outcome, results: Path, boards: tuple[Leaderboard, ...]) -> None:
    """Say where a record and its leaderboards lie, and whether anything was computed."""
    if outcome.reused:
        click.echo("the run was finished before; nothing was computed (--restart runs it again)")
    click.echo(f"record: {outcome.path}")
    for board in boards:
        click.echo(f"leaderboard: {results / 'leaderboards' / board.name}.md")
    if not outcome.record.may_be_ranked:
        click.echo(f"leaderboard: none ({why_not_ranked(outcome.record)})")


def foretell_time(registry: Registry, run: ResolvedRun, cost: Cost, *, advise: bool = True) -> str:
    """Say how long learning takes, where that is worth measuring; ``advise`` a shorter protocol where it is long."""
    from seu_bench.engine.environment import choose_device
    from seu_bench.engine.forecast import measure_speed
    from seu_bench.engine.resolve import resolve

    is_short = (cost.train_flops or 0) < _WORTH_MEASURING[0] and cost.image_passes < _WORTH_MEASURING[1]
    if is_quiet() or (is_short and not run.spec.benchmark.datasets):
        return ""
    if (speed := measure_speed(run, cost, choose_device(run.request.device))) is None:
        return ""
    seconds, advice = speed.predict(cost), ""
    if advise and seconds > _LONG and run.shorter is not None:
        with contextlib.suppress(SeuBenchError):  # options of the one may not fit the other
            other = resolve(registry, run.request.model_copy(update={"protocol": run.shorter}))
            took = speed.predict(other.cost(other.context(other.plan())))
            advice = f"; --protocol {run.shorter} about {format_seconds(took)}"
    return f", {f'about {format_seconds(seconds)}' if seconds >= 1 else 'less than 1 s'}{advice}"


def _print_outcome(
    request: Request, outcome: Outcome, boards: tuple[Leaderboard, ...], metrics: Mapping[str, Metric]
) -> None:
    from rich.text import Text

    from seu_bench.cli.tables import wide_console

    console, record = wide_console(), outcome.record
    for line in summary_lines(record, request.results, metrics):
        console.print(line, soft_wrap=isinstance(line, Text))  # the command on the last line can be pasted
    print_places(outcome, request.results, boards)


def summary_lines(record: Record, results: Path, metrics: Mapping[str, Metric] = METRICS) -> Iterator[Table | Text]:
    """Yield what most readers want of a finished run; everything else is shown by the command of the last line.

    Args:
        record: of the run.
        results: the results folder, for that command.
        metrics: those known.
    """
    from rich.table import Table
    from rich.text import Text

    from seu_bench.cli.tables import literal

    name = " + ".join(part for part in (record.strategy, record.searcher, record.creator) if part)
    what = f"{name} on {benchmark_title(record)} (protocol {record.protocol}), seed {record.seed}"
    yield literal(f"{what}: {record.status}, {format_seconds(record.seconds)}")
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key in _SUMMARY:
        if record.metrics.get(key) is not None and (key not in OVER_IMAGES or says_more(record, key)):
            table.add_row(
                f"  {(metrics[key].column or key).partition(' (')[0]}", metrics[key].format(record.metrics[key])
            )
    if measured := measured_rows(record):
        last = record.accuracy_matrix[measured[-1]][:_MOST_TASKS]
        values = ", ".join("-" if value is None else f"{100 * value:.1f}" for value in last)
        more = len(record.accuracy_matrix[measured[-1]]) - len(last)
        table.add_row("  final row", f"{values}{f' and {more} more' * (more > 0)} (% on tasks 0, 1, ...)")
    if reference := reference_of(record):
        table.add_row("  reference", literal(reference))
    if record.learner_bytes is not None:
        table.add_row("  learner", f"{format_bytes(record.learner_bytes)}, for seu-bench extend")
    yield table
    show = command("show", record.run_id, results=results)
    # Each blank of a command counts.
    yield Text(printable_lines(f"{show} shows the accuracy matrix, all metrics, stages, genotypes"))
