"""The search's network: every layer is a mixture of all that a new task may do in it (after DARTS, Liu et al., 2019).

A mixture holds what is new only: units and adapters to choose from, architecture weights, and the task's head. Frozen
units stay in the model, so that neither optimisers nor states of the search contain them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn

from seu_bench.models import count_parameters
from seu_bench_ltg.layer import Decision, GrowingLayer, Stop
from seu_bench_ltg.model import GrowingAlexNet

Body: TypeAlias = Callable[[Tensor, Stop], Tensor]


class MixedLayer(nn.Module):
    """Candidates of one layer, with an architecture weight for each.

    Drawn by torch's global generator: adapters, unit, then the architecture weights from U(0, 1).
    """

    def __init__(self, layer: GrowingLayer) -> None:
        super().__init__()
        self.candidates = layer.candidates()
        self.adapters = nn.ModuleList([] if layer.linear else [layer.make_adapter() for _ in layer.units])
        self.unit = layer.make_unit()
        self.architecture = nn.Parameter(torch.rand(len(self.candidates)))
        added = [count_parameters(module) if module else 0 for module in map(self.addition, range(self.count))]
        self.sizes: Tensor
        self.register_buffer("sizes", torch.tensor([math.log10(1 + number) for number in added]), persistent=False)

    @property
    def count(self) -> int:
        """Number of candidates."""
        return len(self.candidates)

    def addition(self, candidate: int) -> nn.Module | None:
        """The module that a candidate adds."""
        choice = self.candidates[candidate]
        if choice.kind == "reuse":
            return None
        return self.unit if choice.kind == "new" else self.adapters[choice.unit]

    def forward(self, layer: GrowingLayer, x: Tensor, body_of: Body | None = None) -> Tensor:
        """The candidates' outputs, weighted by the softmax of the architecture weights.

        Args:
            body_of: computes the sum of terms of an old unit and its adapters; the layer itself by default.
        """
        outputs = torch.stack(self.outputs(layer, x, body_of))
        mixed: Tensor = torch.tensordot(self.architecture.softmax(0).to(outputs.dtype), outputs, dims=1)
        return mixed

    def outputs(self, layer: GrowingLayer, x: Tensor, body_of: Body | None = None) -> list[Tensor]:
        """Every candidate's output; a unit is computed once, whether it is reused or adapted."""
        body_of = body_of or layer.body
        reused, adapted = [], []
        for index in range(len(layer.units)):
            body = body_of(x, Stop(index, len(layer.adapters_of(index))))
            reused.append(layer.finish(body))
            if not layer.linear:
                adapted.append(layer.finish(body + layer.term(self.adapters[index], x)))
        return [*reused, *adapted, layer.finish(layer.term(self.unit, x))]

    def penalty(self) -> Tensor:
        """Expected size of the addition: the softmax weights' sum of log10(1 + parameters added)."""
        return self.architecture.softmax(0) @ self.sizes

    def decision(self) -> Decision:
        """The candidate of the largest weight; of equal ones the first."""
        weights = self.architecture.tolist()
        best = weights.index(max(weights))
        return Decision(self.candidates[best], self.addition(best))


class Mixture(nn.Module):
    """A mixed layer for each layer of ``model``, and the head of ``task``, which is the model's own."""

    def __init__(self, model: GrowingAlexNet, task: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(MixedLayer(model.layer(index)) for index in range(len(model.layers)))
        self.head = model.heads[task]
        self.to(model.device)

    def forward(self, model: GrowingAlexNet, x: Tensor) -> Tensor:
        """Logits ``[N, num_classes]``."""
        first: Body | None = (lambda x, stop: model.frozen_body(x, (stop,))) if model.never_random else None
        for index, (mixed, layer) in enumerate(zip(self.layers, model.layers, strict=True)):
            x = mixed(layer, x, None if index else first)
        logits: Tensor = self.head(x)
        return logits

    def mixed(self) -> list[MixedLayer]:
        """The layers."""
        return [layer for layer in self.layers if isinstance(layer, MixedLayer)]

    def penalty(self) -> Tensor:
        """The expected size of all layers' additions, a scalar."""
        return torch.stack([layer.penalty() for layer in self.mixed()]).sum()

    def decisions(self) -> tuple[Decision, ...]:
        """The best candidate of each layer."""
        return tuple(layer.decision() for layer in self.mixed())

    def architecture(self) -> list[nn.Parameter]:
        """The architecture weights of each layer."""
        return [layer.architecture for layer in self.mixed()]

    def weights(self) -> list[nn.Parameter]:
        """All other parameters: new units, new adapters, head."""
        other = {id(parameter) for parameter in self.architecture()}
        return [parameter for parameter in self.parameters() if id(parameter) not in other]
