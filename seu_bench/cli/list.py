"""``seu-bench list``: what is installed."""

from __future__ import annotations

import json
from typing import Any

import click

from seu_bench.cli.options import format_option, make_registry


@click.command(name="list")
@click.argument("kind", required=False)
@format_option
def list_(kind: str | None, form: str) -> None:
    """List what is installed, and what is unavailable and why.

    KIND is strategies, backbones, searchers, creators, benchmarks, datasets, metrics, executors, loggers or commands;
    with it, the options of each are shown too. `...` marks an option without a default of its own: mostly, the
    benchmark's protocol has it.
    """
    from seu_bench.config.options import option_lines

    kinds = make_registry().kinds
    if kind is not None and kind not in kinds:
        from seu_bench.config.options import did_you_mean
        from seu_bench.errors import UnknownNameError

        raise UnknownNameError(
            f"there is no kind {kind!r}{did_you_mean(kind, kinds)}", remedy=f"the kinds are: {', '.join(kinds)}"
        )
    shown = [kinds[kind]] if kind is not None else [table for table in kinds.values() if table]
    if form == "json":
        from seu_bench.config.options import describe_options

        entries = []
        for table in shown:
            for entry in table.values():
                row: dict[str, Any] = {"name": entry.name, "package": entry.package, "summary": entry.summary}
                if kind is None:
                    row["kind"] = table.singular
                if hasattr(entry.factory, "options"):
                    row["options"] = describe_options(entry.factory.options)
                entries.append(row)
            for missing in table.unavailable.values():
                row = {"name": missing.name, "package": missing.package, "unavailable": missing.factory.reason}
                entries.append(row if kind is not None else {**row, "kind": table.singular})
        click.echo(json.dumps(entries, indent=1))
        return
    for table in shown:
        if kind is None:
            click.secho(table.plural, bold=True)
        lines = [(entry.name, entry.package, entry.summary) for entry in table.values()]
        lines += [
            (entry.name, entry.package, f"not available: {entry.factory.reason}")
            for entry in table.unavailable.values()
        ]
        name_width = max((len(name) for name, _, _ in lines), default=0)
        package_width = max((len(package) for _, package, _ in lines), default=0)
        for name, package, text in lines:
            click.echo(f"  {name:<{name_width}}  {package:<{package_width}}  {text}")
            if kind is not None and name in table and hasattr(table[name].factory, "options"):
                for line in option_lines(table[name].factory.options):
                    click.echo(f"      {line}")
