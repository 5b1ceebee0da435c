"""Naive fine-tuning of one network, the paper's SGD baseline on the AlexNet variant: a fresh optimiser for each task,
and the weights of the lowest validation loss."""

from __future__ import annotations

from seu_bench.training import StagedStrategy, StrategyContext, backbone_model


class Naive(StagedStrategy):
    """Plain fine-tuning: one training stage per task over all weights, and the task's head."""


def build_naive(context: StrategyContext) -> Naive:
    """The strategy of a run."""
    return Naive.of(context, model=backbone_model(context))
