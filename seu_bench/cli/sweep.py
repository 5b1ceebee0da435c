"""``seu-bench sweep`` and ``tune``: every combination of a grid; hyper-parameters chosen without test images."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from seu_bench.cli.options import fields_command, format_option
from seu_bench.cli.verbosity import is_quiet, progress_console, quiet_option
from seu_bench.config.commands import command
from seu_bench.config.options import format_option as format_value
from seu_bench.config.options import parse_assignments
from seu_bench.errors import ExitStatus
from seu_bench.plugin.registry import use_plugins
from seu_bench.results.labels import benchmark_title
from seu_bench.results.leaderboard import count
from seu_bench.sweeps.spec import SweepSpec, make_spec, parse_axes
from seu_bench.sweeps.tune_spec import DECIDED, TuneSpec, make_tune_spec
from seu_bench.utils.text import format_seconds

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from seu_bench.cli.progress import SweepDisplay
    from seu_bench.results.metric import Metric
    from seu_bench.sweeps.driver import SweepResult
    from seu_bench.sweeps.plan import PlannedJob, SweepPlan
    from seu_bench.sweeps.tuning import TuneResult

#: Trials that are shown, the best ones, where not everything is wanted.
_MOST_TRIALS: Final = 30


@quiet_option
@fields_command(SweepSpec, SweepSpec.model_fields.keys() - {"options"}, unset=True)  # options are lists
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
@click.option("--dry-run", is_flag=True, help="Show the plan, and write nothing.")
@format_option
def sweep(file: Path | None, assignments: tuple[str, ...], dry_run: bool, form: str, **asked: Any) -> None:
    """Run every combination that is not finished yet.

    FILE is a TOML file with the same keys; options given besides replace the file's. The same command resumes a sweep
    that was interrupted. With --quiet the ids of finished runs are printed, with --format json all jobs. Exit status 1
    if a job is not finished, 0 if all are.
    """
    from seu_bench.sweeps.plan import plan_sweep  # which imports NumPy, as do the others below

    given = given_fields(asked)
    if axes := parse_axes(assignments):
        given["options"] = axes
    spec = make_spec(given, file)
    registry = use_plugins(spec.plugin)
    plan = plan_sweep(registry, spec)  # what can be refused is refused before torch is imported
    from seu_bench.cli.progress import SweepDisplay
    from seu_bench.cli.tables import wide_console
    from seu_bench.engine.stopping import StopRequest
    from seu_bench.sweeps.driver import GRACE, GuardedExecutor, run_sweep

    executor = GuardedExecutor(registry, spec)
    with contextlib.ExitStack() as unless_run:
        unless_run.callback(executor.close)
        if form == "text" and not is_quiet():
            wide_console().print(*plan_lines(plan, executor.slots), sep="\n")
        if dry_run and form == "json":
            jobs = [{"run_id": job.run_id, "label": job.label, "state": job.state} for job in plan.jobs]
            click.echo(json.dumps({"jobs": jobs, "notes": plan.notes}, indent=1))
        elif dry_run and is_quiet():
            click.echo("".join(f"{job.run_id}\n" for job in plan.pending), nl=False)
        if dry_run:
            return
        unless_run.pop_all()
    stop = StopRequest(grace=GRACE)
    display = SweepDisplay(plan, executor.slots, progress_console())
    with stop.on_signals(), display.bars:
        result = run_sweep(plan, executor, display, stop)
    _print_result(result, spec.results, registry.known_metrics, form)
    if result.interruption is not None:
        more = ", whose jobs run on" if result.select("running") else ""
        click.echo(f"{result.interruption.reason}; the same command resumes the sweep{more}", err=True)
    raise SystemExit(result.exit_code)


def given_fields(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, as a file says them: several names are separated by commas."""
    return {
        key: ",".join(value) if isinstance(value, tuple) and key != "plugin" else value
        for key, value in asked.items()
        if value not in (None, (), {})
    }


def plan_lines(plan: SweepPlan, slots: int | None) -> Iterator[RenderableType]:
    """Yield the plan: a row per configuration, jobs by state, and the estimated time."""
    from seu_bench.cli.tables import literal, new_table
    from seu_bench.sweeps.plan import SweepEstimate

    of_configuration: dict[str, list[PlannedJob]] = {}
    for job in plan.jobs:
        of_configuration.setdefault(job.configuration.key, []).append(job)
    rows, pending = [], Counter(job.configuration.key for job in plan.pending)
    for key, jobs in of_configuration.items():
        spec, states = jobs[0].configuration.run.spec, Counter(job.state for job in jobs)
        counts = (len(jobs), states["finished"], states["interrupted"], states["failed"], pending[key])
        rows.append((spec.benchmark.name, spec.protocol_name, jobs[0].configuration.label, *counts))
    numbers = (">jobs", ">finished", ">interrupted", ">failed", ">pending")
    yield new_table("plan", ("benchmark", "protocol", "configuration", *numbers), rows)
    yield ""
    total: Counter[str] = Counter(job.state for job in plan.jobs)
    again = "will be" if plan.spec.retry_failed else "with --retry-failed they are"
    notes = {
        "interrupted": "(will be resumed)",
        "failed": f"({again} run again)",
        "running": "elsewhere (checked last)",
    }
    told = [f"{total[state]} {state} {note}" for state, note in notes.items() if total[state]]
    told = [f"{total['finished']} finished", *told, f"{len(plan.pending)} pending"]
    yield literal(f"{count(len(plan.jobs), 'job')}: {', '.join(told)}")
    if plan.pending:
        at_once = f", {count(min(slots, len(plan.pending)), 'job')} at once" if slots else ""
        seconds = SweepEstimate(plan, slots).of(plan.pending)
        known_time = "not known yet" if seconds is None else f"about {format_seconds(seconds)}"
        yield literal(f"estimated time: {known_time}{at_once}")
    yield from (literal(f"note: {note}") for note in plan.notes)


def _print_result(result: SweepResult, results: Path, metrics: Mapping[str, Metric], form: str) -> None:
    """Write leaderboards unless the sweep was interrupted, and print how each job ended."""
    from seu_bench.results.building import make_leaderboards

    paths: list[Path] = []
    if result.interruption is None and any(record.may_be_ranked for record in result.records):
        places = {benchmark_title(record) for record in result.records}
        made = (path for path in make_leaderboards(results, metrics).paths if path.suffix == ".md")
        paths = [path for path in made if any(path.name.startswith(f"{place}-v") for place in places)]
    if form == "json":
        jobs = [
            {"run_id": it.job.run_id, "label": it.job.label}
            | {key: getattr(it, key) for key in ("status", "message", "made")}
            | {"metrics": dict(it.record.metrics) if it.status == "finished" and it.record else {}}
            for it in result.jobs
        ]
        click.echo(json.dumps({"exit_status": result.exit_code, "jobs": jobs}, indent=1))
        return
    for record in result.records if is_quiet() else ():
        click.echo(record.run_id)
    for job in result.jobs:
        if job.status not in ("finished", "pending"):
            click.echo(f"{job.job.label}: {job.status}: {job.message}", err=is_quiet())
    if is_quiet():
        return
    unranked = [record for record in result.records if not record.may_be_ranked]
    if unranked and result.interruption is None:
        shown = command("leaderboard", "--unranked", results=results)
        click.echo(f"not ranked: {count(len(unranked), 'run')} ({shown} shows them)")
    statuses = Counter(job.status for job in result.jobs)
    words = {"held": "held by another process", "pending": "not started"}
    click.echo(", ".join(f"{number} {words.get(status, status)}" for status, number in statuses.items()))
    for path in paths:
        click.echo(f"leaderboard: {path}")


@quiet_option
@fields_command(TuneSpec, TuneSpec.model_fields.keys() - {*DECIDED, "options", "space"}, unset=True)
@click.option(
    "-g",
    "--grid",
    "dimensions",
    multiple=True,
    metavar="KEY=V1,V2",
    help="What to try of an option: values as in a list of TOML without its brackets; or, for a sampler that draws, a "
    "range LOW..HIGH, or LOW..HIGH:log. May be repeated [default: the strategy's own grid].",
)
@click.option(
    "-o",
    "--option",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of all trials; executor.KEY is one of the executor. May be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Show the trials, and write nothing.")
def tune(dimensions: tuple[str, ...], assignments: tuple[str, ...], dry_run: bool, **asked: Any) -> None:
    """Choose hyper-parameters without test images, and write a tuned file.

    Trials learn the streams of seeds of their own, and are scored on withheld validation images. The same command
    resumes. The file is used by run --tuned and sweep --tuned; with --quiet its path is all that is printed. Exit
    status 1 if a trial could not be completed, or none has a score.
    """
    given = given_fields(asked)
    given["options"] = parse_assignments(assignments)
    parse_assignments(dimensions, "-g")  # refuses what is none; values are read as lists or ranges, from text
    given["space"] = {key.strip(): text for key, _, text in (it.partition("=") for it in dimensions)}
    registry = use_plugins(asked["plugin"] or ())
    spec = make_tune_spec(given, registry)
    from seu_bench.cli.tables import wide_console
    from seu_bench.engine.stopping import StopRequest
    from seu_bench.sweeps.driver import GRACE
    from seu_bench.sweeps.tuning import run_tuning

    stop = StopRequest(grace=GRACE)
    with stop.on_signals():
        result = run_tuning(registry, spec, _display, stop, dry_run=dry_run)
    if dry_run:
        return
    last = result.sweeps[-1]
    if not is_quiet():
        wide_console().print(*_tune_lines(spec, result), sep="\n")
    elif result.file is not None:
        click.echo(str(result.path))
    if result.file is None and last.interruption is not None:
        click.echo(f"{last.interruption.reason}; the same command resumes the tuning", err=True)
    elif result.file is None:
        has_score = not result.trials or any(trial.score is not None for trial in result.trials)
        why = "not every trial could be completed" if has_score else "a run of every trial failed"
        click.echo(f"no file was written: {why}", err=is_quiet())
    raise SystemExit(ExitStatus.DONE if result.file is not None else last.exit_code or ExitStatus.NOT_MET)


@contextlib.contextmanager
def _display(plan: SweepPlan, slots: int | None) -> Iterator[SweepDisplay]:
    from seu_bench.cli.progress import SweepDisplay
    from seu_bench.cli.tables import PLAIN_WIDTH
    from seu_bench.utils.progress import watching_console

    # Rounds follow one another: a reader who left after the first does not stop the others.
    console = watching_console("stdout", PLAIN_WIDTH)
    for line in plan_lines(plan, slots) if not is_quiet() else ():
        console.print(line)
    display = SweepDisplay(plan, slots, progress_console())
    with display.bars:
        yield display


def _tune_lines(spec: TuneSpec, result: TuneResult) -> Iterator[RenderableType]:
    from seu_bench.cli.tables import literal

    yield trial_table(spec, result)
    yield ""
    statuses = Counter(job.status for sweep in result.sweeps for job in sweep.jobs)
    yield literal(", ".join(f"{number:,} {status}" for status, number in statuses.items()))
    if (file := result.file) is None:
        return
    chosen = ", ".join(f"{key}={format_value(file.options[key])}" for key in spec.space)
    yield literal(f"chosen: {chosen} ({file.method}: {file.note})")
    cost = file.cost
    seconds = "" if cost.cpu_seconds is None else f", {format_seconds(cost.cpu_seconds)} of a processor"
    yield literal(f"cost: {cost.runs:,} runs, {cost.image_passes:,} image passes{seconds}")
    yield literal(f"tuned file: {result.path}")


def trial_table(spec: TuneSpec, result: TuneResult, most: int = _MOST_TRIALS) -> Table:
    """Return a row for each trial, those without a score last."""
    from seu_bench.cli.tables import new_table
    from seu_bench.sweeps.tuning import best_trial

    ranked = sorted(result.trials, key=lambda trial: -1.0 if trial.score is None else trial.score, reverse=True)
    best = best_trial(result.trials) if ranked and ranked[0].score is not None else None
    rows = []
    for trial in ranked[:most]:
        values = [format_value(trial.options[key]) if key in trial.options else "-" for key in spec.space]
        score = "failed" if trial.score is None else f"{100 * trial.score:.2f} %"
        rows.append((*values, score, "*" if trial is best else ""))
    more = f", the best {most}" if len(ranked) > most else ""
    return new_table(f"trials{more}", (*spec.space, ">validation accuracy", "="), rows)
