"""Shell completion by click: names of the registry and run ids, without torch; and the command ``completion``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from seu_bench.utils.text import printable

#: What click calls as ``shell_complete``.
Completer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]


def completer(find: Callable[[click.Context], Mapping[str, str]]) -> Completer:
    """Return what completes names, also behind a comma, or else a file.

    Args:
        find: returns the names, each with its help, for the words before the cursor. Where it fails, since a plugin is
            broken, nothing is offered: the command itself says why.
    """

    def complete(context: click.Context, _parameter: click.Parameter, word: str) -> list[CompletionItem[str]]:
        before, comma, beginning = word.rpartition(",")
        names: Mapping[str, str] = {}
        with contextlib.suppress(Exception):
            names = find(context)
        found = [name for name in names if name.startswith(beginning) and name == printable(name)]
        items = [CompletionItem(f"{before}{comma}{name}", help=printable(names[name]) or None) for name in found]
        return items or [CompletionItem(word, type="file")]

    return complete


def names_of(*kinds: str) -> Completer:
    """Return what completes the names of kinds, e.g. ``strategies``; without kinds, of the kind given as ``kind``."""

    def find(context: click.Context) -> dict[str, str]:
        from seu_bench.plugin.registry import use_plugins

        known = use_plugins(context.params.get("plugin") or ()).kinds
        return {name: it.summary for kind in kinds or (context.params["kind"],) for name, it in known[kind].items()}

    return completer(find)


def _run_ids(context: click.Context) -> dict[str, str]:
    folder = Path(context.params.get("results") or "results") / "runs"
    with os.scandir(folder) as entries:
        newest = sorted(entries, key=lambda entry: entry.stat().st_mtime, reverse=True)
    return {entry.name: "" for entry in newest if not entry.name.startswith(".")}


run_ids: Final = completer(_run_ids)
SHELLS: Final[Mapping[str, type[ShellComplete]]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
#: Of options, by the name of their field.
COMPLETERS: Final[Mapping[str, Completer]] = {
    "strategy": names_of("strategies"),
    "benchmark": names_of("benchmarks"),
    "searcher": names_of("searchers"),
    "creator": names_of("creators"),
    "executor": names_of("executors"),
    "log": names_of("loggers"),
}


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, names and run ids in a shell.

    \b
    bash, in ~/.bashrc:                eval "$(seu-bench completion bash)"
    zsh, in ~/.zshrc, after compinit:  eval "$(seu-bench completion zsh)"
    fish:  seu-bench completion fish > ~/.config/fish/completions/seu-bench.fish
    """
    click.echo(SHELLS[shell](context.find_root().command, {}, "seu-bench", "_SEU_BENCH_COMPLETE").source())
