"""Importances and anchors of elastic weight consolidation: which weights mattered so far, and their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn


class Consolidation:
    """The Fisher information of the tasks so far and the weights after the last of them, by parameter name.

    Attributes:
        fisher: mean over the tasks, each tensor of its parameter's shape.
        anchor: the weights after the last task.
        tasks: how many were added.
    """

    def __init__(self) -> None:
        self.fisher: dict[str, Tensor] = {}
        self.anchor: dict[str, Tensor] = {}
        self.tasks = 0

    def add(self, model: nn.Module, estimate: Mapping[str, Tensor]) -> None:
        """Merge the ``estimate`` of the task just learned, ``F <- (F_new + t F) / (t + 1)`` after ``t`` others, and
        make the present weights of ``model`` the anchor."""
        if self.tasks:
            merged = {name: (new + self.tasks * self.fisher[name]) / (self.tasks + 1) for name, new in estimate.items()}
        else:
            merged = dict(estimate)
        self.fisher = merged
        self.anchor = {name: weight.detach().clone() for name, weight in model.named_parameters() if name in merged}
        self.tasks += 1

    def distance(self, model: nn.Module) -> Tensor | None:
        """``sum_i F_i (theta_i - theta*_i)^2``, differentiable in the weights; ``None`` before a task was added."""
        terms = [
            (self.fisher[name] * (weight - self.anchor[name]).square()).sum()
            for name, weight in model.named_parameters()
            if name in self.fisher
        ]
        return torch.stack(terms).sum() if terms else None

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values only."""
        return {"fisher": dict(self.fisher), "anchor": dict(self.anchor), "tasks": self.tasks}

    def load_state_dict(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Restore what :meth:`state_dict` returned, with tensors on ``device``."""
        self.fisher = {name: tensor.to(device) for name, tensor in state["fisher"].items()}
        self.anchor = {name: tensor.to(device) for name, tensor in state["anchor"].items()}
        self.tasks = state["tasks"]
