"""Nearest neighbours on a network's features: which earlier network a task is related to, without training any."""

from __future__ import annotations

import torch
from torch import Tensor

#: Distances that are in memory at once.
_AT_ONCE = 4_000_000


def knn_accuracy(features: Tensor, labels: Tensor, queries: Tensor, query_labels: Tensor, k: int = 15) -> float:
    """Accuracy in [0, 1] of a classifier by the majority of the k nearest neighbours.

    Distances are Euclidean. Of classes with equal votes the lowest is the answer, and of points at equal distance those
    that come first are the neighbours, so that the result depends on nothing but its arguments.

    Source: the task prior of MNTDP (T. Veniat, L. Denoyer, M. Ranzato, "Efficient Continual Learning with Modular
    Networks and Task-Driven Priors", ICLR 2021, arXiv:2012.12631): the earlier network whose features separate the new
    task's classes best.

    Args:
        features: ``[N, F]``, of training images.
        labels: ``[N]``, from 0.
        queries: ``[M, F]``, of held-out images.
        query_labels: ``[M]``.
        k: neighbours that vote; all N where there are fewer.

    Returns:
        The share of queries whose answer is right.

    Raises:
        ValueError: there is no feature or no query, or k is not positive.

    Example:
        >>> import torch
        >>> points, labels = torch.tensor([[0.0], [1.0], [9.0]]), torch.tensor([0, 0, 1])
        >>> knn_accuracy(points, labels, torch.tensor([[0.4], [8.0]]), torch.tensor([0, 1]), k=1)
        1.0
    """
    if not len(features) or not len(queries) or k < 1:
        raise ValueError(f"{len(features)} features, {len(queries)} queries and k={k}: each must be 1 or more")
    k, classes = min(k, len(features)), int(labels.max()) + 1
    lowest_first = torch.arange(classes - 1, -1, -1, device=labels.device)  # argmax promises nothing for equal votes
    size, correct = max(1, _AT_ONCE // len(features)), 0
    for part, wanted in zip(queries.split(size), query_labels.split(size), strict=True):
        # Not by a matrix product, whose rounding may put the nearest point behind its neighbour.
        distances = torch.cdist(part, features, compute_mode="donot_use_mm_for_euclid_dist")
        nearest = distances.argsort(dim=1, stable=True)[:, :k]
        votes = torch.nn.functional.one_hot(labels[nearest], classes).sum(dim=1)
        correct += int(((votes * classes + lowest_first).argmax(dim=1) == wanted).sum())
    return correct / len(queries)
