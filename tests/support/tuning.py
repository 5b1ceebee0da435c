"""A data set whose test images must not be read, with a benchmark of it; tunings that are over in no time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from support.commands import TINY
from support.sweeping import in_turn
from support.tiny import registry

from seu_bench.config.tuned import Trial, TunedFile, TuningCost

#: Data sets ``sealed`` and ``open`` of the same images; those for testing of the first raise when they are read.
SEALED = """
from dataclasses import replace

from seu_bench import hookimpl
from seu_bench.testing.streams import TinyBenchmark, TinyData, benchmark, class_split

PROTOCOL = {
    "training": {"epochs": 1, "batch_size": 8, "learning_rate": 0.05},
    "model": {"cells": 3, "channels": 4, "width": 0.125},
}
GROUPS = ((0, 1), (2, 3), (4, 5))


class Forbidden:
    def __getattr__(self, name):
        raise AssertionError(f"test images were read: {name}")

    def __len__(self):
        raise AssertionError("test images were counted")


class SealedData(TinyData):
    def load(self, root):
        data = super().load(root)
        return replace(data, test=Forbidden()) if self.name == "sealed" else data

    def info(self, root):
        return super().load(root).info


class Source(TinyBenchmark):
    def load(self, overrides=None):
        return benchmark(class_split(self.groups, self.data.name), self.data.name, PROTOCOL)


DATA = {name: SealedData(name, (24,) * 6, 10) for name in ("sealed", "open")}


@hookimpl
def register_datasets(register):
    for name, data in DATA.items():
        register(name, data)


@hookimpl
def register_benchmarks(register):
    for name, data in DATA.items():
        register(name, Source(data, GROUPS))
"""

POINTS = {"tiny": "tiny_plugin", "sealed": "sealed_plugin", "in_turn": "in_turn"}
MODULES = {"tiny_plugin": TINY, "sealed_plugin": SEALED, "in_turn": in_turn()}


def tuned_file(**fields: Any) -> TunedFile:
    """A tuned file of ewc on split_digits, protocol smoke, tuned on seeds 100 and 101."""
    options: Mapping[str, Any] = fields.get("options", {"ewc_lambda": 10.0})
    runs = (
        {"seed": 100, "run_id": "a-seed100-0", "status": "finished", "accuracy_matrix": [[1.0], [0.5, 0.75]]},
        {"seed": 101, "run_id": "a-seed101-0", "status": "finished", "accuracy_matrix": [[], [0.25, 1.0]]},
    )
    known = {
        "id": "split_digits-smoke-ewc",
        "benchmark": "split_digits",
        "benchmark_version": registry().benchmarks.find("split_digits").factory.load().version,
        "protocol": "smoke",
        "configuration": "ewc",
        "strategy": "ewc",
        "method": "first-tasks:2",
        "note": "a note",
        "seeds": (100, 101),
        "score": 0.625,
        "options": options,
        "space": dict.fromkeys(options, "1,10"),
        "cost": TuningCost(runs=4, image_passes=1000, cpu_seconds=2.5),
        "software": {"seu-bench": "0.1.0"},
        "trials": (Trial(options=dict(options), score=0.625, runs=runs),),
    }
    return TunedFile.sealed(**{**known, **fields})
