"""Learning-rate schedule, optimiser, gradient clipping and best weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from seu_bench.config.protocol import Schedule


def cosine_rate(schedule: Schedule, epoch: int) -> float:
    """Cosine learning rate without restarts (Loshchilov & Hutter, SGDR, ICLR 2017, equation 5).

    Args:
        schedule: from ``learning_rate`` to ``min_learning_rate`` over ``epochs``.
        epoch: 0-based.

    Returns:
        The learning rate of the epoch.
    """
    span = schedule.learning_rate - schedule.min_learning_rate
    return schedule.min_learning_rate + span * (1 + math.cos(math.pi * epoch / schedule.epochs)) / 2


def make_sgd(parameters: list[nn.Parameter], schedule: Schedule) -> torch.optim.SGD:
    """Make a fresh SGD optimiser.

    ``fused`` reads the memory of weights, gradients and momentum once and not four times: of large linear layers on a
    CPU that is a fifth of a whole step. Momentum begins as zeros, which is the same; torch's fused step fails where
    some weights have momentum and others, not sampled yet, have none.

    Args:
        parameters: to train.
        schedule: learning rate, momentum and weight decay.

    Returns:
        The optimiser.
    """
    optimizer = torch.optim.SGD(
        parameters,
        lr=schedule.learning_rate,
        momentum=schedule.momentum,
        weight_decay=schedule.weight_decay,
        fused=True,
    )
    if schedule.momentum:
        for parameter in parameters:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def clip_gradients(parameters: list[nn.Parameter], limit: float) -> None:
    """Clip gradients in place, bit for bit as ``nn.utils.clip_grad_norm_``, which multiplies by 1 below the limit.

    Args:
        parameters: whose gradients are scaled; those without one are skipped.
        limit: largest norm over all gradients together.
    """
    if not parameters or parameters[0].device.type != "cpu":
        nn.utils.clip_grad_norm_(parameters, limit)  # asking for the norm would wait for the accelerator
        return
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if not limit / (norm + 1e-6) >= 1:
        nn.utils.clip_grads_with_norm_(parameters, limit, norm)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every parameter group.

    Args:
        optimizer: changed in place.
        rate: learning rate.
    """
    for group in optimizer.param_groups:
        group["lr"] = rate


class BestWeights:
    """Best weights of a training: those of the lowest validation loss, to be restored at the end.

    Args:
        module: what trains; nothing else is copied.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.loss = math.inf
        self._kept: dict[str, torch.Tensor] = {}

    def offer(self, loss: float) -> None:
        """Save the present weights if ``loss`` is the lowest so far."""
        if loss < self.loss:
            self.loss = loss
            self.keep()

    def keep(self) -> None:
        """Save the present weights unconditionally."""
        self._kept = {name: tensor.detach().clone() for name, tensor in self.module.state_dict().items()}

    def restore(self) -> None:
        """Restore the saved weights, if any."""
        if self._kept:
            self.module.load_state_dict(self._kept)

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain values."""
        return {"loss": self.loss, "kept": dict(self._kept)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        self.loss = state["loss"]
        self._kept = dict(state["kept"])
