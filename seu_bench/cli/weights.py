"""``seu-bench weights``: pretrained networks by name, what is known of them, and how their weights come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from seu_bench.cli.completion import names_of
from seu_bench.cli.options import format_option, print_as
from seu_bench.errors import RequestError
from seu_bench.plugin.registry import Registry, find_named
from seu_bench.utils import progress as bars

_COLUMNS = ("name", "network", "pretrained_on", "size", "licence", "state")


@click.group(invoke_without_command=True)
@click.option(
    "--find", "text", metavar="TEXT", help="List all that have this in their names, also those to be fetched."
)
@format_option
@click.pass_context
def weights(context: click.Context, text: str | None, form: str) -> None:
    """List pretrained weights and how they come, show one, or fetch one.

    Without --find, of networks that stand for many (timm:NAME) those whose weights are on this machine.
    """
    if context.invoked_subcommand is not None:
        return
    registry, rows = Registry(), list[dict[str, Any]]()
    for name, factory in bars.track(list(_encoders(registry, text)), "checking weights"):
        try:
            rows.append({"name": name, **factory.info().document(), "state": "ready"})
        except Exception as error:  # of a stranger's: the others are listed all the same
            state = getattr(error, "remedy", None) or f"unusable: {type(error).__name__}: {error}"
            state = "fetch" if state.startswith("seu-bench weights fetch") else state
            rows.append({"name": name, **_about(factory), "state": state})
    for name, entry in registry.encoders.unavailable.items():
        if text is None or text in name:
            rows.append({"name": name, "state": entry.factory.remedy or entry.factory.reason})
    print_as(form, rows, _parts(rows))


def _encoders(registry: Registry, text: str | None) -> Iterator[tuple[str, Any]]:
    for name, entry in registry.encoders.items():
        factory: Any = entry.factory
        if hasattr(factory, "names"):
            yield from ((f"{name}:{it}", factory.select(it)) for it in factory.names(text))
        elif not hasattr(factory, "select") and (text is None or text in name):
            yield name, factory


def _about(factory: Any) -> dict[str, Any]:
    """What is known without the weights."""
    return dict(factory.about()) if hasattr(factory, "about") else {}


def _parts(rows: list[dict[str, Any]]) -> Iterator[Any]:
    from seu_bench.cli.tables import new_table

    titles = ("=name", "network", "trained on", "pixels", "licence", "state")
    yield new_table("pretrained weights", titles, [[row.get(key, "") for key in _COLUMNS] for row in rows])
    yield "others: seu-bench weights --find TEXT, such as resnet18, and seu-bench weights fetch NAME"


@weights.command()
@click.argument("name", shell_complete=names_of("encoders"))
@format_option
def show(name: str, form: str) -> None:
    """Show all that is known of pretrained weights; of those that are not on this machine, how they come."""
    from seu_bench.models.sizes import count_parameters, state_bytes

    factory = find_named(Registry().encoders, name, "encoder")
    document = {"name": name, **_about(factory), "tensors": getattr(factory, "tensors", "by name")}
    try:
        encoder = factory.load()
        sizes = {"params": count_parameters(encoder), "bytes": state_bytes(encoder)}
        document |= {**encoder.info.document(), **sizes, "state": "ready"}
    except RequestError as error:
        if not _about(factory):
            raise
        document["state"] = f"{error.what}; {error.remedy}"
    print_as(form, document, _told(document))


def _told(document: Mapping[str, Any]) -> Iterator[str]:
    for key, value in document.items():
        told = ", ".join(map(str, value)) if isinstance(value, tuple) else value
        yield f"{key.replace('_', ' ')}: {told}"


@weights.command()
@click.argument("name", shell_complete=names_of("encoders"))
def fetch(name: str) -> None:
    """Bring pretrained weights to this machine and check them."""
    factory = find_named(Registry().encoders, name, "encoder")
    if hasattr(factory, "fetch"):
        factory.fetch()
    info = factory.info()
    click.echo(f"{info.name}: ready, {info.source}, sha256:{info.sha256}, licence {info.licence}")
