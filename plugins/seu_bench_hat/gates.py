"""The arithmetic of gates (Serra et al., ICML 2018, sections 2.3 to 2.6), on tensors alone.

A gate is ``sigmoid(s e)`` of an embedding ``e``, a real number for each unit of a layer and task.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

#: Largest ``|s e|`` that the compensation computes a cosh of, and largest ``|e|`` after a step (published code; the
#: paper has the second).
LARGEST_EXPONENT, LARGEST_EMBEDDING = 50.0, 6.0


def scale_of(batch: int, batches: int, largest: float) -> float:
    """The factor ``s`` of a batch: it grows linearly within an epoch, from ``1 / largest`` to ``largest``.

    Args:
        batch: 0-based, within the epoch.
        batches: of the epoch.
        largest: the factor of the last batch, and of evaluation.

    Returns:
        ``s``. Of an epoch of one batch, where the paper's formula has no value, the smallest, as in the published code.
    """
    smallest = 1 / largest
    return smallest + (largest - smallest) * batch / max(1, batches - 1)


def compensated(gradient: Tensor, embedding: Tensor, scale: float, largest: float) -> Tensor:
    """The gradient of an embedding as if the gate were ``sigmoid(e)``, times ``largest``.

    A steep gate has hardly any gradient, and a flat one little: the slope of ``sigmoid(s e)`` is divided out.

    Args:
        gradient: of the loss by the embedding, ``[units]``.
        embedding: ``[units]``.
        scale: ``s`` of the batch.
        largest: of the evaluation.

    Returns:
        ``[units]``.
    """
    steep = torch.cosh((scale * embedding).clamp(-LARGEST_EXPONENT, LARGEST_EXPONENT)) + 1
    return gradient * (largest / scale) * steep / (torch.cosh(embedding) + 1)


def used_anew(gates: Sequence[Tensor], used: Sequence[Tensor]) -> Tensor:
    """The share of units that a task takes among those that no earlier task uses, which the penalty is made of.

    Args:
        gates: of the task, ``[units]`` for each layer, from 0 to 1.
        used: the largest gates of earlier tasks, ``[units]`` for each layer; zeros for the first task.

    Returns:
        ``sum(gates * (1 - used)) / sum(1 - used)`` over all layers; 0 where all units are used.
    """
    free = [1 - each for each in used]
    taken = torch.stack([(gate * each).sum() for gate, each in zip(gates, free, strict=True)]).sum()
    total = torch.stack([each.sum() for each in free]).sum()
    return taken / total.clamp(min=torch.finfo(total.dtype).tiny)


def passing(used: Tensor, inputs: Tensor | None, shape: Sequence[int], spread: int = 1) -> Tensor:
    """What the gradient of a layer's weight is multiplied by, so that earlier tasks keep what they compute.

    Args:
        used: largest gates of earlier tasks on the layer's units, ``[units]``.
        inputs: the same of the units that it reads, ``[inputs]``; ``None``: it reads the image, which has no gates.
        shape: of the layer's weight, ``[units, inputs * spread]`` or ``[units, inputs, k, k]``.
        spread: numbers that each unit is read by.

    Returns:
        ``1 - min(used, inputs)``, which broadcasts to the shape.
    """
    after = used.view(-1, *(1 for _ in shape[1:]))
    if inputs is None:
        return 1 - after
    before = inputs.repeat_interleave(spread).view(1, -1, *(1 for _ in shape[2:]))
    return 1 - torch.minimum(after, before)
