"""Naive fine-tuning of one network, the paper's SGD baseline on the AlexNet variant: a fresh optimiser for each task,
and the weights of the lowest validation loss."""

from __future__ import annotations

from seu_bench.training import Cost, StagedStrategy, StrategyContext, backbone_model, fixed_size_cost


class Naive(StagedStrategy):
    """Plain fine-tuning: one training stage per task over all weights, and the task's head."""


def build_naive(context: StrategyContext) -> Naive:
    """The strategy of a run."""
    return Naive.of(context, model=backbone_model(context))


def naive_cost(context: StrategyContext) -> Cost:
    """Exact: one training stage per task, and nothing is kept but the model."""
    return fixed_size_cost(context, kept_copies=0)
