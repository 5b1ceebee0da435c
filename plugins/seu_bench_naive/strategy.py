"""Naive fine-tuning of one network, the paper's SGD baseline on the AlexNet variant: a fresh optimiser for each task,
and the weights of the lowest validation loss."""

from __future__ import annotations

from seu_bench.backbones import backbone_model
from seu_bench.costing import fixed_size_cost
from seu_bench.interfaces import Cost, Setting
from seu_bench.strategy import StagedStrategy


class Naive(StagedStrategy):
    """Plain fine-tuning: one training stage per task over all weights, and the task's head."""


def build_naive(setting: Setting) -> Naive:
    """The strategy of a run."""
    return Naive.of(setting, model=backbone_model(setting))


def naive_cost(setting: Setting) -> Cost:
    """Parameters, multiply-accumulates and image passes, exactly."""
    return fixed_size_cost(setting)
