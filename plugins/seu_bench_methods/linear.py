"""A linear classifier per task: multinomial logistic regression on the pixels, the least that a network has to beat."""

from __future__ import annotations

import math
from typing import ClassVar

from torch import nn

from seu_bench import Method
from seu_bench.config import LEARNING_RATES, SelectingOptions, TaskInferenceOptions, TuningGrid
from seu_bench.models import BackboneModel
from seu_bench.results import REFERENCE_ROWS
from seu_bench.training import StrategyContext
from seu_bench.utils import RandomState, derive_seed


class Linear(Method):
    """One linear classifier per task on the pixels (naive on the backbone linear)."""

    name = "linear"
    scenarios = ("task",)
    inputs = ("image", "features")
    reference = REFERENCE_ROWS["linear"]

    class Options(SelectingOptions, TaskInferenceOptions):
        """Options of a linear classifier per task."""

        # Pixels that are not normalised by any layer ask for smaller steps than networks do.
        tuning_grid: ClassVar[TuningGrid] = {"learning_rate": (0.0008, 0.0025, *LEARNING_RATES)}

    @classmethod
    def make_model(cls, context: StrategyContext) -> BackboneModel:
        """Return a linear head for each task on the pixels, its weights drawn from the run's seed."""
        plan = context.plan
        with RandomState(derive_seed(context.seed, "model")).active():
            return BackboneModel(nn.Flatten(), math.prod(plan.input.shape), plan.classes_per_task)
