"""Naive fine-tuning."""

from __future__ import annotations

from typing import ClassVar

from seu_bench import Method
from seu_bench.config import LEARNING_RATES, BackboneOptions, SelectingOptions, TuningGrid


class Naive(Method):
    """SGD on each task in turn, nothing against forgetting (the paper's SGD baseline)."""

    name = "naive"
    title = "fine-tuning"

    class Options(BackboneOptions, SelectingOptions):
        """Options of naive fine-tuning."""

        tuning_grid: ClassVar[TuningGrid] = {"restore": ("best_valid", "last"), "learning_rate": LEARNING_RATES}
