"""``seu-bench extend``: have a finished run learn a further task, and say what that cost and changed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seu_bench.cli.completion import run_ids
from seu_bench.cli.options import format_option, request_command
from seu_bench.cli.run import boards_of, foretell_time, print_for_program, print_places
from seu_bench.cli.verbosity import progress_console, quiet_option
from seu_bench.config.commands import command
from seu_bench.config.run import EXTENSION_FIELDS, Request
from seu_bench.engine.stopping import StopRequest
from seu_bench.plugin.registry import use_plugins
from seu_bench.results.record import read_record
from seu_bench.results.record_files import LEARNER_NAME, MODEL_NAME, find_run
from seu_bench.results.record_metrics import measured_rows
from seu_bench.utils.text import format_bytes, format_seconds, printable_lines

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from seu_bench.cli.progress import ProgressDisplay
    from seu_bench.engine.resolve import ResolvedRun
    from seu_bench.engine.runner import Outcome
    from seu_bench.results.record import Record


@quiet_option
@request_command(*EXTENSION_FIELDS)
@click.argument("run_name", metavar="RUN", shell_complete=run_ids)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    default=None,
    help="Data of the task: a folder of class folders, or a file of the run's kind of samples.",
)
@click.option("--name", default=None, metavar="TEXT", help="Name of the task [default: that of its data].")
@click.option("--benchmark", default=None, help="In place of --data: a benchmark that begins with the run's tasks.")
@format_option
def extend(run_name: str, data: Path | None, name: str | None, benchmark: str | None, form: str, **fields: Any) -> None:
    """Have a finished run learn a further task, from the state that it kept.

    RUN is a run id, a unique prefix of one, or the run's folder. The outcome is a run of its own, with the weights, bit
    by bit, of a run of all tasks from nothing; RUN stays as it is. The same command resumes an interrupted extension,
    and shows a finished one. With --quiet the run id is all that is printed, with --format json the record.
    """
    from seu_bench.cli.progress import ProgressDisplay
    from seu_bench.engine.extending import extend as extended

    given = Request(**fields)
    results, registry = given.results, use_plugins(given.plugin)
    parent = read_record(find_run(results, run_name))
    stop = StopRequest(given.max_seconds)
    with stop.on_signals():

        def watcher(resolved: ResolvedRun) -> ProgressDisplay:
            foretell = partial(foretell_time, registry, resolved, advise=False)
            return ProgressDisplay(progress_console(), foretell=foretell)

        task: Any = {"data": data, "name": name, "benchmark": benchmark}
        outcome = extended(registry, run_name, **task, watcher=watcher, stop=stop, **fields)
    record = outcome.record
    boards = boards_of(record, results, registry.known_metrics)
    if print_for_program(outcome, form):
        return
    from rich.text import Text

    from seu_bench.cli.tables import wide_console

    console = wide_console()
    for line in _lines(parent, outcome):
        console.print(line, soft_wrap=isinstance(line, Text))
    print_places(outcome, results, boards)
    more = {"results": results, "data_root": given.data_root, "plugin": given.plugin}
    following = [command("predict", record.run_id, "FILES", results=results)]
    following.append(command("export", record.run_id, results=results))
    if record.learner_sha256 is not None:
        following.append(command("extend", record.run_id, "--data", "FOLDER", **more))
    click.echo("next: " + "\n      ".join(map(printable_lines, following)))


def _lines(parent: Record, outcome: Outcome) -> Iterator[Table | Text]:
    """What the further tasks cost, and the accuracy on each task before and after."""
    from seu_bench.cli.tables import literal, new_table

    record, known = outcome.record, len(parent.task_names)
    stages = [stage for stage in record.stages if stage.task >= known]
    passes = sum(stage.image_passes for stage in stages if stage.name != "evaluation")
    names = ", ".join(record.task_names[known:])
    yield literal(f"{record.learner} learned {names} after {known} task{'s' * (known != 1)} of {parent.run_id}")
    took = format_seconds(sum(stage.seconds for stage in stages))
    yield literal(f"cost of this alone: {passes:,} image passes, {took}")
    sizes = {"model": outcome.path.with_name(MODEL_NAME), "learner": outcome.path.with_name(LEARNER_NAME)}
    kept = [f"{name} {format_bytes(file.stat().st_size)}" for name, file in sizes.items() if file.is_file()]
    yield literal(f"kept: {', '.join(kept) or 'the record alone'}")
    rows = [[f"{place} {name}"] for place, name in enumerate((*record.task_names, "mean"))]
    rows[-1] = ["mean"]
    for row in (it.accuracy_matrix[measured_rows(it)[-1]] for it in (parent, record)):
        values = [value for value in row if value is not None]
        blank = [None] * (len(record.task_names) - len(row))
        for cells, value in zip(rows, [*row, *blank, sum(values) / len(values)], strict=True):
            cells.append("-" if value is None else f"{100 * value:.1f}")
    yield new_table("accuracy (%)", ("task", ">before", ">after"), rows)
