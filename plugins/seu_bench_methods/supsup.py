"""SupSup (M. Wortsman et al., "Supermasks in Superposition", NeurIPS 2020)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from seu_bench.training import StrategyContext, TaskData
from seu_bench_methods.masked import ScoredMethod, ScoredModel, ScoreOptions, draw_scores


def signed_constant(weight: Tensor) -> Tensor:
    """The signs of a layer's weight ``[outputs, inputs, ...]`` times the deviation of Kaiming's normal distribution,
    sqrt(2 / inputs of a unit)."""
    return weight.sign() * math.sqrt(2 / weight[0].numel())


class SupSup(ScoredMethod):
    """Supermasks: a task finds a mask of a network whose random weights never change (Wortsman et al. 2020)."""

    name = "supsup"
    title = "SupSup"
    citation = "seu_bench_kit:wortsman2020supermasks"

    class Options(ScoreOptions):
        """Options of supermasks."""

    @classmethod
    def make_model(cls, context: StrategyContext) -> ScoredModel:
        """The backbone with signed constants for weights and without biases, frozen."""
        model = super().make_model(context)
        with torch.no_grad():
            for weight in model.weights():
                weight.copy_(signed_constant(weight))
            for name, parameter in model.backbone.named_parameters():
                if name.endswith("bias"):
                    parameter.zero_()
        model.backbone.requires_grad_(False)
        return model

    def scores_of(self, task: TaskData) -> nn.ParameterList:
        """New ones."""
        with self.drawing("scores", task):
            return draw_scores(self.model.weights())
