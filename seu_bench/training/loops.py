"""One epoch of training and one of evaluation on images in memory: what searchers and creators loop over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from seu_bench.config.protocol import Schedule
from seu_bench.data.images import TaskImages
from seu_bench.training.optim import clip_gradients

Forward: TypeAlias = Callable[[Tensor], Tensor]
#: What happens to parameters that an epoch's sample does not use. ``still``: nothing. ``drift``: momentum and weight
#: decay continue to move those that were used before, as with PyTorch 1.1's zero-filled gradients (published code).
Unsampled: TypeAlias = Literal["still", "drift"]


def train_epoch(
    forward: Forward,
    parameters: list[nn.Parameter],
    optimizer: torch.optim.Optimizer,
    images: TaskImages,
    schedule: Schedule,
    on_batch: Callable[[int], None],
    unsampled: Unsampled = "still",
) -> float:
    """Train with cross-entropy on all images once, shuffled.

    Args:
        forward: images ``[N, C, H, W]`` -> logits ``[N, num_classes]``, in training mode.
        parameters: to clip.
        optimizer: of the parameters.
        images: of one task and split.
        schedule: batch size and largest gradient norm.
        on_batch: called with the number of images of each batch.
        unsampled: treatment of parameters that get no gradient.

    Returns:
        Mean loss per image.
    """
    total = torch.zeros((), device=images.device)
    for x, y in images.batches(schedule.batch_size, shuffle=True):
        optimizer.zero_grad(set_to_none=unsampled == "still")
        loss = nn.functional.cross_entropy(forward(x), y)
        loss.backward()
        if schedule.clip_norm is not None:
            clip_gradients(parameters, schedule.clip_norm)
        optimizer.step()
        total += loss.detach() * len(y)
        on_batch(len(y))
    return float(total) / len(images)


def evaluate(
    forward: Forward, images: TaskImages, batch_size: int, on_batch: Callable[[int], None]
) -> tuple[float, float]:
    """Evaluate on all images; the caller has set evaluation mode.

    Args:
        forward: images ``[N, C, H, W]`` -> logits ``[N, num_classes]``.
        images: of one task and split.
        batch_size: images per batch.
        on_batch: called with the number of images of each batch.

    Returns:
        Accuracy in [0, 1] and mean cross-entropy per image.
    """
    correct = torch.zeros((), device=images.device, dtype=torch.int64)
    total = torch.zeros((), device=images.device)
    with torch.no_grad():
        for x, y in images.batches(batch_size, shuffle=False):
            logits = forward(x)
            correct += (logits.argmax(dim=1) == y).sum()
            total += nn.functional.cross_entropy(logits, y, reduction="sum")
            on_batch(len(y))
    return int(correct) / len(images), float(total) / len(images)
