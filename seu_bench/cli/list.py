"""``seu-bench list`` and ``data``: what is installed, one name with its options, data sets and where they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from seu_bench.cli.completion import completer, names_of
from seu_bench.cli.options import data_option, format_option, print_as, request_command
from seu_bench.config.options import describe_options, did_you_mean
from seu_bench.config.options import format_option as format_value
from seu_bench.config.protocol import CreationSchedule, ModelSize, SearchSchedule, TrainingSchedule
from seu_bench.errors import UnknownNameError
from seu_bench.plugin.registry import Kind, Registry, use_plugins
from seu_bench.utils import progress as bars
from seu_bench.utils.text import printable_lines

if TYPE_CHECKING:
    from rich.console import RenderableType

#: How an option of each kind is given.
_GIVEN: Final[Mapping[str, str]] = {
    "strategy": "-o {key}=VALUE",
    "searcher": "-o searcher.{key}=VALUE",
    "creator": "-o creator.{key}=VALUE",
    "executor": "-o executor.{key}=VALUE",
    "logger": "--log-option {name}.{key}=VALUE",
}
#: What else is told of a name of each kind: attributes of its factory, or of a benchmark itself.
_DETAILS: Final[Mapping[str, tuple[str, ...]]] = {
    "strategy": ("title", "components", "presets", "scenarios", "reference"),
    "metric": ("unit", "higher_is_better", "column"),
    "benchmark": ("title", "version", "default_protocol"),
}
#: The default of an option that each protocol has a value of.
PROTOCOL_DEFAULT: Final = "as the protocol says"
#: Kinds whose options a protocol may set, and those options that each protocol has a value of.
_CONFIGURED: Final = ("strategy", "searcher", "creator")
_OF_PROTOCOLS: Final = {
    name
    for part in (TrainingSchedule, SearchSchedule, CreationSchedule, ModelSize)
    for name in part.model_fields
    if name != "backbone"
}


@request_command("plugin")
@click.argument("kind", required=False, shell_complete=completer(lambda _: Registry().kinds))
@click.argument("name", required=False, shell_complete=names_of())
@format_option
def list_(kind: str | None, name: str | None, plugin: tuple[Path, ...], form: str) -> None:
    """List what is installed, and what is unavailable and why.

    KIND is strategies, backbones, encoders, searchers, creators, spaces, benchmarks, datasets, metrics, executors,
    loggers or commands. With NAME, one of them is shown with its options: type, range, default and meaning.
    """
    registry = use_plugins(plugin)
    kinds = registry.kinds
    if kind is not None and kind not in kinds:
        raise UnknownNameError(
            f"there is no kind {kind!r}{did_you_mean(kind, kinds)}", remedy=f"the kinds are: {', '.join(kinds)}"
        )
    if kind is not None and name is not None:
        document = describe_entry(kinds[kind], name)
        print_as(form, document, _parts(document))
        return
    shown = [kinds[kind]] if kind is not None else [table for table in kinds.values() if table]
    if form == "text":  # options would import what they are of
        print_as(form, None, [*_lines(shown, alone=kind is not None), *_fault_lines(registry)])
        return
    rows = [_row(table, name, alone=kind is not None) for table in shown for name in (*table, *table.unavailable)]
    rows += [
        {"name": plugin, "package": registry.manager.package(plugin), "unavailable": fault.what, "kind": "plugin"}
        for plugin, fault in registry.faults.items()
    ]
    print_as(form, rows, ())


def _row(table: Kind[Any], name: str, *, alone: bool) -> dict[str, Any]:
    entry = table.unavailable.get(name) or table[name]
    row: dict[str, Any] = {"name": name, "package": entry.package}
    row |= {"title": entry.title} if name in table and entry.title != name else {}
    row |= {"summary": entry.summary} if name in table else {"unavailable": entry.factory.reason}
    row |= {} if alone else {"kind": table.singular}
    if alone and hasattr(entry.factory, "options"):
        row["options"] = describe_options(entry.factory.options)
    return row


def _fault_lines(registry: Registry) -> Iterator[str]:
    if registry.faults:
        yield click.style("plugins that cannot be used, or not all of them", bold=True)
    for name, fault in registry.faults.items():
        yield f"  {name}  {registry.manager.package(name)}  not available: {fault.what}"
        yield f"    hint: {fault.remedy}"


def _lines(tables: Iterable[Kind[Any]], *, alone: bool) -> Iterator[str]:
    for table in tables:
        if not alone:
            yield click.style(table.plural, bold=True)
        entries = [*table.values(), *table.unavailable.values()]
        columns = [[entry.name, entry.title if entry.title != entry.name else "", entry.package] for entry in entries]
        widths = [max(map(len, column)) for column in zip(*columns, strict=True)]
        for entry, texts in zip(entries, columns, strict=True):
            said = entry.summary if entry.name in table else f"not available: {entry.factory.reason}"
            padded = (f"  {text:<{width}}" for text, width in zip(texts, widths, strict=True) if width)
            yield f"{''.join(padded)}  {said}"
        if alone:
            yield f"seu-bench list {table.plural} NAME shows one in full"


def describe_entry(kind: Kind[Any], name: str) -> dict[str, Any]:
    """Everything that is told of a name, as plain values, its options with how each is given."""
    known = {"name": name, "kind": kind.singular}
    if (it := kind.unavailable.get(name)) is not None:
        return known | {"package": it.package, "unavailable": it.factory.reason, "hint": it.factory.remedy}
    entry = kind.find(name)
    document: dict[str, Any] = {**known, "package": entry.package, "summary": entry.summary}
    about = entry.factory.load() if kind.singular == "benchmark" else entry.factory
    for key in _DETAILS.get(kind.singular, ()):
        value = getattr(about, key, None)
        document[key] = list(value or ()) if isinstance(value, tuple) or key == "presets" else value
    if kind.singular == "benchmark":
        protocols = about.protocols.items()
        document["protocols"] = [{"name": it, "summary": spec.summary, "ranked": spec.ranked} for it, spec in protocols]
    document |= {"citation": entry.citation} if entry.citation else {}
    if hasattr(entry.factory, "options"):
        form = _GIVEN.get(kind.singular, "{key}")
        options = describe_options(entry.factory.options)
        document["options"] = [it | {"given_as": form.format(name=name, key=it["name"])} for it in options]
    return document


def _parts(document: Mapping[str, Any]) -> Iterator[str | RenderableType]:
    from rich.text import Text

    from seu_bench.cli.tables import literal, new_table

    yield literal(f"{document['kind']} {document['name']}, of package {document['package']}")
    for key, value in document.items():
        told = value
        if key in ("name", "kind", "package", "options", "protocols") or value in (None, [], {}, ""):
            continue
        if isinstance(value, Mapping):
            told = ", ".join(f"{part} {name} (--{part} takes another one)" for part, name in value.items())
        elif isinstance(value, list):
            told = ", ".join(value)
        text = str(told) if key == "summary" else f"{key.replace('_', ' ')}: {told}"
        yield Text(printable_lines(text)) if key == "citation" else literal(text)
    if "protocols" in document:
        marks = {True: "ranked", False: "never ranked"}
        rows = [(it["name"], marks[it["ranked"]], it["summary"]) for it in document["protocols"]]
        yield ""
        yield new_table("protocols (--protocol NAME)", ("=name", "=", ""), rows)
    if options := document.get("options"):
        yield ""
        title = options[0]["given_as"].replace(options[0]["name"], "OPTION")
        yield new_table(title, ("=option", "type", "default", ""), option_rows(document))


def option_rows(document: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """Name, type, default and meaning of each option; a default of ``None`` is the protocol's, where it has one."""
    rows = []
    for option in document["options"]:
        of_protocol = document["kind"] in _CONFIGURED and option["name"] in _OF_PROTOCOLS
        standing = PROTOCOL_DEFAULT if of_protocol else "not set"
        default = format_value(option["default"]) if option["default"] is not None else standing
        kind = " | ".join(map(str, option["choices"])) or f"{option['type']} {option['range']}".strip()
        rows.append((option["name"], kind, default, option["help"]))
    return rows


@click.group(invoke_without_command=True)
@data_option
@format_option
@click.pass_context
def data(context: click.Context, data_root: Path | None, form: str) -> None:
    """List data sets with status, size and location, or download one."""
    if context.invoked_subcommand is not None:
        return
    known = {name: (entry.factory, entry.summary) for name, entry in Registry().datasets.items()}
    rows: list[dict[str, Any]] = []
    for name, (source, summary) in bars.track(known.items(), "checking data sets"):
        row: dict[str, Any] = {"name": name, "where": None, "bytes": None, "summary": summary}
        try:
            state = source.state(data_root)
            where = str(state.where) if state.where is not None else None
            row |= {"status": state.status, "where": where, "bytes": state.bytes, "detail": state.detail}
        except Exception as error:  # of a stranger's source: the others are listed all the same
            row |= {"status": "unusable", "detail": f"{type(error).__name__}: {error}"}
        rows.append(row)
    print_as(form, rows, _data_lines(rows))


def _data_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        size = f"{row['bytes'] / 1e6:.1f} MB" if row["bytes"] else "-"
        where = row["where"] or "comes with a dependency"
        yield f"{row['name']:<16} {row['status']:<10} {size:>10}  {where}"
        if row["detail"]:
            yield f"{'':<16} {row['detail']}"


@data.command()
@click.argument("name", shell_complete=names_of("datasets"))
@data_option
@click.pass_context
def fetch(context: click.Context, name: str, data_root: Path | None) -> None:
    """Download a data set and check it."""
    from seu_bench.data.dataset import default_data_root

    if data_root is None and context.parent is not None:
        data_root = context.parent.params["data_root"]  # seu-bench data --data-root FOLDER fetch NAME
    root, source = default_data_root(data_root), Registry().datasets.find(name).factory
    source.fetch(root)
    state = source.state(root)
    click.echo(f"{name}: {state.status}" + (f", {state.where}" if state.where else ""))
