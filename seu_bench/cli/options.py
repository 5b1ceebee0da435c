"""Options that several commands share."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin

import click
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from seu_bench.cli.completion import COMPLETERS
from seu_bench.config.options import parse_assignments, parse_value
from seu_bench.config.run import CommandLine, Request
from seu_bench.plugin.registry import Registry

if TYPE_CHECKING:
    from rich.console import RenderableType

#: ``--format`` of every command that prints for a reader or for a program.
format_option = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Output format."
)


def output_path(value: str) -> Path:
    """Type of ``--output``; an empty path would mean the working folder."""
    if not value:
        raise click.BadParameter("the path is empty")
    return Path(value)


#: ``--data-root`` for commands about data sets.
data_option = click.option(
    "--data-root",
    type=click.Path(path_type=Path),
    help=Request.model_fields["data_root"].description,
)


def print_as(form: str, document: object, parts: Iterable[str | RenderableType]) -> None:
    """Print for ``--format`` the document as JSON, or else the parts: lines of text, and tables."""
    if form == "json":
        click.echo(json.dumps(document, indent=1))
        return
    for part in parts:
        if isinstance(part, str):
            click.echo(part)
        else:
            from seu_bench.cli.tables import wide_console

            wide_console().print(part)


def fields_command(
    model: type[BaseModel], names: Collection[str], *, unset: bool = False
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator for a command with an option for each of these fields of a model, after its own options.

    With ``unset`` an option that is not given is ``None``, so that a file may say it.
    """
    # A class's own fields before those that it inherits.
    known = dict.fromkeys(name for base in model.__mro__ for name in vars(base).get("__annotations__", ()))
    fields = {
        name: field
        for name in known
        if name in names and (field := model.model_fields.get(name)) and not command_line_of(field).is_internal
    }

    def make(function: Callable[..., Any]) -> click.Command:
        command = click.command(function.__name__.strip("_").replace("_", "-"))(function)
        command.params += [field_option(name, field, unset=unset) for name, field in fields.items()]
        return command

    return make


def request_command(*names: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator for a command with options of these fields of a request, of all by default."""
    return fields_command(Request, names or Request.model_fields)


def command_line_of(field: FieldInfo) -> CommandLine:
    """The command-line form of a field."""
    return next((mark for mark in field.metadata if isinstance(mark, CommandLine)), CommandLine())


def field_option(name: str, field: FieldInfo, *, unset: bool = False) -> click.Option:
    """Option of a field: type, limits, choices, default and help are the field's; ``unset``: ``None`` if not given."""
    given = command_line_of(field)
    flags = given.flags or (f"--{name.replace('_', '-')}",)
    default, kind, text = field.get_default(call_default_factory=True), _plain_type(field.annotation), field.description
    if unset and default not in (None, False, True, (), {}, ""):
        shown = ", ".join(map(str, default)) if isinstance(default, tuple) else default
        text = f"{text} [default: {shown}]"
    settings: dict[str, Any] = {"help": text, "metavar": given.metavar, "default": None if unset else default}
    settings["shell_complete"] = COMPLETERS.get(name)
    if kind is bool:
        settings |= {"flag_value": not default} if default else {"is_flag": True}
    elif get_origin(kind) in (tuple, dict):
        is_names = get_origin(kind) is tuple
        settings |= {"multiple": True, "default": (), "callback": None if is_names else _assignments}
        if _plain_type(get_args(kind)[0]) is Path:
            settings["type"] = click.Path(path_type=Path)
    else:
        settings |= {"type": _click_type(kind), "show_default": not unset and default is not None}
    return click.Option([*flags, name], **settings)


class _Number(click.ParamType[Any]):
    """A number; the field itself refuses what is none, or out of its range."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return parse_value(value) if isinstance(value, str) else value


def _plain_type(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    parts = [part for part in get_args(annotation) if part is not type(None)]
    return _plain_type(parts[0]) if type(None) in get_args(annotation) else annotation


def _click_type(kind: Any) -> Any:
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    if kind is Path:
        return click.Path(path_type=Path)
    return _Number() if kind in (int, float) else str


def _assignments(_context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    return parse_assignments(values, option.opts[0])


def pause_collection() -> None:
    """Look for no garbage until the command ends: among thousands of records, which stay, that takes long."""
    gc.disable()
    click.get_current_context().call_on_close(gc.enable)


def known_registry() -> Registry:
    """Return what is installed, with a notice of each plugin that cannot be used: its columns may be missing."""
    registry = Registry()
    for fault in registry.faults.values():
        click.echo(f"unavailable: {fault.what}", err=True)
    return registry
