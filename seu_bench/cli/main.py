"""The command line: parse, call, print.

A command of core is one module of this room, imported when the command runs or its own help is shown. Commands of
plugins come by the hook ``register_commands``; plugins are loaded when ``--help``, or a name that is not core's, asks.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

from seu_bench._version import __version__
from seu_bench.cli.verbosity import quiet_option
from seu_bench.errors import ExitStatus, Interruption, SeuBenchError
from seu_bench.hookspecs import hookimpl
from seu_bench.plugin.registration import LazyCommand
from seu_bench.plugin.registry import PACKAGE, Entry, Kind, broken_plugin_error, collect, installed_points, load_plugins
from seu_bench.utils import progress as bars
from seu_bench.utils.hardware import SHORTAGE_REMEDIES, keep_freed_memory, shortage
from seu_bench.utils.startup import defer_imports
from seu_bench.utils.text import printable, printable_lines

if TYPE_CHECKING:
    from seu_bench.plugin.registration import CommandFactory, Register


def _core(path: str, summary: str) -> LazyCommand:
    return LazyCommand(f"seu_bench.cli.{path}", summary)


#: Core's commands in the order of ``seu-bench --help``, which shows the first sentence of their own help.
CORE: Final[Mapping[str, LazyCommand]] = {
    "run": _core("run:run", "Run a strategy on a benchmark and write the record."),
    "sweep": _core("sweep:sweep", "Run every combination that is not finished yet."),
    "tune": _core("sweep:tune", "Choose hyper-parameters without test images, and write a tuned file."),
    "cost": _core("cost:cost", "Estimate the cost of a run."),
    "runs": _core("runs:runs", "List runs and their states."),
    "show": _core("runs:show", "Show the record of a run."),
    "compare": _core(
        "compare:compare",
        "Compare runs of one benchmark task by task, and their configurations over all of their seeds.",
    ),
    "leaderboard": _core("leaderboard:leaderboard", "Build leaderboards from records."),
    "report": _core("report:report", "Write a report: one HTML page with interactive charts, which needs no network."),
    "extend": _core("extend:extend", "Have a finished run learn a further task, from the state that it kept."),
    "verify": _core("verify:verify", "Check a record against the weights of its run."),
    "predict": _core("predict:predict", "Predict the classes of pictures with the model of a run."),
    "export": _core("export:export", "Export the model of a run to ONNX."),
    "data": _core("list:data", "List data sets with status, size and location, or download one."),
    "weights": _core("weights:weights", "List pretrained weights and how they come, show one, or fetch one."),
    "list": _core("list:list_", "List what is installed, and what is unavailable and why."),
    "check-plugin": _core("check_plugin:check_plugin", "Run the contract tests on a plugin and list what failed."),
    "init": _core("init:init", "Print the benchmark file of a folder of images."),
    "new": _core("new:new", "Write the file that a method of your own begins with, and its test."),
}


#: Plugins that come with seu-bench and offer commands; ``--help`` imports no others of ours.
WITH_COMMANDS: Final = ("genotypes", "submissions")


@hookimpl
def register_commands(register: Register[CommandFactory]) -> None:
    """Offer core's commands by the hook that any plugin uses, so that no plugin can take their names."""
    for name, command in CORE.items():
        register(name, command)


#: Commands whose ``-o`` gives options of a strategy.
WITH_OPTIONS: Final = ("run", "cost", "extend", "tune")


class CommandGroup(click.Group):
    """Core's commands first, then those of plugins, which are loaded only where they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name."""
        return [*CORE, *_others(plugin_commands())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name in CORE:
            return CORE[cmd_name].build()
        found = plugin_commands()
        if found is None or not (cmd_name in found or cmd_name in found.unavailable or found.faults):
            return None
        entry = found.find(cmd_name)
        try:
            return entry.factory.build()
        except Exception as error:
            owner, said = f"plugin {entry.plugin!r} of package {entry.package}", f"{type(error).__name__}: {error}"
            raise broken_plugin_error(f"the command {entry.name!r} of {owner} failed: {said}", entry.package) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Look up a command; where there is none, name the one that was meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from seu_bench.config.options import did_you_mean  # as all that --help does without

            raise click.UsageError(error.message + did_you_mean(args[0], self.list_commands(ctx)), ctx) from error

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Complete names of commands, which are not imported for that, and the options of the group."""
        names = [CompletionItem(name) for name in self.list_commands(ctx) if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands of core, then those of plugins with the package of each."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.summary) for name, command in CORE.items()])
        found = plugin_commands()
        rows = [(entry.name, f"{entry.summary} ({entry.package})") for entry in _others(found).values()]
        rows += [(name, f"unavailable: {error.what}") for name, error in found.faults.items()] if found else []
        if rows:
            with formatter.section("Commands of plugins"):
                formatter.write_dl(rows)


def plugin_commands() -> Kind[CommandFactory] | None:
    """Load the plugins of other packages and ours with commands, and collect all commands; ``None``: there are none."""
    others = [it for it in installed_points() if it[1] != PACKAGE or it[0].name in WITH_COMMANDS]
    ours = {name: Entry(name, command, "cli", PACKAGE) for name, command in CORE.items()}
    return collect(load_plugins(others), "command", "commands", ours, needs="build") if others else None


def _others(found: Kind[CommandFactory] | None) -> dict[str, Entry[CommandFactory]]:
    return {name: entry for name, entry in (found or {}).items() if name not in CORE}


@quiet_option
@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="seu-bench")
def cli() -> None:
    """Benchmark continual (lifelong) learning by accuracy, forgetting and model size.

    To start: seu-bench run --strategy seu --benchmark split_digits

    Exit status: 0 done; 1 a check failed, or jobs are not finished; 2 refused; 3 the run failed; 70 a defect of
    seu-bench; 75 stopped by --max-seconds; 129, 130, 143 interrupted by a signal.
    """


def main() -> None:
    """Entry point of the command ``seu-bench``: errors become one message and an :class:`ExitStatus`."""
    defer_imports()
    # Threads that wait for one another leave their core to others; else two are many times slower on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    keep_freed_memory()
    # Where in the code it was raised tells a user nothing.
    warnings.formatwarning = lambda message, *_place: f"warning: {printable_lines(str(message))}\n"
    try:
        status, message = _status_of(cli)
    except Exception:
        told = "this is a defect of seu-bench or of a plugin; please report it with these lines"
        status, message = ExitStatus.DEFECT, f"{traceback.format_exc()}\n{told}"
    if message:
        # Where nobody can read it any more, the exit status says it all the same.
        with contextlib.suppress(OSError, ValueError):
            click.echo(printable_lines(message), err=True)
    sys.exit(status)


def _status_of(command: click.Command) -> tuple[int, str]:
    try:
        with bars.show_progress():
            status = command.main(prog_name="seu-bench", standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()  # or Python would do so after us, and end in a traceback where it cannot
    except SeuBenchError as error:
        return error.exit_status, f"error: {error}"
    except click.ClickException as error:
        with contextlib.suppress(OSError, ValueError):
            error.show()
        return ExitStatus.REFUSED, _hint(error)
    except OSError as error:
        _discard_output()
        if isinstance(error, BrokenPipeError):
            return ExitStatus.NOT_MET, ""  # as with | head; click's
        where = "standard output or a file" if error.filename is None else printable(os.fsdecode(error.filename))
        remedy = "see that the path is right, that you may use it, and that there is room"
        told = SeuBenchError(f"the system refuses: {error.strerror or error}", where=where, remedy=remedy)
        return ExitStatus.REFUSED, f"error: {told}"
    except (click.Abort, KeyboardInterrupt) as stopped:
        cause = stopped.__cause__ if isinstance(stopped, click.Abort) else stopped  # click wraps KeyboardInterrupt
        if isinstance(cause, Interruption):
            return cause.exit_code, f"{cause.reason}; run the same command again to resume"
        return ExitStatus.INTERRUPTED, "interrupted"
    except (MemoryError, RuntimeError, ValueError) as error:
        if (lacking := shortage(error)) is None:
            raise
        first = next(iter(str(error).splitlines()), type(error).__name__)
        what = f"the machine has not enough {lacking} for this: {first}"
        return ExitStatus.REFUSED, f"error: {SeuBenchError(what, remedy=SHORTAGE_REMEDIES[lacking])}"
    return (status if isinstance(status, int) else ExitStatus.DONE), ""


def _hint(error: click.ClickException) -> str:
    """What was meant by an option that a command does not have."""
    if not isinstance(error, click.NoSuchOption) or not error.ctx or error.ctx.info_name not in WITH_OPTIONS:
        return ""
    name = error.option_name.lstrip("-").replace("-", "_")
    if name == "seeds":
        return "hint: give one --seed, or several to seu-bench sweep --seeds"
    from seu_bench.config.options import ELSEWHERE  # imports pydantic, which --help does without

    value = dict(pairwise(sys.argv)).get(error.option_name, "VALUE")
    meant = shlex.quote(f"{ELSEWHERE.get(name, name)}={value}")
    return f"hint: options of a strategy follow -o, as in -o {meant}; seu-bench list strategies NAME shows them"


def _discard_output() -> None:
    """Let what is still to be written to standard output go, so that Python does not try once more at its end."""
    if sys.stdout is not sys.__stdout__:
        return
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)


if __name__ == "__main__":
    main()
