"""Linear classifiers: multinomial logistic regression on the pixels, the least that a network has to beat."""

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
    """One linear classifier per task on the pixels, or one that grows (naive on the backbone linear)."""

    name = "linear"
    title = "linear classifiers"
    inputs = ("image", "features")
    reference = REFERENCE_ROWS["linear"]

    class Options(SelectingOptions, TaskInferenceOptions):
        """Options of linear classifiers."""

        # Pixels that are not normalised by any layer ask for smaller steps than networks do.
        tuning_grid: ClassVar[TuningGrid] = {"learning_rate": (0.0008, 0.0025, *LEARNING_RATES)}

    @classmethod
    def make_model(cls, context: StrategyContext) -> BackboneModel:
        """Return the linear heads of the scenario on the pixels, their weights drawn from the run's seed."""
        plan = context.plan
        scenario = "task" if context.options.infer_task else plan.scenario
        # Heads of tasks are drawn one after another, which does not hang on how many there are.
        seed = context.seed if plan.open_ended and scenario == "class" else None
        with RandomState(derive_seed(context.seed, "model")).active():
            pixels = math.prod(plan.input.shape)
            return BackboneModel(nn.Flatten(), pixels, plan.classes_per_task, scenario, seed=seed)
