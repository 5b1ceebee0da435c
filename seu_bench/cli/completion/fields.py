"""What completes the option of each field that requests, sweeps and tunings share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from seu_bench.cli.completion import values
from seu_bench.cli.completion.option_keys import option_keys

#: By the name of a field that takes one value.
_SINGLE: Final[Mapping[str, values.Completer]] = {
    "strategy": values.names_of("strategies"),
    "benchmark": values.names_of("benchmarks", path=True),
    "searcher": values.names_of("searchers"),
    "creator": values.names_of("creators"),
    "protocol": values.protocols,
    "device": values.devices,
    "log": values.names_of("loggers", listed=True),
    "executor": values.names_of("executors"),
    "options": option_keys,
    "results": values.folders,
    "data_root": values.folders,
    "tuned": values.tuned,
    "output": values.files,
}
#: By the name of a field that takes several, separated by commas.
_LISTED: Final[Mapping[str, values.Completer]] = {
    "strategy": values.names_of("strategies", listed=True),
    "benchmark": values.names_of("benchmarks", listed=True, path=True),
    "searcher": values.names_of("searchers", listed=True),
    "creator": values.names_of("creators", listed=True),
}


def completer_of(name: str, *, listed: bool) -> values.Completer | None:
    """Return what completes the option of a field; ``None``: what its type does.

    Args:
        name: of the field.
        listed: whether it takes several values.
    """
    found = _LISTED.get(name) if listed else None
    return found or _SINGLE.get(name)
