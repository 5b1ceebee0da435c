"""One name that is installed, in full: what it is, and its options with type, range, default and meaning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from seu_bench.config.options import describe_options, format_option
from seu_bench.config.protocol import CreationSchedule, ModelSize, SearchSchedule
from seu_bench.config.run import Request
from seu_bench.errors import OptionError
from seu_bench.plugin.registry import Registry

if TYPE_CHECKING:
    from rich.console import RenderableType

    from seu_bench.engine.option_sources import OptionSource
    from seu_bench.plugin.manager import Entry, Kind

#: How an option of each kind is given.
_GIVEN: Final[Mapping[str, str]] = {
    "strategy": "-o {key}=VALUE",
    "searcher": "-o searcher.{key}=VALUE",
    "creator": "-o creator.{key}=VALUE",
    "executor": "-o executor.{key}=VALUE",
    "logger": "--log-option {name}.{key}=VALUE",
}

#: Options whose value a protocol has.
_OF_PROTOCOLS: Final = {
    name for part in (SearchSchedule, CreationSchedule, ModelSize) for name in part.model_fields if name != "backbone"
}


def entry_document(
    registry: Registry, kind: Kind[Any], name: str, benchmark: str | None = None, protocol: str | None = None
) -> dict[str, Any]:
    """Describe one name as plain values.

    Args:
        registry: what is installed.
        kind: of the name, e.g. ``registry.strategies``.
        name: one that is registered.
        benchmark, protocol: where given, options have the ``value`` that a run with them has, and its ``source``.

    Raises:
        UnknownNameError: there is no such name; the message lists those that are.
        OptionError: it has no options that a benchmark could change.
    """
    unavailable = kind.unavailable.get(name)
    if unavailable is not None:
        what = {"unavailable": unavailable.factory.reason, "to_do": unavailable.factory.remedy}
        return {"name": name, "kind": kind.singular, "package": unavailable.package, **what}
    entry = kind.find(name)
    document: dict[str, Any] = {"name": name, "kind": kind.singular, "package": entry.package, "summary": entry.summary}
    document |= _more(kind.singular, entry)
    options = describe_options(entry.factory.options) if hasattr(entry.factory, "options") else None
    if benchmark is not None or protocol is not None:
        sources = _sources(registry, kind.singular, name, benchmark, protocol)
        options = [option | sources[option["name"]] for option in options or ()]
    if options is not None:
        form = _GIVEN.get(kind.singular, "{key}")
        given = [{"given_as": form.format(name=name, key=option["name"])} for option in options]
        document["options"] = [option | how for option, how in zip(options, given, strict=True)]
    return document


def _more(kind: str, entry: Entry[Any]) -> dict[str, Any]:
    """What else is known of an entry, by its kind."""
    factory = entry.factory
    if kind == "strategy":
        scenarios = list(getattr(factory, "scenarios", ("task",)))
        found = {"components": dict(factory.components), "presets": list(factory.presets), "scenarios": scenarios}
        return found | {"reference": getattr(factory, "reference", None)}
    if kind == "metric":
        return {"unit": factory.unit, "higher_is_better": factory.higher_is_better, "column": factory.column}
    if kind == "benchmark":
        spec = factory.load()
        protocols = [
            {"name": name, "summary": protocol.summary, "ranked": protocol.ranked}
            for name, protocol in spec.protocols.items()
        ]
        more = {"version": spec.version, "default_protocol": spec.default_protocol, "protocols": protocols}
        return more | {"citation": spec.citation}
    return {}


def _sources(
    registry: Registry, kind: str, name: str, benchmark: str | None, protocol: str | None
) -> dict[str, dict[str, Any]]:
    """Value and source of each option where a run is of this benchmark and protocol."""
    from seu_bench.engine.option_sources import option_sources
    from seu_bench.engine.resolve import resolve

    strategies = {each: entry.factory.components for each, entry in registry.strategies.items()}
    strategy = name if kind == "strategy" else next((it for it, parts in strategies.items() if kind in parts), None)
    if kind not in ("strategy", "searcher", "creator") or strategy is None:
        raise OptionError(
            f"a benchmark changes no option of a {kind}",
            remedy="leave out --benchmark and --protocol; strategies, searchers and creators have such options",
        )
    asked = {"benchmark": benchmark, "protocol": protocol, **({} if kind == "strategy" else {kind: name})}
    run = resolve(registry, Request(strategy=strategy, **{key: it for key, it in asked.items() if it is not None}))
    prefix = "" if kind == "strategy" else f"{kind}."
    found: list[OptionSource] = [it for it in option_sources(run) if it.key.startswith(prefix)]
    return {it.key.removeprefix(prefix): {"value": it.value, "source": it.source} for it in found}


def entry_parts(document: Mapping[str, Any]) -> Iterator[str | RenderableType]:
    """Yield what :func:`entry_document` says, for a reader."""
    from seu_bench.cli.tables import literal

    yield literal(f"{document['kind']} {document['name']}, of package {document['package']}")
    if "unavailable" in document:
        yield literal(f"not available: {document['unavailable']}")
        yield from [literal(f"hint: {document['to_do']}")] if document["to_do"] else []
        return
    yield literal(document["summary"])
    for part, name in document.get("components", {}).items():
        yield literal(f"{part}: {name} (--{part} takes another one)")
    if document.get("presets"):
        yield literal(f"presets: {', '.join(document['presets'])} (-o preset=NAME)")
    if document.get("scenarios"):
        yield literal(f"scenarios: {', '.join(document['scenarios'])}{_inferring(document)}")
    if document.get("reference"):
        yield literal(f"a reference, never ranked: {document['reference']}")
    if document["kind"] == "metric":
        better = {True: "higher is better", False: "lower is better", None: "neither is better"}
        yield literal(", ".join(filter(None, (document["unit"], better[document["higher_is_better"]]))))
    if "protocols" in document:
        yield from _protocols(document)
    if document.get("options"):
        yield ""
        yield _options(document["options"], by_protocol=document["kind"] in ("strategy", "searcher", "creator"))
    elif "options" in document:
        yield "no options"


def _inferring(document: Mapping[str, Any]) -> str:
    """How a strategy that needs the task label does without, if it can."""
    can = any(option["name"] == "infer_task" for option in document.get("options") or ())
    return "; with -o infer_task=entropy (or energy) all" if can else ""


def _protocols(document: Mapping[str, Any]) -> Iterator[str | RenderableType]:
    from seu_bench.cli.tables import literal, new_table

    yield literal(f"version {document['version']}")
    if document["citation"]:
        yield literal(document["citation"])
    rows = [
        (it["name"], "default" if it["name"] == document["default_protocol"] else "", _ranked(it), it["summary"])
        for it in document["protocols"]
    ]
    yield ""
    yield new_table("protocols (--protocol NAME)", ("=name", "=", "=", ""), rows)


def _ranked(protocol: Mapping[str, Any]) -> str:
    return "ranked" if protocol["ranked"] else "never ranked"


def _options(options: Sequence[Mapping[str, Any]], *, by_protocol: bool) -> RenderableType:
    """A row for each option; ``by_protocol``: a default of ``None`` is the protocol's value, where it has one."""
    from seu_bench.cli.tables import new_table

    resolved = "value" in options[0]
    rows = []
    for option in options:
        value = option["value" if resolved else "default"]
        standing = "as the protocol says" if by_protocol and option["name"] in _OF_PROTOCOLS else "not set"
        shown = format_option(value) if value is not None else "-" if resolved else standing
        kind = " | ".join(map(str, option["choices"])) or f"{option['type']} {option['range']}".strip()
        rows.append((option["name"], kind, shown, *([option["source"]] if resolved else []), option["help"]))
    headings = ("=option", "type", "value", "=from", "") if resolved else ("=option", "type", "default", "")
    return new_table(options[0]["given_as"].replace(options[0]["name"], "OPTION"), headings, rows)
