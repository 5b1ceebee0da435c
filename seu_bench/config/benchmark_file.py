"""Benchmark files: TOML to :class:`~seu_bench.config.benchmark.BenchmarkSpec`, every fault of a file at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.options import did_you_mean
from seu_bench.config.toml_file import read_toml, validated

#: The page that describes such files.
_GUIDE: Final = "docs/reference/benchmarks.md"
#: Prefix of a benchmark's keys among the options of a run.
_PREFIX: Final = "benchmark."
#: Keys of which a stream has one.
_ALTERNATIVES: Final = {"classes_per_task", "then", "groups"}
#: The protocols that every benchmark has; a file's own tables are laid over these.
STANDARD_PROTOCOLS: dict[str, dict[str, Any]] = {
    "paper": {"summary": "the published schedule"},
    # No dropout: it is meant for 50 epochs, and in ten it costs AlexNet more than it saves.
    "half_day": {
        "summary": "half a day on a 2-core computer, for three seeds of the paper's strategies on three benchmarks",
        "images": {"train": 2000, "valid": 400, "test": 1000},
        "training": {"epochs": 10, "batch_size": 32},
        "search": {"epochs": 12, "batch_size": 64, "cells": 3, "channels": 8},
        "creation": {"epochs": 12, "batch_size": 32},
        "model": {"cells": 4, "channels": 12, "width": 0.5, "dropout": 0.0},
    },
    # So many images that networks of all families are better than linear classifiers on CIFAR-100.
    "quick": {
        "summary": "minutes on a 2-core laptop",
        "images": {"train": 1000, "valid": 200, "test": 500},
        "training": {"epochs": 8, "batch_size": 32},
        "search": {"epochs": 6, "batch_size": 32, "cells": 3, "channels": 4},
        "creation": {"epochs": 6, "batch_size": 32},
        "model": {"cells": 3, "channels": 8, "width": 0.25, "dropout": 0.0},
    },
    "smoke": {
        "summary": "seconds; for tests, never ranked",
        "ranked": False,
        "images": {"train": 64, "valid": 32, "test": 64},
        "training": {"epochs": 2, "batch_size": 16},
        "search": {"epochs": 2, "batch_size": 32, "cells": 3, "channels": 2},
        "creation": {"epochs": 2, "batch_size": 16},
        "model": {"cells": 3, "channels": 4, "width": 0.125},
    },
}


@dataclass(frozen=True)
class BenchmarkFile:
    """A benchmark in a TOML file.

    Example:
        ``register("mine", BenchmarkFile(Path(__file__).parent / "mine.toml"))``
    """

    path: Path

    @property
    def summary(self) -> str:
        """The file's own one line."""
        return str(self._document().get("summary", ""))

    def load(self, overrides: Mapping[str, Any] | None = None) -> BenchmarkSpec:
        """Read, complete and validate the file; paths in it start from its folder.

        Args:
            overrides: dotted keys and their values, e.g. ``{"stream.validation": 0.15}``.

        Raises:
            SpecError: the file is missing, is not TOML, or has faults; all faults are listed.
        """
        document, given = self._document(), overrides or {}
        faults: list[str] = []
        asked = {key.removeprefix("stream.") for key in given}
        if asked & _ALTERNATIVES and isinstance(stream := document.get("stream"), dict):
            for other in (_ALTERNATIVES | ({"first"} if "groups" in asked else set())) - asked:
                stream.pop(other, None)  # what is asked for takes the place of what is there
        for key, value in given.items():
            _replace(document, key, value, faults)
        own = document.get("protocols", {})
        if isinstance(own, dict):
            document["protocols"] = merged(STANDARD_PROTOCOLS, own)
        options = {key: f"option {_PREFIX}{key}" for key in given}
        return validated(BenchmarkSpec, document, "the benchmark file", _GUIDE, self.path, faults, options)

    def _document(self) -> dict[str, Any]:
        remedy = "check the path; benchmarks known by name: seu-bench list benchmarks"
        return read_toml(self.path, "benchmark", _GUIDE, remedy)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``over`` laid over it, tables merged key by key; neither is changed."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return result


def _replace(document: dict[str, Any], key: str, value: Any, faults: list[str]) -> None:
    """Set a dotted ``key`` whose first part the file or the schema knows; pydantic judges the rest."""
    *path, last = key.split(".")
    top = path[0] if path else last
    if top not in BenchmarkSpec.model_fields:
        faults.append(f"{key}: no such key{did_you_mean(top, BenchmarkSpec.model_fields)}")
        return
    table = document
    for part in path:
        below = table.setdefault(part, {})
        if not isinstance(below, dict):
            faults.append(f"{key}: {part!r} is not a table")
            return
        table = below
    table[last] = value


def names_a_file(benchmark: str) -> bool:
    """Whether a benchmark was given by the path of its file."""
    return benchmark.endswith(".toml") or "/" in benchmark or "\\" in benchmark
