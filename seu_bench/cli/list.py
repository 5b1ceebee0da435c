"""``seu-bench list``: what is installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from seu_bench.cli.completion import values
from seu_bench.cli.options import format_option, print_as, request_command
from seu_bench.cli.output.entry import entry_document, entry_parts
from seu_bench.config.options import describe_options, did_you_mean
from seu_bench.errors import OptionError, UnknownNameError
from seu_bench.plugin.manager import Kind
from seu_bench.plugin.registry import Registry, use_plugins


@request_command("plugin")
@click.argument("kind", required=False, shell_complete=values.kinds)
@click.argument("name", required=False, shell_complete=values.names_of_kind)
@click.option(
    "--benchmark",
    default=None,
    shell_complete=values.names_of("benchmarks", path=True),
    help="With NAME: show the values that options have in runs of this benchmark.",
)
@click.option(
    "--protocol",
    default=None,
    shell_complete=values.protocols,
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
        document = entry_document(registry, kinds[kind], name, benchmark, protocol)
        print_as(form, document, entry_parts(document))
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
        if alone and any(
            hasattr(type(it.factory), "options") or hasattr(it.factory, "options") for it in table.values()
        ):
            yield f"seu-bench list {table.plural} NAME shows one with its options"
