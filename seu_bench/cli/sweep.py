"""The command that makes many runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seu_bench.cli.options import FieldsCommand

if TYPE_CHECKING:
    from collections.abc import Mapping

    from seu_bench.results.metric import Metric
    from seu_bench.sweeps.driver import SweepResult
    from seu_bench.sweeps.spec import SweepSpec

#: Options that hold several values, and may be repeated besides.
_LISTS = ("strategy", "benchmark", "searcher", "creator", "seeds")
#: Options that are options of the executor, for those that have them.
_OF_EXECUTOR = ("address", "partition", "time", "gpus")


def _fields() -> tuple[type[SweepSpec], set[str]]:
    """Those that all runs of a sweep share."""
    from seu_bench.config.run import ExecutionFields, ResultFields
    from seu_bench.sweeps.spec import SweepSpec

    return SweepSpec, {*ResultFields.model_fields, *ExecutionFields.model_fields}


@click.command(cls=FieldsCommand, fields=_fields, unset=True)
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
@click.option("--executor", default=None, help="What makes the jobs (seu-bench list executors) [default: local].")
@click.option("--jobs", type=click.IntRange(min=1), default=None, help="Jobs at once [default: one per core, or card].")
@click.option("--gpus", type=click.FloatRange(min=0), default=None, help="For ray and slurm: cards of each job.")
@click.option("--ray-address", "address", default=None, help="For ray: of a cluster, auto or HOST:PORT.")
@click.option("--partition", default=None, help="For slurm.")
@click.option("--time", type=click.IntRange(min=1), default=None, metavar="MINUTES", help="For slurm: of a job.")
@click.option("--retry-failed", is_flag=True, default=None, help="Also run jobs that failed before.")
@click.option("--attach", is_flag=True, help="Take up the sweep that was begun last with this results folder.")
@click.option("--dry-run", is_flag=True, help="Show the plan, and write nothing.")
def sweep(
    file: Path | None,
    assignments: tuple[str, ...],
    attach: bool,
    dry_run: bool,
    **asked: Any,
) -> None:
    """Make every combination that is not made yet.

    FILE is a TOML file with the same keys; an option that is given besides replaces the file's. The same command goes
    on with a sweep that was interrupted, and so does --attach. Ends with status 1 if a job is not finished, 0 if all
    are.
    """
    from seu_bench.plugin.registry import Registry
    from seu_bench.sweeps.file import make_spec
    from seu_bench.sweeps.plan import plan_sweep
    from seu_bench.sweeps.spec import parse_axes

    given = {
        key: ",".join(value) if key in _LISTS else value for key, value in asked.items() if value not in (None, (), {})
    }
    axes = parse_axes(assignments) | _of_executor(given, assignments)
    if axes:
        given["options"] = axes
    spec = _kept(given, file) if attach else make_spec(given, file)
    registry = Registry()
    plan = plan_sweep(registry, spec)  # what can be refused is refused before torch is imported
    from seu_bench.cli.sweep_display import SweepDisplay, plan_lines
    from seu_bench.cli.tables import wide_console
    from seu_bench.engine.stopping import StopRequest
    from seu_bench.sweeps.driver import GRACE, GuardedExecutor, run_sweep
    from seu_bench.sweeps.estimate import estimate_plan

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
    _tell(result, spec.results, registry.known_metrics)
    if result.interruption is not None:
        more = "; seu-bench sweep --attach looks at jobs that go on" if result.select("running") else ""
        click.echo(f"{result.interruption.reason}; the same command goes on with the sweep{more}", err=True)
    raise SystemExit(result.exit_code)


def _of_executor(given: dict[str, Any], assignments: tuple[str, ...]) -> dict[str, list[Any]]:
    """Options of the executor that have a name of their own, taken out of what was given.

    Raises:
        OptionError: one of them is also given as an assignment.
    """
    from seu_bench.errors import OptionError

    found = {f"executor.{key}": [given.pop(key)] for key in _OF_EXECUTOR if key in given}
    for key in found:
        if any(assignment.partition("=")[0].strip() == key for assignment in assignments):
            raise OptionError(f"option {key!r} is given twice", remedy=f"give it by its name, or with -o {key}=...")
    return found


def _kept(given: dict[str, Any], file: Path | None) -> SweepSpec:
    """The last sweep of the results folder that was given, or of the default one.

    Raises:
        OptionError: something else was given, too.
    """
    from seu_bench.errors import OptionError
    from seu_bench.sweeps.file import kept_spec
    from seu_bench.sweeps.spec import SweepSpec

    results = given.pop("results", SweepSpec.model_fields["results"].default)
    if given or file is not None:
        names = ", ".join([*([str(file)] if file is not None else []), *given])
        raise OptionError(f"--attach takes nothing but --results, and not: {names}", remedy="leave them out")
    return kept_spec(results)


def _tell(result: SweepResult, results: Path, metrics: Mapping[str, Metric]) -> None:
    """What became of each job; leaderboards, unless the sweep was interrupted."""
    from seu_bench.cli.sweep_display import result_table, result_words
    from seu_bench.cli.tables import wide_console
    from seu_bench.results.leaderboard.building import make_leaderboards

    console = wide_console()
    table = result_table(result)
    if table is not None:
        console.print("", table, "", sep="\n")
    click.echo(result_words(result))
    if result.interruption is None and any(record.may_be_ranked for record in result.records):
        places = {record.benchmark for record in result.records}
        for path in make_leaderboards(results, metrics).paths:
            if path.suffix == ".md" and any(path.name.startswith(f"{place}-v") for place in places):
                click.echo(f"leaderboard: {path}")
