"""``seu-bench list``: what is installed, and one name with its options: type, range, default and meaning."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from seu_bench.cli.completion import completer, names_of
from seu_bench.cli.options import format_option, print_as, request_command
from seu_bench.config.options import describe_options, did_you_mean
from seu_bench.config.options import format_option as format_value
from seu_bench.config.protocol import CreationSchedule, ModelSize, SearchSchedule
from seu_bench.config.run import Request
from seu_bench.errors import OptionError, UnknownNameError
from seu_bench.plugin.entries import Entry, Kind
from seu_bench.plugin.registry import Registry, use_plugins

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
#: Kinds whose options a protocol may set, and those options that each protocol has a value of.
_CONFIGURED: Final = ("strategy", "searcher", "creator")
_OF_PROTOCOLS: Final = {
    name for part in (SearchSchedule, CreationSchedule, ModelSize) for name in part.model_fields if name != "backbone"
}


@request_command("plugin")
@click.argument("kind", required=False, shell_complete=completer(lambda _: dict.fromkeys(Registry().kinds, "")))
@click.argument("name", required=False, shell_complete=names_of())
@click.option(
    "--benchmark",
    default=None,
    shell_complete=names_of("benchmarks"),
    help="With NAME: show the values that options have in runs of this benchmark.",
)
@click.option(
    "--protocol",
    default=None,
    help="With NAME: show the values that options have by this protocol [default: the benchmark's].",
)
@format_option
def list_(
    kind: str | None,
    name: str | None,
    benchmark: str | None,
    protocol: str | None,
    plugin: tuple[Path, ...],
    form: str,
) -> None:
    """List what is installed, and what is unavailable and why.

    KIND is strategies, backbones, searchers, creators, benchmarks, datasets, metrics, executors, loggers or commands.
    With NAME, one of them is shown with its options: type, range, default and meaning.
    """
    registry = use_plugins(plugin)
    kinds = registry.kinds
    if kind is not None and kind not in kinds:
        raise UnknownNameError(
            f"there is no kind {kind!r}{did_you_mean(kind, kinds)}", remedy=f"the kinds are: {', '.join(kinds)}"
        )
    if kind is not None and name is not None:
        document = _document(registry, kinds[kind], name, benchmark, protocol)
        print_as(form, document, _parts(document))
        return
    if benchmark is not None or protocol is not None:
        remedy = "name one, e.g. seu-bench list strategies seu --benchmark split_digits"
        raise OptionError("--benchmark and --protocol are for one name of a kind", remedy=remedy)
    shown = [kinds[kind]] if kind is not None else [table for table in kinds.values() if table]
    if form == "text":  # options would import what they are of
        print_as(form, None, [*_lines(shown, alone=kind is not None), *_fault_lines(registry)])
        return
    rows = [_row(table, name, alone=kind is not None) for table in shown for name in (*table, *table.unavailable)]
    rows += [
        {"name": plugin, "package": registry.package(plugin), "unavailable": fault.what, "kind": "plugin"}
        for plugin, fault in registry.faults.items()
    ]
    print_as(form, rows, ())


def _row(table: Kind[Any], name: str, *, alone: bool) -> dict[str, Any]:
    entry = table.unavailable.get(name) or table[name]
    row: dict[str, Any] = {"name": name, "package": entry.package}
    row |= {"summary": entry.summary} if name in table else {"unavailable": entry.factory.reason}
    row |= {} if alone else {"kind": table.singular}
    if alone and hasattr(entry.factory, "options"):
        row["options"] = describe_options(entry.factory.options)
    return row


def _fault_lines(registry: Registry) -> Iterator[str]:
    if registry.faults:
        yield click.style("plugins that cannot be used, or not all of them", bold=True)
    for name, fault in registry.faults.items():
        yield f"  {name}  {registry.package(name)}  not available: {fault.what}"
        yield f"    hint: {fault.remedy}, or leave it out: seu-bench -p no:{name} ..."


def _lines(tables: Iterable[Kind[Any]], *, alone: bool) -> Iterator[str]:
    for table in tables:
        if not alone:
            yield click.style(table.plural, bold=True)
        entries = [*table.values(), *table.unavailable.values()]
        name_width = max((len(entry.name) for entry in entries), default=0)
        package_width = max((len(entry.package) for entry in entries), default=0)
        for entry in entries:
            text = entry.summary if entry.name in table else f"not available: {entry.factory.reason}"
            yield f"  {entry.name:<{name_width}}  {entry.package:<{package_width}}  {text}"
        if alone:
            yield f"seu-bench list {table.plural} NAME shows one in full"


def _document(
    registry: Registry, kind: Kind[Any], name: str, benchmark: str | None, protocol: str | None
) -> dict[str, Any]:
    """Describe one name as plain values; with a benchmark or protocol, options as a run with them has them."""
    if (it := kind.unavailable.get(name)) is not None:
        what = {"unavailable": it.factory.reason, "to_do": it.factory.remedy}
        return {"name": name, "kind": kind.singular, "package": it.package, **what}
    entry = kind.find(name)
    document: dict[str, Any] = {"name": name, "kind": kind.singular, "package": entry.package, "summary": entry.summary}
    document |= _details(kind.singular, entry)
    options = describe_options(entry.factory.options) if hasattr(entry.factory, "options") else None
    if benchmark is not None or protocol is not None:
        sources = _sources(registry, kind.singular, name, {"benchmark": benchmark, "protocol": protocol})
        options = [option | sources[option["name"]] for option in options or ()]
    if options is not None:
        form = _GIVEN.get(kind.singular, "{key}")
        document["options"] = [it | {"given_as": form.format(name=name, key=it["name"])} for it in options]
    return document


def _details(kind: str, entry: Entry[Any]) -> dict[str, Any]:
    """What else is known of an entry, by its kind."""
    factory = entry.factory
    if kind == "strategy":
        scenarios = list(getattr(factory, "scenarios", ("task",)))
        found = {"components": dict(factory.components), "presets": list(factory.presets), "scenarios": scenarios}
        return found | {"reference": getattr(factory, "reference", None)}
    if kind == "metric":
        return {"unit": factory.unit, "higher_is_better": factory.higher_is_better, "column": factory.column}
    if kind != "benchmark":
        return {}
    spec = factory.load()
    protocols = [{"name": name, "summary": it.summary, "ranked": it.ranked} for name, it in spec.protocols.items()]
    more = {"version": spec.version, "default_protocol": spec.default_protocol, "protocols": protocols}
    return more | {"citation": spec.citation}


def _sources(registry: Registry, kind: str, name: str, asked: Mapping[str, str | None]) -> dict[str, dict[str, Any]]:
    """Value and source of each option of a strategy or component in a run that is asked for so."""
    from seu_bench.engine.option_sources import option_sources
    from seu_bench.engine.resolve import resolve

    strategies = {each: entry.factory.components for each, entry in registry.strategies.items()}
    strategy = name if kind == "strategy" else next((it for it, parts in strategies.items() if kind in parts), None)
    if kind not in _CONFIGURED or strategy is None:
        raise OptionError(
            f"a benchmark changes no option of a {kind}",
            remedy="leave out --benchmark and --protocol; strategies, searchers and creators have such options",
        )
    fields = {key: value for key, value in asked.items() if value is not None} | {kind: name, "strategy": strategy}
    prefix = "" if kind == "strategy" else f"{kind}."
    found = option_sources(resolve(registry, Request(**fields)))
    return {it.key.removeprefix(prefix): {"value": it.value, "source": it.source} for it in found}


def _parts(document: Mapping[str, Any]) -> Iterator[str | RenderableType]:
    """Yield what :func:`_document` says, for a reader."""
    from seu_bench.cli.tables import literal, new_table

    yield literal(f"{document['kind']} {document['name']}, of package {document['package']}")
    if "unavailable" in document:
        yield literal(
            f"not available: {document['unavailable']}" + f"\nhint: {document['to_do']}" * bool(document["to_do"])
        )
        return
    yield literal(document["summary"])
    for key, value in document.items():
        if key in ("name", "kind", "package", "summary", "options", "protocols") or value in (None, [], {}, ""):
            continue
        told = value
        if isinstance(value, Mapping):
            told = ", ".join(f"{part} {name} (--{part} takes another one)" for part, name in value.items())
        elif isinstance(value, list):
            told = ", ".join(value)
        yield literal(f"{key.replace('_', ' ')}: {told}")
    if "protocols" in document:
        marks = {True: "ranked", False: "never ranked"}
        rows = [(it["name"], marks[it["ranked"]], it["summary"]) for it in document["protocols"]]
        yield ""
        yield new_table("protocols (--protocol NAME)", ("=name", "=", ""), rows)
    if document.get("options"):
        yield ""
        yield _option_table(document)


def _option_table(document: Mapping[str, Any]) -> RenderableType:
    """A row for each option; a default of ``None`` is the protocol's value, where it has one."""
    from seu_bench.cli.tables import new_table

    options, rows = document["options"], []
    resolved, configured = "value" in options[0], document["kind"] in _CONFIGURED
    for option in options:
        value = option["value" if resolved else "default"]
        standing = "as the protocol says" if configured and option["name"] in _OF_PROTOCOLS else "not set"
        shown = format_value(value) if value is not None else "-" if resolved else standing
        kind = " | ".join(map(str, option["choices"])) or f"{option['type']} {option['range']}".strip()
        rows.append((option["name"], kind, shown, *([option["source"]] if resolved else []), option["help"]))
    headings = ("=option", "type", "value", "=from", "") if resolved else ("=option", "type", "default", "")
    return new_table(options[0]["given_as"].replace(options[0]["name"], "OPTION"), headings, rows)
