"""Stages inside the guard, and what tests compare of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from seu_bench.config.options import Options
from seu_bench.training.interfaces import Component
from seu_bench.training.stage import EpochReport, Stage
from seu_bench_kit.guard import GuardedStage

CPU = torch.device("cpu")


OWNER = Component("searcher", "clever", None, Options(), "a_plugin", "a-package")

TASK: Any = SimpleNamespace(task=1, schedule=None, images=())


NAMED = r"^searcher 'clever' \(plugin 'a_plugin' of package a-package\) failed in stage 'search' of task 1: "


class Plain(Stage[str]):
    """A stage that computes nothing: four images an epoch, and what a test adds."""

    def __init__(self, epochs: int = 3, act: Callable[[Any], EpochReport | None] | None = None) -> None:
        super().__init__("its own name", 7, epochs, 0, CPU)
        self.act = act or (lambda stage: None)

    def run_epoch(self) -> EpochReport:
        """Four images."""
        self.count_images(4)
        return self.act(self) or EpochReport(0.5, 0.25)

    def result(self) -> str:
        """A word."""
        return "found"


def guarded(
    make: Callable[[], Stage[Any]],
    *,
    kind: str = "searcher",
    passes: int = 1000,
    fault: Callable[[Any], str | None] = lambda found: None,
) -> GuardedStage[Any]:
    """Around the searcher or creator ``clever`` in task 1, which announces ``passes``."""
    factory = SimpleNamespace(build=lambda options, task: make(), estimate_passes=lambda *_: (passes, 0))
    return GuardedStage(replace(OWNER, kind=kind, factory=factory), TASK, fault)
