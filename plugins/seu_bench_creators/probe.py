"""Training-free probes: features of an earlier path, and how well they separate classes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from seu_bench.data import TaskImages
from seu_bench.models import RepeatedBatches
from seu_bench.training import GrowingModel
from seu_bench_creators.paths import Path

#: Weight of the ridge, per image and standardised feature.
RIDGE = 0.1


def probe_accuracy(features: Tensor, labels: Tensor, check_features: Tensor, check_labels: Tensor) -> float:
    """Accuracy in [0, 1] of a linear classifier fitted by ridge regression on one set and measured on another (Hoerl &
    Kennard 1970; linear probes: Alain & Bengio, ICLR 2017 workshop).

    Args:
        features: ``[N, F]``; standardised here, together with ``check_features`` by the same numbers.
        labels: ``[N]``, from 0.
    """
    mean, deviation = features.mean(dim=0), features.std(dim=0, unbiased=False).clamp_min(1e-6)
    fit, check = ((rows.double() - mean.double()) / deviation.double() for rows in (features, check_features))
    targets = functional.one_hot(labels).double()
    centre = targets.mean(dim=0)
    penalty = RIDGE * len(fit) * torch.eye(fit.shape[1], dtype=torch.float64, device=fit.device)
    weights = torch.linalg.solve(fit.T @ fit + penalty, fit.T @ (targets - centre))
    answers = (check @ weights + centre).argmax(dim=1)
    return float((answers == check_labels).double().mean())


def gather_features(
    model: GrowingModel, path: Path, images: TaskImages, batch_size: int, on_batch: Callable[[int], None]
) -> tuple[Tensor, Tensor]:
    """Features ``[N, F]`` of images on a path, and their labels ``[N]``; the caller has set evaluation mode.

    Args:
        model: the super model.
        path: of an earlier task.
        images: of the present one.
        batch_size: images per batch.
        on_batch: called with the number of images of each batch.
    """
    rows, labels = [], []
    with torch.no_grad(), RepeatedBatches() as repeated:
        for x, y in images.batches(batch_size, shuffle=False):
            repeated.begin()
            rows.append(model.features(x, path))
            repeated.end(len(y))
            labels.append(y)
            on_batch(len(y))
    return torch.cat(rows), torch.cat(labels)
