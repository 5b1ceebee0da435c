"""The gradient of the validation loss with respect to the architecture, of first and of second order.

Everything is a function of plain tensors, so that it can be checked on any small problem.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

Tensors: TypeAlias = Sequence[Tensor]
#: Loss as a function of weights and architecture.
Loss: TypeAlias = Callable[[Tensors, Tensors], Tensor]

#: Length of the step of the finite difference (DARTS, section 2.3: epsilon = 0.01 / norm of the gradient).
STEP = 0.01


def first_order(valid_loss: Loss, weights: Tensors, architecture: Tensors) -> list[Tensor]:
    """The gradient at the present weights, as if they did not depend on the architecture (DARTS, section 2.3,
    xi = 0)."""
    # Layers with gradients of their own would compute the weights' as well.
    fixed = [weight.detach() for weight in weights]
    return list(torch.autograd.grad(valid_loss(fixed, architecture), list(architecture)))


def second_order(
    train_loss: Loss,
    valid_loss: Loss,
    weights: Tensors,
    architecture: Tensors,
    *,
    rate: float,
    momentum: Tensors,
    weight_decay: float,
) -> list[Tensor]:
    """The gradient through one step of the weights (DARTS, equations 6 to 8).

    ``w' = w - rate * (dL_train/dw + weight_decay * w + momentum)``; the gradient of ``L_valid(w', a)`` is
    ``dL_valid/da - rate * d2L_train/(da dw) dL_valid/dw'``, whose last product is a central difference of
    ``dL_train/da`` in the direction ``v = dL_valid/dw'``: ``(at w + eps v  minus  at w - eps v) / (2 eps)``.
    """
    # A weight that the loss does not use has no gradient and takes part by its decay alone.
    descent = _gradients(train_loss(weights, architecture), weights)
    with torch.no_grad():
        stepped = [
            (w - rate * (g + weight_decay * w + m)).requires_grad_()
            for w, g, m in zip(weights, descent, momentum, strict=True)
        ]
    both = _gradients(valid_loss(stepped, architecture), [*stepped, *architecture])
    direction, direct = both[: len(stepped)], both[len(stepped) :]
    norm = torch.sqrt(torch.stack([(v * v).sum() for v in direction]).sum())
    if float(norm) == 0.0:
        return direct  # the validation loss does not depend on the weights: nothing to see through
    step = STEP / norm
    ahead, behind = (
        _gradients(train_loss(_moved(weights, direction, sign * step), architecture), architecture) for sign in (1, -1)
    )
    return [d - rate * (plus - minus) / (2 * step) for d, plus, minus in zip(direct, ahead, behind, strict=True)]


def _moved(weights: Tensors, direction: Tensors, step: Tensor) -> list[Tensor]:
    return [(w + step * v).detach() for w, v in zip(weights, direction, strict=True)]


def _gradients(loss: Tensor, inputs: Tensors) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(inputs), allow_unused=True, materialize_grads=True))
