"""BatchNorm's running statistics, estimated anew for a network that was sampled a moment ago.

Shared weights are trained for a few batches as one sample and for a few as another. Running statistics are then still
those of initialisation or of other samples, and in evaluation mode the network answers by chance, however well it was
trained (Z. Guo et al., "Single Path One-Shot Neural Architecture Search with Uniform Sampling", ECCV 2020).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import torch
from torch import nn

from seu_bench.data.images import TaskImages
from seu_bench.models.flops import RepeatedBatches
from seu_bench.training.costing import recalibration_passes
from seu_bench.training.loops import Forward

Norm: TypeAlias = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d


def running_norms(module: nn.Module) -> Iterator[tuple[str, Norm]]:
    """The BatchNorms of a module that keep running statistics, by their place in it."""
    for place, part in module.named_modules():
        if isinstance(part, Norm) and part.track_running_stats:
            yield place, part


@contextmanager
def normalising_by_batch(norms: Sequence[Norm]) -> Iterator[None]:
    """While this lasts the BatchNorms normalise by the batch, and nothing else trains; momentum may be set freely."""
    before = [(norm.training, norm.momentum) for norm in norms]
    for norm in norms:
        norm.training = True  # each by itself, for a frozen unit refuses to train
    try:
        yield
    finally:
        for norm, (training, momentum) in zip(norms, before, strict=True):
            norm.training, norm.momentum = training, momentum


def recalibrate(
    trained: nn.Module,
    forward: Forward,
    images: TaskImages,
    limit: int,
    batch_size: int,
    on_batch: Callable[[int], None],
) -> None:
    """Replace the running statistics of the BatchNorms that a sample uses by the means over its batches.

    Each batch has the same weight, so that only whole batches are passed; nothing is drawn, for a task's images are
    shuffled already. BatchNorms that the sample does not use, and all outside of ``trained``, keep what they have.

    Args:
        trained: the BatchNorms to estimate are in it; the caller has set evaluation mode.
        forward: of the sample, images ``[N, C, H, W]`` -> logits.
        images: those that the sample was trained on.
        limit: images that are passed at most; 0: none, and nothing changes.
        batch_size: images per batch; fewer images than that are one batch.
        on_batch: called with the number of images of each batch.
    """
    norms = [norm for _, norm in running_norms(trained)]
    part = images.part(0, recalibration_passes(limit, len(images), batch_size))
    with torch.no_grad(), normalising_by_batch(norms), RepeatedBatches() as repeated:
        batches = part.batches(batch_size, shuffle=False) if len(part) else ()
        for number, (x, y) in enumerate(batches, start=1):
            for norm in norms:
                norm.momentum = 1 / number  # 1 first, which forgets what was there
            repeated.begin()
            forward(x)
            repeated.end(len(y))
            on_batch(len(y))
