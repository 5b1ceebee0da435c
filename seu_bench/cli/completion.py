"""Shell completion by click: names of the registry and run ids, without torch."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import click
from click.shell_completion import CompletionItem

from seu_bench.utils.text import printable

#: What click calls as ``shell_complete``.
Completer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]


def completer(find: Callable[[click.Context], Iterable[str]]) -> Completer:
    """Return what completes the names that ``find`` returns for a context, also behind a comma, or else a file."""

    def complete(context: click.Context, _parameter: click.Parameter, word: str) -> list[CompletionItem[str]]:
        before, comma, beginning = word.rpartition(",")
        names: Iterable[str] = ()
        with contextlib.suppress(Exception):  # a plugin is broken: the command itself says so
            names = find(context)
        found = [name for name in names if name.startswith(beginning) and name == printable(name)]
        return [CompletionItem(f"{before}{comma}{name}") for name in found] or [CompletionItem(word, type="file")]

    return complete


def names_of(*kinds: str) -> Completer:
    """Return what completes the names of kinds, e.g. ``strategies``; without kinds, of the kind given as ``kind``."""

    def find(context: click.Context) -> list[str]:
        from seu_bench.plugin.registry import use_plugins

        known = use_plugins(context.params.get("plugin") or ()).kinds
        return [name for kind in kinds or (context.params["kind"],) for name in known[kind]]

    return completer(find)


@completer
def run_ids(context: click.Context) -> list[str]:
    """Complete run ids, the newest first."""
    with os.scandir(Path(context.params.get("results") or "results") / "runs") as entries:
        newest = sorted(entries, key=lambda entry: entry.stat().st_mtime, reverse=True)
    return [entry.name for entry in newest if not entry.name.startswith(".")]


#: Of options, by the name of their field.
COMPLETERS: Final[Mapping[str, Completer]] = {
    "strategy": names_of("strategies"),
    "benchmark": names_of("benchmarks"),
    "searcher": names_of("searchers"),
    "creator": names_of("creators"),
    "executor": names_of("executors"),
    "log": names_of("loggers"),
}
