"""``--quiet`` and ``--verbose``: how much a command says; each may stand before or after the command's name."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeVar

import click

from seu_bench.utils import progress as bars

if TYPE_CHECKING:
    from rich.console import Console

#: Where click's contexts keep it; those of a group and its command share one dictionary.
_KEY: Final = "seu_bench.verbosity"
CommandT = TypeVar("CommandT", bound=click.Command)


class Verbosity(IntEnum):
    """How much a command says."""

    #: Errors, and the last result alone: for pipes and scripts.
    QUIET = -1
    NORMAL = 0
    #: All there is: what was resolved, a line per stage, tables in full.
    VERBOSE = 1


def verbosity() -> Verbosity:
    """Return what the command that runs now was asked for with."""
    context = click.get_current_context(silent=True)
    found = None if context is None else context.meta.get(_KEY)
    return found if isinstance(found, Verbosity) else Verbosity.NORMAL


def is_quiet() -> bool:
    """Whether errors and the last result are all that is wanted."""
    return verbosity() is Verbosity.QUIET


def is_verbose() -> bool:
    """Whether everything is wanted."""
    return verbosity() is Verbosity.VERBOSE


def verbosity_options(command: CommandT) -> CommandT:
    """Add ``-q``/``--quiet`` and ``-v``/``--verbose`` to a command or group."""
    command.params += [
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=_noted,
            help="Print errors and the last result alone, e.g. the id of a run.",
        ),
        click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            expose_value=False,
            callback=_noted,
            help="Print everything: what was resolved and from where, each stage, tables in full.",
        ),
    ]
    return command


def _noted(context: click.Context, option: click.Parameter, given: bool) -> None:
    """Callback of both options: keep what was asked for, and refuse a contradiction."""
    if not given:
        return
    asked = Verbosity.QUIET if option.name == "quiet" else Verbosity.VERBOSE
    if context.meta.setdefault(_KEY, asked) is not asked:
        raise click.UsageError("--quiet and --verbose exclude each other", context)
    if asked is Verbosity.QUIET:
        context.with_resource(bars.hidden())


def progress_console() -> Console | None:
    """Return the console for bars and notices: one that prints nothing where quiet, ``None`` for the usual one."""
    if not is_quiet():
        return None
    from rich.console import Console

    return Console(stderr=True, quiet=True)
