"""The command ``sweep``: every combination of a grid that is not finished yet."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from seu_bench.cli.completion.option_keys import option_keys
from seu_bench.cli.options import field_option, fields_command, format_option
from seu_bench.cli.output.verbosity import is_quiet, is_verbose, progress_console, verbosity_options
from seu_bench.config.commands import command
from seu_bench.config.run import CommandLine
from seu_bench.errors import OptionError
from seu_bench.plugin.registry import Registry, use_plugins
from seu_bench.results.leaderboard import count
from seu_bench.results.scenarios import benchmark_title
from seu_bench.sweeps.spec import EXECUTOR, SweepSpec, make_spec, parse_axes

if TYPE_CHECKING:
    from seu_bench.results.metric import Metric
    from seu_bench.sweeps.driver import SweepResult
    from seu_bench.sweeps.plan import SweepPlan

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


@verbosity_options
@fields_command(SweepSpec, SweepSpec.model_fields.keys() - {"options"}, SweepCommand, unset=True)  # options are lists
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--option",
    "assignments",
    multiple=True,
    metavar="KEY=V1,V2",
    shell_complete=option_keys,
    help="Values of an option, for whichever strategy takes it: a list of TOML without its brackets. executor.KEY is "
    "an option of the executor. May be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan, and write nothing.")
@format_option
def sweep(file: Path | None, assignments: tuple[str, ...], dry_run: bool, form: str, **asked: Any) -> None:
    """Run every combination that is not finished yet.

    FILE is a TOML file with the same keys; options given besides replace the file's. The same command resumes a sweep
    that was interrupted. With --quiet the ids of finished runs are printed, with --format json
    all jobs. Exit status 1 if a job is not finished, 0 if all are.
    """
    from seu_bench.sweeps.plan import plan_sweep  # which imports NumPy, as do the others below

    given = {
        key: ",".join(value) if isinstance(value, tuple) and key != "plugin" else value
        for key, value in asked.items()
        if value not in (None, (), {})
    }
    if axes := executor_options(given, parse_axes(assignments)):
        given["options"] = axes
    spec = make_spec(given, file)
    registry = use_plugins(spec.plugin)
    plan = plan_sweep(registry, spec)  # what can be refused is refused before torch is imported
    from seu_bench.cli.sweep_display import SweepDisplay, plan_lines
    from seu_bench.cli.tables import wide_console
    from seu_bench.engine.stopping import StopRequest
    from seu_bench.sweeps.driver import GRACE, GuardedExecutor, SweepEstimate, run_sweep

    executor = GuardedExecutor(registry, spec)
    with contextlib.ExitStack() as unless_run:
        unless_run.callback(executor.close)
        estimate = SweepEstimate(plan)
        if form == "text" and not is_quiet():
            console = wide_console()
            for line in plan_lines(plan, estimate, executor.slots):
                console.print(line)
        if dry_run:
            _print_plan(plan, form)
            return
        unless_run.pop_all()
    stop = StopRequest(grace=GRACE)
    display = SweepDisplay(plan, progress_console(), each_start=is_verbose())
    with stop.on_signals(), display.bars:
        result = run_sweep(plan, executor, estimate, display, stop)
    _report(result, spec.results, registry.known_metrics, form)
    if result.interruption is not None:
        more = ", whose jobs run on" if result.select("running") else ""
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


def _print_plan(plan: SweepPlan, form: str) -> None:
    """Print for a dry run what a program wants: every job as JSON, or the ids of those that are pending."""
    if form == "json":
        jobs = [{"run_id": job.run_id, "label": job.label, "state": job.state} for job in plan.jobs]
        click.echo(json.dumps({"jobs": jobs, "notes": plan.notes}, indent=1))
    elif is_quiet():
        for job in plan.pending:
            click.echo(job.run_id)


def _report(result: SweepResult, results: Path, metrics: Mapping[str, Metric], form: str) -> None:
    """Write leaderboards unless the sweep was interrupted, and print how each job ended."""
    from seu_bench.results.building import make_leaderboards

    paths: list[Path] = []
    if result.interruption is None and any(record.may_be_ranked for record in result.records):
        places = {benchmark_title(record) for record in result.records}
        made = (path for path in make_leaderboards(results, metrics).paths if path.suffix == ".md")
        paths = [path for path in made if any(path.name.startswith(f"{place}-v") for place in places)]
    if form == "json":
        click.echo(json.dumps(_document(result), indent=1))
    elif is_quiet():
        for record in result.records:
            click.echo(record.run_id)
        for job in result.jobs:
            if job.status not in ("finished", "pending"):
                click.echo(f"{job.job.label}: {job.status}: {job.message}", err=True)
    else:
        _print_result(result, paths, results)


def _document(result: SweepResult) -> dict[str, Any]:
    """The end of every job as plain values; metrics are those of the record, and empty where none was finished."""
    jobs = [
        {
            "run_id": it.job.run_id,
            "label": it.job.label,
            "status": it.status,
            "message": it.message,
            "made": it.made,
            "metrics": dict(it.record.metrics) if it.status == "finished" and it.record is not None else {},
        }
        for it in result.jobs
    ]
    return {"exit_status": result.exit_code, "jobs": jobs}


def _print_result(result: SweepResult, paths: Sequence[Path], results: Path) -> None:
    from seu_bench.cli.sweep_display import result_table, result_words
    from seu_bench.cli.tables import wide_console

    table = result_table(result)
    if table is not None:
        wide_console().print("", table, "", sep="\n")
    unranked = [record for record in result.records if not record.may_be_ranked]
    if unranked and result.interruption is None:
        shown = command("leaderboard", "--unranked", results=results)
        click.echo(f"not ranked: {count(len(unranked), 'run')} ({shown} shows them)")
    click.echo(result_words(result))
    for path in paths:
        click.echo(f"leaderboard: {path}")
