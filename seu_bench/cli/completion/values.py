"""What may stand in an option or argument of the command line, for its ``shell_complete``.

Each completer is called with click's context, in which the words before the cursor are parsed, and with the beginning
of the word that is typed. Plugins are loaded, which import no torch. One that is broken completes nothing: the command
itself says what is wrong with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
from click.shell_completion import CompletionItem

from seu_bench.config.run import Request
from seu_bench.utils.text import printable

#: Values with what each is, for shells that show it.
Values: TypeAlias = Iterable[tuple[str, str]]
#: What click calls.
Completer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]


def completer(values: Callable[[click.Context, str], Values], *, listed: bool = False, path: bool = False) -> Completer:
    """Return a completer.

    Args:
        values: gives all values for a context and the beginning of the word.
        listed: whether several may stand there, separated by commas.
        path: whether a file may stand there as well, which the shell completes where no value fits.
    """

    def complete(context: click.Context, _parameter: click.Parameter, word: str) -> list[CompletionItem[str]]:
        before, comma, beginning = word.rpartition(",") if listed else ("", "", word)
        taken = set(before.split(","))
        offered = {
            value: text
            for value, text in values(context, beginning)
            if value.startswith(beginning) and value not in taken and value == printable(value)
        }
        found = [
            CompletionItem(f"{before}{comma}{value}", help=printable(text) or None) for value, text in offered.items()
        ]
        return found or ([CompletionItem(word, type="file")] if path else [])

    return complete


def names_of(kind: str, *, listed: bool = False, path: bool = False) -> Completer:
    """Return a completer of the names of a kind, e.g. ``strategies``, each with its summary."""

    def values(context: click.Context, _beginning: str) -> Iterator[tuple[str, str]]:
        from seu_bench.plugin.registry import use_plugins

        for entry in use_plugins(given(context, "plugin") or ()).kinds[kind].values():
            yield entry.name, entry.summary

    return completer(values, listed=listed, path=path)


def given(context: click.Context, name: str) -> Any:
    """The value of a parameter as far as it was typed; a request's default where it was not."""
    value = context.params.get(name)
    field = Request.model_fields.get(name)
    return field.default if value is None and field is not None else value


def _protocols(context: click.Context, _beginning: str) -> Iterator[tuple[str, str]]:
    from seu_bench.engine.resolve import find_benchmark
    from seu_bench.plugin.registry import Registry

    asked, registry = given(context, "benchmark"), Registry()
    names = asked.split(",") if isinstance(asked, str) else list(asked or registry.benchmarks)
    for name in names:
        for protocol, spec in find_benchmark(registry, name).load().protocols.items():
            yield protocol, spec.summary


def _devices(_context: click.Context, _beginning: str) -> Iterator[tuple[str, str]]:
    """Devices that the system shows; torch, which knows, takes seconds to import."""
    yield "auto", "an accelerator if there is one"
    yield "cpu", ""
    cards = sorted(int(path.name[6:]) for path in Path("/dev").glob("nvidia[0-9]*") if path.name[6:].isdecimal())
    if cards:
        yield "cuda", "the first GPU"
        yield from ((f"cuda:{card}", "") for card in cards)
    if sys.platform == "darwin":
        yield "mps", ""


def _runs(context: click.Context, beginning: str) -> Iterator[tuple[str, str]]:
    from seu_bench.cli.completion.run_names import run_names

    results = given(context, "results")
    taken = given(context, "run_names") or ()
    for name in run_names(Path(results), beginning):
        if name not in taken:
            yield name, ""


def _kinds(_context: click.Context, _beginning: str) -> Iterator[tuple[str, str]]:
    from seu_bench.plugin.registry import Registry

    for name in Registry().kinds:
        yield name, ""


def _names_of_kind(context: click.Context, _beginning: str) -> Iterator[tuple[str, str]]:
    from seu_bench.plugin.registry import Registry

    kind = Registry().kinds[str(context.params.get("kind"))]
    for name in (*kind, *kind.unavailable):
        yield name, kind[name].summary if name in kind else "not available"


def _checked(_context: click.Context, _beginning: str) -> Iterator[tuple[str, str]]:
    from seu_bench.plugin.registry import Registry

    for kind in Registry().kinds.values():
        for entry in kind.values():
            yield entry.name, f"{kind.singular}: {entry.summary}"


def _metrics(_context: click.Context, _beginning: str) -> Iterator[tuple[str, str]]:
    from seu_bench.plugin.registry import Registry

    for name, metric in Registry().known_metrics.items():
        yield name, metric.summary


def _columns(_context: click.Context, _beginning: str) -> Iterator[tuple[str, str]]:
    from seu_bench.plugin.registry import Registry

    yield "all", "every column"
    for name, metric in Registry().known_metrics.items():
        if metric.column:
            yield name, metric.summary


def _budgets(_context: click.Context, _beginning: str) -> Iterator[tuple[str, str]]:
    from seu_bench.plugin.registry import Registry
    from seu_bench.results.leaderboard.views import SHORT_NAMES

    for name, metric in Registry().known_metrics.items():
        if metric.higher_is_better is False:
            yield f"{name}=", metric.summary
    for short, name in SHORT_NAMES.items():
        yield f"{short}=", name


def _tuned(context: click.Context, _beginning: str) -> Iterator[tuple[str, str]]:
    for path in sorted((Path(given(context, "results")) / "tuned").glob("*.toml")):
        yield path.stem, ""


def folders(_context: click.Context, _parameter: click.Parameter, word: str) -> list[CompletionItem[str]]:
    """Let the shell complete a folder."""
    return [CompletionItem(word, type="dir")]


def files(_context: click.Context, _parameter: click.Parameter, word: str) -> list[CompletionItem[str]]:
    """Let the shell complete a file."""
    return [CompletionItem(word, type="file")]


protocols: Final = completer(_protocols)
devices: Final = completer(_devices)
runs: Final = completer(_runs, path=True)
kinds: Final = completer(_kinds)
names_of_kind: Final = completer(_names_of_kind)
checked_names: Final = completer(_checked)
metrics: Final = completer(_metrics)
metric_lists: Final = completer(_metrics, listed=True)
columns: Final = completer(_columns, listed=True)
budgets: Final = completer(_budgets)
tuned: Final = completer(_tuned, path=True)
