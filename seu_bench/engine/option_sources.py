"""Options of a resolved run with their values and where each value comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from seu_bench.config.options import Options, split_by_prefix
from seu_bench.config.protocol import Schedule
from seu_bench.engine.resolve import ResolvedRun

#: Source of an option that nobody set.
DEFAULT = "default"


class OptionSource(NamedTuple):
    """An option as it enters a run.

    Attributes:
        key: as ``-o`` takes it, e.g. ``searcher.alpha``.
        value: ``None``: the strategy decides, mostly by what the benchmark's protocol says.
        source: ``default``, ``protocol NAME``, ``preset NAME``, ``tuned ID``, or ``given``.
    """

    key: str
    value: Any
    source: str


def option_sources(run: ResolvedRun) -> list[OptionSource]:
    """List the options of a run's strategy, searcher and creator.

    Returns:
        Those of the strategy first, each group in the order in which it declares them.

    Example:
        ``[it for it in option_sources(resolve(registry, request)) if it.source == "given"]``
    """
    protocol = run.spec.protocol
    parts: list[tuple[str, Options, Mapping[str, Any], Schedule]] = [
        ("", run.options, _backbone(run) | protocol.strategies.get(run.spec.strategy, {}), protocol.training)
    ]
    if run.searcher is not None:
        parts.append(("searcher", run.searcher.options, protocol.searchers.get(run.searcher.name, {}), protocol.search))
    if run.creator is not None:
        parts.append(("creator", run.creator.options, protocol.creators.get(run.creator.name, {}), protocol.creation))
    return [found for prefix, options, layer, schedule in parts for found in _of(run, prefix, options, layer, schedule)]


def _of(
    run: ResolvedRun, prefix: str, options: Options, layer: Mapping[str, Any], schedule: Schedule
) -> Iterator[OptionSource]:
    """The options of one part; ``layer`` is what the protocol sets, ``schedule`` what stands for what nobody set."""
    by_protocol = f"protocol {run.spec.protocol_name}"
    layers = [(name, options.renamed(values)) for name, values in ((by_protocol, layer), *_later_layers(run, prefix))]
    for name in type(options).model_fields:
        value = getattr(options, name)
        source = next((source for source, values in reversed(layers) if name in values), DEFAULT)
        # What is None is the schedule's, or, of a strategy, the size of its network.
        for standing in (schedule, *([] if prefix else [run.spec.protocol.model])):
            if value is None and hasattr(standing, name):
                value, source = getattr(standing, name), by_protocol
        yield OptionSource(f"{prefix}.{name}" if prefix else name, value, source)


def _later_layers(run: ResolvedRun, prefix: str) -> list[tuple[str, Mapping[str, Any]]]:
    """What is laid over a protocol's own values, in the order in which :func:`~seu_bench.engine.resolve` does."""
    chosen = getattr(run.options, "preset", None)
    preset = split_by_prefix(run.strategy.presets.get(str(chosen), {}))[prefix]
    layers: list[tuple[str, Mapping[str, Any]]] = [(f"preset {chosen}", preset)]
    if run.tuned is not None:
        tuned = (f"tuned {run.tuned.id}", split_by_prefix(run.tuned.options)[prefix])
        layers.insert(0 if run.request.tuned is None else 1, tuned)
    return [*layers, ("given", split_by_prefix(run.request.options)[prefix])]


def _backbone(run: ResolvedRun) -> dict[str, Any]:
    backbone = run.spec.protocol.model.backbone
    return {"backbone": backbone} if backbone is not None else {}
