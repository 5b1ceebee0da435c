"""``--quiet`` and ``--verbose``: how much a command says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import click

from seu_bench.utils import progress as bars

if TYPE_CHECKING:
    from rich.console import Console

CommandT = TypeVar("CommandT", bound=click.Command)
#: Where click's contexts keep what was asked for; those of a group and its command share one dictionary.
_VERBOSITY: Final = "seu_bench.verbosity"


def verbosity_options(command: CommandT) -> CommandT:
    """Add ``-q``/``--quiet`` and ``-v``/``--verbose``, which may stand before or after a command's name."""
    for name, text in (
        ("quiet", "Print errors and the last result alone, e.g. the id of a run."),
        ("verbose", "Print everything: each stage, tables in full."),
    ):
        flags = [f"-{name[0]}", f"--{name}"]
        command.params.append(
            click.Option(flags, is_flag=True, expose_value=False, callback=_keep_verbosity, help=text)
        )
    return command


def _keep_verbosity(context: click.Context, option: click.Parameter, given: bool) -> None:
    if not given:
        return
    if context.meta.setdefault(_VERBOSITY, option.name) != option.name:
        raise click.UsageError("--quiet and --verbose exclude each other", context)
    if option.name == "quiet":
        context.with_resource(bars.hide_progress())


def is_quiet() -> bool:
    """Whether errors and the last result are all that is wanted of the command that runs now."""
    return _is_given("quiet")


def is_verbose() -> bool:
    """Whether everything is wanted."""
    return _is_given("verbose")


def _is_given(name: str) -> bool:
    context = click.get_current_context(silent=True)
    return context is not None and context.meta.get(_VERBOSITY) == name


def progress_console() -> Console | None:
    """Return the console for bars and notices: one that prints nothing where quiet, ``None`` for the usual one."""
    if not is_quiet():
        return None
    from rich.console import Console

    return Console(stderr=True, quiet=True)
