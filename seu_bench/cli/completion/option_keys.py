"""Keys and values of ``-o``: those of the strategies, searchers, creators and the benchmark that were typed before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from seu_bench.cli.completion.values import completer, given

if TYPE_CHECKING:
    from seu_bench.plugin.registry import Registry

#: Kinds of components, with their prefix.
_COMPONENTS: Final = ("searcher", "creator")


def _values(context: click.Context, beginning: str) -> Iterator[tuple[str, str]]:
    """``key=`` with its help, or, behind the sign, each choice that it has."""
    from seu_bench.plugin.registry import Registry

    registry = Registry()
    key, sign, _ = beginning.partition("=")
    for option in _options(context, registry):
        if not sign:
            yield f"{option['name']}=", option["help"]
        elif option["name"] == key:
            yield from ((f"{key}={choice}", "") for choice in _choices(option, registry))


def _choices(option: dict[str, Any], registry: Registry) -> Iterable[str]:
    if option["name"] == "backbone":
        return registry.backbones
    return ["true", "false"] if option["type"] == "bool" else map(str, option["choices"])


def _options(context: click.Context, registry: Registry) -> Iterator[dict[str, Any]]:
    """Options that a run, sweep or tuning takes, by the key that ``-o`` has for them."""
    strategies = [registry.strategies.find(name).factory for name in _names(context, "strategy")]
    for strategy in strategies:
        yield from _described(strategy.options, "")
    for kind in _COMPONENTS:
        own = [strategy.components[kind] for strategy in strategies if kind in strategy.components]
        for name in dict.fromkeys(_names(context, kind) or own):
            yield from _described(registry.kinds[f"{kind}s"].find(name).factory.options, f"{kind}.")
    if "executor" in context.params:
        executor = context.params["executor"] or "local"
        yield from _described(registry.executors.find(executor).factory.options, "executor.")
    for name in _names(context, "benchmark"):
        yield from _of_benchmark(registry, name)


def _of_benchmark(registry: Registry, name: str) -> Iterator[dict[str, Any]]:
    from seu_bench.engine.resolve import find_benchmark

    stream = find_benchmark(registry, name).load().stream
    for key, field in type(stream).model_fields.items():
        help_text = field.description or "of the benchmark's stream"
        yield {"name": f"benchmark.stream.{key}", "help": help_text, "type": "", "choices": ()}


def _described(options: Any, prefix: str) -> Iterator[dict[str, Any]]:
    from seu_bench.config.options import describe_options

    for option in describe_options(options):
        yield option | {"name": f"{prefix}{option['name']}"}


def _names(context: click.Context, parameter: str) -> list[str]:
    """What was typed for a parameter, one name or several."""
    value = given(context, parameter)
    if value is None:
        return []
    parts = value.split(",") if isinstance(value, str) else [part for each in value for part in str(each).split(",")]
    return [part.strip() for part in parts if part.strip()]


def _component_values(context: click.Context, beginning: str) -> Iterator[tuple[str, str]]:
    """The same for ``check-plugin NAME``, whose options have no prefix."""
    from seu_bench.plugin.registry import Registry

    registry = Registry()
    key, sign, _ = beginning.partition("=")
    # click leaves arguments unparsed where the last word is an option that waits for its value.
    name = str(context.params.get("name") or next(iter(context.args), ""))
    for kind in registry.kinds.values():
        options = getattr(kind[name].factory, "options", None) if name in kind else None
        for option in _described(options, "") if options is not None else ():
            if not sign:
                yield f"{option['name']}=", option["help"]
            elif option["name"] == key:
                yield from ((f"{key}={choice}", "") for choice in _choices(option, registry))


option_keys: Final = completer(_values)
component_option_keys: Final = completer(_component_values)
