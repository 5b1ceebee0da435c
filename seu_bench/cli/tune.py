"""The command ``tune``: hyper-parameters chosen on validation images of other seeds' streams.

It shows the trials by score, what was chosen, and what that cost.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from seu_bench.cli.completion.option_keys import option_keys
from seu_bench.cli.options import fields_command
from seu_bench.cli.output.verbosity import is_quiet, is_verbose, progress_console, verbosity_options
from seu_bench.cli.sweep import SweepCommand, executor_options
from seu_bench.config.options import format_option, parse_assignments
from seu_bench.errors import ExitStatus, OptionError
from seu_bench.plugin.registry import use_plugins
from seu_bench.sweeps.tune_spec import DECIDED, TuneSpec, at_an_end, make_tune_spec
from seu_bench.utils.text import format_seconds

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from seu_bench.cli.sweep_display import SweepDisplay
    from seu_bench.config.tuned import Trial, TunedFile
    from seu_bench.sweeps.driver import SweepEstimate
    from seu_bench.sweeps.plan import SweepPlan
    from seu_bench.sweeps.tuning import TuneResult


#: Trials that are shown, the best ones, where not everything is wanted.
_MOST_TRIALS: Final = 30


@verbosity_options
@fields_command(TuneSpec, TuneSpec.model_fields.keys() - {*DECIDED, "options", "space"}, SweepCommand, unset=True)
@click.option(
    "-g",
    "--grid",
    "dimensions",
    multiple=True,
    metavar="KEY=V1,V2",
    shell_complete=option_keys,
    help="What to try of an option: values as in a list of TOML without its brackets; or, for a sampler that draws, a "
    "range LOW..HIGH, or LOW..HIGH:log. May be repeated [default: the strategy's own grid].",
)
@click.option(
    "-o",
    "--option",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=option_keys,
    help="An option of all trials; executor.KEY is one of the executor. May be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Show the trials, and write nothing.")
def tune(dimensions: tuple[str, ...], assignments: tuple[str, ...], dry_run: bool, **asked: Any) -> None:
    """Choose hyper-parameters without test images, and write a tuned file.

    Trials learn the streams of seeds of their own, and are scored on withheld validation images. The same command
    resumes. The file is used by run --tuned and sweep --tuned; with --quiet its path is all that is printed. Exit
    status 1 if a trial could not be completed, or none has a score.
    """
    given = {
        key: ",".join(value) if isinstance(value, tuple) and key != "plugin" else value
        for key, value in asked.items()
        if value not in (None, (), {})
    }
    given["options"] = executor_options(given, parse_assignments(assignments))
    given["space"] = _space(dimensions)
    registry = use_plugins(asked["plugin"] or ())
    spec = make_tune_spec(given, registry)
    from seu_bench.cli.tables import wide_console
    from seu_bench.engine.stopping import StopRequest
    from seu_bench.sweeps.driver import GRACE
    from seu_bench.sweeps.tuning import run_tuning

    stop = StopRequest(grace=GRACE)
    with stop.on_signals():
        result = run_tuning(registry, spec, _shown, stop, dry_run=dry_run)
    if dry_run:
        return
    if is_quiet():
        _print_end(result)
    else:
        console = wide_console()
        for line in tune_lines(spec, result):
            console.print(line)
    raise SystemExit(_exit_code(result))


def _print_end(result: TuneResult) -> None:
    """Print the tuned file, or why there is none."""
    if result.file is not None:
        click.echo(str(result.path))
    elif result.sweeps[-1].interruption is None:
        click.echo("no file was written: " + _why_not(result), err=True)


@contextlib.contextmanager
def _shown(plan: SweepPlan, slots: int | None) -> Iterator[tuple[SweepEstimate, SweepDisplay]]:
    """Print the plan of a round of trials, and draw its bars."""
    from seu_bench.cli.sweep_display import SweepDisplay, plan_lines
    from seu_bench.cli.tables import PLAIN_WIDTH
    from seu_bench.sweeps.driver import SweepEstimate
    from seu_bench.utils.console import watching_console

    # Rounds follow one another: a reader who left after the first does not stop the others.
    estimate, console = SweepEstimate(plan), watching_console("stdout", PLAIN_WIDTH)
    for line in plan_lines(plan, estimate, slots) if not is_quiet() else ():
        console.print(line)
    display = SweepDisplay(plan, progress_console(), each_start=is_verbose())
    with display.bars:
        yield estimate, display


def _space(dimensions: tuple[str, ...]) -> dict[str, str]:
    space: dict[str, str] = {}
    for dimension in dimensions:
        key, separator, text = (part.strip() for part in dimension.partition("="))
        if not separator or not key or not text:
            raise OptionError(f"-g {dimension!r} is no option with values", remedy="write it as -g key=value1,value2")
        if key in space:
            raise OptionError(f"-g {key!r} is given twice", remedy="give it once, its values separated by commas")
        space[key] = text
    return space


def _exit_code(result: TuneResult) -> int:
    if result.file is not None:
        return ExitStatus.DONE
    last = result.sweeps[-1]
    if last.interruption is not None:
        click.echo(f"{last.interruption.reason}; the same command resumes the tuning", err=True)
    return last.exit_code or ExitStatus.NOT_MET


def tune_lines(spec: TuneSpec, result: TuneResult) -> Iterator[Table | Text]:
    """Yield the trials, the best ones first, and what became of the tuning."""
    from rich.text import Text

    from seu_bench.cli.tables import literal

    yield trial_table(spec, result, len(result.trials) if is_verbose() else _MOST_TRIALS)
    yield Text()
    statuses = Counter(job.status for sweep in result.sweeps for job in sweep.jobs)
    yield literal(", ".join(f"{number:,} {status}" for status, number in statuses.items()))
    if result.file is not None:
        yield from map(literal, _file_words(spec, result.file))
        yield literal(f"tuned file: {result.path}")
    elif result.sweeps[-1].interruption is None:
        yield literal("no file was written: " + _why_not(result))


def trial_table(spec: TuneSpec, result: TuneResult, most: int = _MOST_TRIALS) -> Table:
    """Return a row for each trial, those without a score last."""
    from seu_bench.cli.tables import new_table
    from seu_bench.sweeps.tuning import best_trial

    ranked = sorted(result.trials, key=lambda trial: -1.0 if trial.score is None else trial.score, reverse=True)
    best = best_trial(result.trials) if ranked and ranked[0].score is not None else None
    rows = [(*_values(spec, trial), _score(trial), "*" if trial is best else "") for trial in ranked[:most]]
    more = f", the best {most}" if len(ranked) > most else ""
    return new_table(f"trials{more}", (*spec.space, ">validation accuracy", "="), rows)


def _values(spec: TuneSpec, trial: Trial) -> Iterator[str]:
    return (format_option(trial.options[key]) if key in trial.options else "-" for key in spec.space)


def _score(trial: Trial) -> str:
    return "failed" if trial.score is None else f"{100 * trial.score:.2f} %"


def _file_words(spec: TuneSpec, file: TunedFile) -> Iterator[str]:
    chosen = ", ".join(f"{key}={format_option(file.options[key])}" for key in spec.space)
    yield f"chosen: {chosen} ({file.method}: {file.note})"
    yield from (f"note: {note}" for note in at_an_end(spec.space, file.options))
    cost = file.cost
    seconds = "" if cost.cpu_seconds is None else f", {format_seconds(cost.cpu_seconds)} of a processor"
    yield f"cost: {cost.runs:,} runs, {cost.image_passes:,} image passes{seconds}"


def _why_not(result: TuneResult) -> str:
    if result.trials and all(trial.score is None for trial in result.trials):
        return "a run of every trial failed"
    return "not every trial could be completed; the same command resumes the tuning"
