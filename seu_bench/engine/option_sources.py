"""Options of a resolved run with their values and where each value comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from seu_bench.engine.resolve import ResolvedRun


class OptionSource(NamedTuple):
    """An option by the key that ``-o`` takes, its value, and what set it, e.g. ``given`` or ``preset NAME``.

    Where the value is ``None`` the strategy decides.
    """

    key: str
    value: Any
    source: str


def option_sources(run: ResolvedRun) -> list[OptionSource]:
    """List the options of a run's strategy, searcher and creator, in the order in which these declare them."""
    protocol, by_protocol = run.spec.protocol, f"protocol {run.spec.protocol_name}"
    backbone = {"backbone": protocol.model.backbone} if protocol.model.backbone is not None else {}
    preset = str(getattr(run.options, "preset", None))
    layers: list[tuple[str, Mapping[str, Any]]] = [
        (by_protocol, backbone | protocol.strategies.get(run.spec.strategy, {})),
        (f"preset {preset}", run.strategy.presets.get(preset, {})),
        ("given", run.request.options),
    ]
    if run.tuned is not None:
        layers.insert(1 if run.request.tuned is None else 2, (f"tuned {run.tuned.id}", run.tuned.options))
    found = _of("", run.options, layers, by_protocol, protocol.training, protocol.model)
    for part, of_protocol, schedule in (
        (run.searcher, protocol.searchers, protocol.search),
        (run.creator, protocol.creators, protocol.creation),
    ):
        if part is not None:
            own = {f"{part.kind}.{key}": value for key, value in of_protocol.get(part.name, {}).items()}
            found += _of(f"{part.kind}.", part.options, [(by_protocol, own), *layers[1:]], by_protocol, schedule)
    return found


def _of(
    prefix: str, options: Any, layers: list[tuple[str, Mapping[str, Any]]], by_protocol: str, *standing: Any
) -> list[OptionSource]:
    """The options of one part; what nobody set is as the protocol's schedule, or size of networks, says."""
    found = []
    for name in type(options).model_fields:
        value = getattr(options, name)
        source = next((source for source, values in reversed(layers) if f"{prefix}{name}" in values), "default")
        for part in standing:
            if value is None and hasattr(part, name):
                value, source = getattr(part, name), by_protocol
        found.append(OptionSource(f"{prefix}{name}", value, source))
    return found
