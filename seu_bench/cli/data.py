"""``seu-bench data``: data sets with status, size and location; ``data fetch`` downloads one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from seu_bench.cli.completion import values
from seu_bench.cli.options import data_option, format_option, print_as
from seu_bench.plugin.registry import Registry
from seu_bench.utils import progress as bars

if TYPE_CHECKING:
    from seu_bench.data.dataset import DatasetSource


@click.group(invoke_without_command=True)
@data_option
@format_option
@click.pass_context
def data(context: click.Context, data_root: Path | None, form: str) -> None:
    """List data sets with status, size and location, or download one."""
    if context.invoked_subcommand is not None:
        return
    known = {name: (entry.factory, entry.summary) for name, entry in Registry().datasets.items()}
    folders = {name: (source, source.summary) for name, source in _folders(data_root).items() if name not in known}
    rows: list[dict[str, Any]] = []
    for name, (source, summary) in bars.tracked([*known.items(), *folders.items()], "checking data sets"):
        row: dict[str, Any] = {"name": name, "where": None, "bytes": None, "summary": summary}
        try:
            state = source.state(data_root)
            where = str(state.where) if state.where is not None else None
            row |= {"status": state.status, "where": where, "bytes": state.bytes, "detail": state.detail}
        except Exception as error:  # of a stranger's source: the others are listed all the same
            row |= {"status": "unusable", "detail": f"{type(error).__name__}: {error}"}
        rows.append(row)
    print_as(form, rows, _lines(rows))


def _folders(data_root: Path | None) -> dict[str, DatasetSource]:
    """Well-known sets that are folders below the data root, which benchmarks define for themselves."""
    from seu_bench.config.benchmark import FolderDefinition
    from seu_bench.data.folders import LAYOUTS, KnownFolderSource

    tables = {name: {"kind": "folder", "layout": name, "size": 64} for name in LAYOUTS}
    return {
        name: KnownFolderSource(FolderDefinition.model_validate(it), name, data_root) for name, it in tables.items()
    }


def _lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        size = f"{row['bytes'] / 1e6:.1f} MB" if row["bytes"] else "-"
        where = row["where"] or "comes with a dependency"
        yield f"{row['name']:<16} {row['status']:<10} {size:>10}  {where}"
        if row["detail"]:
            yield f"{'':<16} {row['detail']}"


@data.command()
@click.argument("name", shell_complete=values.names_of("datasets"))
@data_option
@click.pass_context
def fetch(context: click.Context, name: str, data_root: Path | None) -> None:
    """Download a data set and check it."""
    from seu_bench.data.dataset import default_data_root

    if data_root is None and context.parent is not None:
        data_root = context.parent.params["data_root"]  # seu-bench data --data-root FOLDER fetch NAME
    root, datasets = default_data_root(data_root), Registry().datasets
    folders = {} if name in datasets else _folders(root)
    source = folders[name] if name in folders else datasets.find(name).factory
    source.fetch(root)
    state = source.state(root)
    click.echo(f"{name}: {state.status}" + (f", {state.where}" if state.where else ""))
