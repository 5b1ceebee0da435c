"""Old units with an adapter and statistics of their own for a task, chosen against new units by the rule of ``mdl``.

An adapter is a 1x1 convolution, of features a linear layer, beside an identity: ``y + A y`` of an old unit's output
``y``, and A begins as zeros. Sources: S.-A. Rebuffi, H. Bilen & A. Vedaldi, "Learning multiple visual domains with
residual adapters", NeurIPS 2017, and "Efficient parametrization of multi-domain deep neural networks", CVPR 2018;
statistics of BatchNorm for each domain: H. Bilen & A. Vedaldi, "Universal representations", 2017.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from seu_bench_kit import Adapted
from seu_bench_kit.sampling import Norm
from seu_bench_seu.mdl import MdlCreation
from seu_bench_seu.options import ADAPTER, AdaptOptions


class TaskAdapter(nn.Module):
    """What a task adds to an old unit: it begins as the unit is.

    Args:
        unit: to adapt, which is neither held nor changed.
        outputs: features of its output.
        rank: of the adapter's matrix A, which is then a product of two; ``None``: it is one full matrix.
    """

    def __init__(self, unit: nn.Module, outputs: int, rank: int | None = None) -> None:
        super().__init__()
        shapes = [(outputs, outputs)] if rank is None else [(rank, outputs), (outputs, rank)]
        #: The last is zeros, and so is A.
        self.weights = nn.ParameterList(torch.zeros(shape) for shape in shapes)
        for weight in list(self.weights)[:-1]:
            nn.init.kaiming_uniform_(weight, a=5**0.5)
        tracked = {name: it for name, it in unit.named_modules() if isinstance(it, Norm) and it.track_running_stats}
        self.names = tuple(tracked)
        #: Statistics alone, of whatever dimension; none of them computes.
        self.norms = nn.ModuleList(map(_statistics, tracked.values()))

    def forward(self, unit: nn.Module, *inputs: Tensor) -> Tensor:
        """``[N, outputs, ...]`` of the unit's inputs."""
        with self._lent_to(unit):
            statistics = {
                f"{name}.{key}": it
                for name, own in zip(self.names, self.norms, strict=True)
                for key, it in own.named_buffers()
            }
            y: Tensor = functional_call(unit, statistics, inputs)
        added = y
        for weight in self.weights:
            is_image = added.dim() == 4
            added = functional.conv2d(added, weight[..., None, None]) if is_image else functional.linear(added, weight)
        return y + added

    @contextmanager
    def _lent_to(self, unit: nn.Module) -> Iterator[None]:
        """Give the unit's BatchNorms the task's mode and momentum, for the length of a ``with`` block."""
        theirs = [cast(Norm, unit.get_submodule(name)) for name in self.names]
        before = [(norm.training, norm.momentum) for norm in theirs]
        try:
            for norm, own in zip(theirs, cast(list[Norm], list(self.norms)), strict=True):
                norm.training, norm.momentum = own.training, own.momentum
            yield
        finally:
            for norm, (training, momentum) in zip(theirs, before, strict=True):
                norm.training, norm.momentum = training, momentum


def _statistics(norm: Norm) -> nn.BatchNorm1d:
    own = nn.BatchNorm1d(norm.num_features, norm.eps, norm.momentum, affine=False)
    for there, here in zip(own.buffers(), norm.buffers(), strict=True):
        there.copy_(here)
    return own


def wrap(genotype: Mapping[str, Any], unit: nn.Module, outputs: int) -> TaskAdapter:
    """Make the module of a genotype.

    Raises:
        ValueError: it is another one than :data:`ADAPTER`, with a rank or without.
    """
    if {**genotype, "rank": None} != ADAPTER:
        raise ValueError(f"an adapter is {ADAPTER}")
    return TaskAdapter(unit, outputs, genotype.get("rank"))


class AdaptCreation(MdlCreation):
    """The creation of one task's path, where a layer can choose its new unit, or an old one that is adapted.

    Old units as they are no candidates: an adapted one begins as the old one, and twice as many candidates would get
    half of the epochs each. Nor are units that an earlier task adapted: the unit below is there. Where there is no new
    unit, as where all tasks share a stem, there is nothing to choose.
    """

    options: AdaptOptions

    def candidates(self, layer: int) -> list[int | Adapted]:
        """The old units, adapted, and the new one."""
        model, count = self.model, self.model.candidates[layer]
        if not model.has_new[layer]:
            return super().candidates(layer)

        # A product of two matrices is smaller than one of full rank only below half of it.
        rank = self.options.rank if 2 * (self.options.rank or 0) < model.outputs[layer] else None

        def adapted(index: int) -> Adapted:
            genotype = {**ADAPTER, "rank": rank}
            module = wrap(genotype, model.unit(layer, index), model.outputs[layer])
            return Adapted(index, genotype, module.to(self.device, non_blocking=True))

        with self.randomness.active():
            return [*(adapted(index) for index in range(count - 1) if model.can_adapt(layer, index)), count - 1]
