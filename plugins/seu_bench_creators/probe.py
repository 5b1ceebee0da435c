"""Training-free probe of how well features separate classes."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

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
