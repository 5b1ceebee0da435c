"""The command that makes many runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seu_bench.cli_options import number_of_bytes

if TYPE_CHECKING:
    from seu_bench.sweep_run import SweepResult

#: Options that hold several values, and may be repeated besides.
_LISTS = ("strategy", "benchmark", "searcher", "creator", "seeds")


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--strategy", multiple=True, metavar="A,B", help="Who learns [default: seu].")
@click.option("--benchmark", multiple=True, metavar="A,B", help="What is learned [default: split_digits].")
@click.option("--seeds", multiple=True, metavar="0-4,7", help="Random seeds and ranges of them [default: 0].")
@click.option("--searcher", multiple=True, metavar="A,B", help="For strategies that take one.")
@click.option("--creator", multiple=True, metavar="A,B", help="For strategies that take one.")
@click.option("--protocol", default=None, help="Schedule and sizes [default: each benchmark's].")
@click.option(
    "-o",
    "--option",
    "assignments",
    multiple=True,
    metavar="KEY=V1,V2",
    help="Values of an option, for whichever strategy takes it; a value that holds a comma is in quotes or brackets. "
    "executor.KEY is an option of the executor.",
)
@click.option("--limit", type=click.IntRange(min=4), default=None, help="At most so many images per task and split.")
@click.option("--precision", type=click.Choice(["float32", "bf16-features", "bf16"]), default=None, help="As for run.")
@click.option("--synthetic", is_flag=True, default=None, help="Made-up images in place of each data set.")
@click.option("--executor", default=None, help="What makes the cells (seu-bench list executors) [default: local].")
@click.option(
    "--jobs", type=click.IntRange(min=1), default=None, help="Cells at once [default: one per core, or card]."
)
@click.option("--device", default=None, help="cpu, cuda, cuda:1, ... [default: auto].")
@click.option(
    "--data-root", type=click.Path(path_type=Path), default=None, help="Folder of data sets [default: as for run]."
)
@click.option("--results", type=click.Path(path_type=Path), default=None, help="Folder of records [default: results].")
@click.option(
    "--feature-cache",
    callback=number_of_bytes,
    metavar="BYTES",
    default=None,
    help="Memory of each cell for outputs of frozen layers [default: half of what is free, shared out].",
)
@click.option("--checkpoint-every", type=click.FloatRange(min=0), default=None, metavar="SECONDS", help="As for run.")
@click.option("--no-weights", "keep_weights", flag_value=False, default=None, help="Keep no models.")
@click.option("--retry-failed", is_flag=True, default=None, help="Also run cells that failed before.")
@click.option("--dry-run", is_flag=True, help="Show the plan, and write nothing.")
def sweep(file: Path | None, assignments: tuple[str, ...], dry_run: bool, **asked: Any) -> None:
    """Make every combination that is not made yet.

    FILE is a TOML file with the same keys; an option that is given besides replaces the file's. The same command goes
    on with a sweep that was interrupted. Ends with status 1 if a cell is not finished, 0 if all are.
    """
    from seu_bench.registry import Registry
    from seu_bench.sweep_file import make_spec
    from seu_bench.sweep_plan import plan_sweep
    from seu_bench.sweep_spec import parse_axes

    given = {
        key: ",".join(value) if key in _LISTS else value for key, value in asked.items() if value not in (None, ())
    }
    if assignments:
        given["options"] = parse_axes(assignments)
    spec = make_spec(given, file)
    registry = Registry()
    plan = plan_sweep(registry, spec)  # what can be refused is refused before torch is imported
    from seu_bench.stopping import StopRequest
    from seu_bench.sweep_display import SweepDisplay, plan_lines
    from seu_bench.sweep_estimate import estimate_plan
    from seu_bench.sweep_run import GRACE, GuardedExecutor, run_sweep
    from seu_bench.tables import wide_console

    console = wide_console()
    executor = GuardedExecutor(registry, spec)
    try:
        estimate = estimate_plan(plan)
        for line in plan_lines(plan, estimate, executor.slots):
            console.print(line)
    except BaseException:
        executor.close()
        raise
    if dry_run:
        executor.close()
        return
    stop = StopRequest(grace=GRACE)
    with stop.on_signals():
        result = run_sweep(plan, executor, estimate, SweepDisplay(), stop)
    _tell(result, spec.results)
    if result.interruption is not None:
        click.echo(f"{result.interruption.reason}; the same command goes on with the sweep", err=True)
    raise SystemExit(result.status)


def _tell(result: SweepResult, results: Path) -> None:
    """What became of each cell; leaderboards, unless the sweep was interrupted."""
    from seu_bench.leaderboard import write_leaderboards
    from seu_bench.sweep_display import result_table, result_words
    from seu_bench.tables import wide_console

    console = wide_console()
    table = result_table(result)
    if table is not None:
        console.print("", table, "", sep="\n")
    click.echo(result_words(result))
    if result.interruption is None and any(record.may_be_ranked for record in result.records):
        places = {record.benchmark for record in result.records}
        written = write_leaderboards(results)
        for path in written:
            if path.suffix == ".md" and any(path.name.startswith(f"{place}-v") for place in places):
                click.echo(f"leaderboard: {path}")
