"""Plugins and metrics of Avalanche that are attached to a run: added to its strategy, and their values noted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from avalanche.evaluation import PluginMetric
from avalanche.evaluation.metric_results import MetricValue

from seu_bench.training.template import SilentLogger


def has_state(it: Any) -> bool:
    """Whether what is attached can be saved and restored with a run."""
    return hasattr(it, "state_dict") and hasattr(it, "load_state_dict")


def attach(strategy: Any, attached: Mapping[str, Any]) -> None:
    """Add plugins to a strategy, behind its own; without a state that can be saved it cannot be resumed any more.

    Args:
        strategy: of Avalanche, which has learned nothing yet.
        attached: plugins by name.
    """
    place = strategy.plugins.index(strategy.evaluator)
    strategy.plugins[place:place] = attached.values()
    strategy.attached = dict(attached)
    strategy.resumable = getattr(strategy, "resumable", False) and all(map(has_state, attached.values()))


class AttachedValues(SilentLogger):
    """The last value of each name that metrics gave one, of these metrics alone.

    Args:
        metrics: of an ``EvaluationPlugin``, whose logger this is.

    Attributes:
        values: by name; ``None`` for what is no finite number.
    """

    def __init__(self, metrics: Sequence[PluginMetric[Any]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.metrics = metrics
        self.values: dict[str, float | None] = {}

    def log_metrics(self, metric_values: list[MetricValue]) -> None:
        """Note values as an ``EvaluationPlugin`` receives them."""
        found = (it for it in metric_values if any(it.origin is metric for metric in self.metrics))
        self.values |= {it.name: _number(it.value) for it in found}


def _number(value: Any) -> float | None:
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    is_finite = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if is_finite else None
