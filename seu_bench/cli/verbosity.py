"""``--quiet``: a command says what a script goes on with, and no more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import click

from seu_bench.utils import progress as bars

if TYPE_CHECKING:
    from rich.console import Console

CommandT = TypeVar("CommandT", bound=click.Command)
#: Where click's contexts keep that; those of a group and its command share one dictionary.
_QUIET: Final = "seu_bench.quiet"


def quiet_option(command: CommandT) -> CommandT:
    """Add ``-q``/``--quiet``, which may stand before or after a command's name."""
    text = "Print errors and the last result alone, e.g. the id of a run."
    command.params.append(
        click.Option(["-q", "--quiet"], is_flag=True, expose_value=False, callback=_keep_quiet, help=text)
    )
    return command


def _keep_quiet(context: click.Context, _option: click.Parameter, given: bool) -> None:
    if given and not context.meta.get(_QUIET):
        context.meta[_QUIET] = True
        context.with_resource(bars.hide_progress())


def is_quiet() -> bool:
    """Whether errors and the last result are all that is wanted of the command that runs now."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_QUIET))


def progress_console() -> Console | None:
    """Return the console for bars and notices: one that prints nothing where quiet, ``None`` for the usual one."""
    if not is_quiet():
        return None
    from rich.console import Console

    return Console(stderr=True, quiet=True)
