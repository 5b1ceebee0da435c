"""The command ``sweep``: every combination of a grid that is not finished yet."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from seu_bench.cli.options import field_option, fields_command
from seu_bench.config.run import CommandLine
from seu_bench.errors import OptionError
from seu_bench.plugin.registry import Registry
from seu_bench.sweeps.spec import EXECUTOR, SweepSpec, kept_spec, make_spec, parse_axes

if TYPE_CHECKING:
    from seu_bench.results.metric import Metric
    from seu_bench.sweeps.driver import SweepResult

#: Prefix of names of parameters that are options of the executor.
_EXECUTOR: Final = "executor_"


class SweepCommand(click.Command):
    """A command with a flag for each option of an executor that names one (:class:`~seu_bench.config.run.CommandLine`).

    Executors that name the same flag share it. Executors are looked up when the command is parsed or explained.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own parameters and the executors'."""
        own = super().get_params(ctx)
        if _EXECUTOR not in ctx.meta:
            ctx.meta[_EXECUTOR] = _executor_flags({flag for parameter in own for flag in parameter.opts})
        return [*own, *ctx.meta[_EXECUTOR]]


def _executor_flags(taken: set[str]) -> list[click.Option]:
    found: dict[str, click.Option] = {}
    for name, entry in Registry().executors.items():
        for key, field in entry.factory.options.model_fields.items():
            flags = [flag for mark in field.metadata if isinstance(mark, CommandLine) for flag in mark.flags]
            if not flags or taken.intersection(flags):
                continue
            option = field_option(f"{_EXECUTOR}{key}", field, unset=True)
            option.help = f"Executor {name}: {option.help}"
            if (shared := found.setdefault(flags[0], option)) is not option:
                shared.help = f"{shared.help}. {option.help}"
    return list(found.values())


@fields_command(SweepSpec, SweepSpec.model_fields.keys() - {"options"}, SweepCommand, unset=True)  # options are lists
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--option",
    "assignments",
    multiple=True,
    metavar="KEY=V1,V2",
    help="Values of an option, for whichever strategy takes it: a list of TOML without its brackets. executor.KEY is "
    "an option of the executor. May be repeated.",
)
@click.option("--attach", is_flag=True, help="Resume the last sweep of this results folder.")
@click.option("--dry-run", is_flag=True, help="Show the plan, and write nothing.")
def sweep(file: Path | None, assignments: tuple[str, ...], attach: bool, dry_run: bool, **asked: Any) -> None:
    """Run every combination that is not finished yet.

    FILE is a TOML file with the same keys; options given besides replace the file's. The same command resumes a sweep
    that was interrupted, and so does --attach. Exit status 1 if a job is not finished, 0 if all are.
    """
    from seu_bench.sweeps.plan import plan_sweep  # which imports NumPy, as do the others below

    given = {
        key: ",".join(value) if isinstance(value, tuple) else value
        for key, value in asked.items()
        if value not in (None, (), {})
    }
    if axes := executor_options(given, parse_axes(assignments)):
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
    with contextlib.ExitStack() as unless_run:
        unless_run.callback(executor.close)
        estimate = estimate_plan(plan)
        for line in plan_lines(plan, estimate, executor.slots):
            console.print(line)
        if dry_run:
            return
        unless_run.pop_all()
    stop, display = StopRequest(grace=GRACE), SweepDisplay(plan)
    with stop.on_signals(), display.bars:
        result = run_sweep(plan, executor, estimate, display, stop)
    _report(result, spec.results, registry.known_metrics)
    if result.interruption is not None:
        more = "; seu-bench sweep --attach follows running jobs" if result.select("running") else ""
        click.echo(f"{result.interruption.reason}; the same command resumes the sweep{more}", err=True)
    raise SystemExit(result.exit_code)


def executor_options(given: dict[str, Any], assigned: Mapping[str, Any]) -> dict[str, Any]:
    """Options with those of the executor that have a flag, which are taken out of ``given``."""
    names = [name for name in given if name.startswith(_EXECUTOR)]
    flagged = {f"{EXECUTOR}{name.removeprefix(_EXECUTOR)}": given.pop(name) for name in names}
    if twice := [key for key in flagged if key in assigned]:
        remedy = f"give it by its name, or with -o {twice[0]}=..."
        raise OptionError(f"option {twice[0]!r} is given twice", remedy=remedy)
    return {**assigned, **flagged}


def _kept(given: dict[str, Any], file: Path | None) -> SweepSpec:
    """Read the last sweep of the results folder; ``--attach`` takes no other parameter."""
    results = given.pop("results", SweepSpec.model_fields["results"].default)
    if others := [*([str(file)] if file is not None else []), *given]:
        raise OptionError(f"--attach takes only --results, not: {', '.join(others)}", remedy="remove them")
    return kept_spec(results)


def _report(result: SweepResult, results: Path, metrics: Mapping[str, Metric]) -> None:
    """Print how each job ended, and write leaderboards unless the sweep was interrupted."""
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
