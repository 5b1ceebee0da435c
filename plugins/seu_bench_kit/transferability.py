"""Transferability: how well a network's features separate the classes of a task that it was not trained on, without
training; and those features."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from seu_bench.data.images import TaskImages
from seu_bench.models import RepeatedBatches
from seu_bench.training.loops import Forward

#: Weight of the ridge, per image and standardised feature.
RIDGE: Final = 0.1
#: Weight of the squares of a logistic regression's weights.
DECAY: Final = 1e-3
#: Distances that are in memory at once.
_AT_ONCE = 4_000_000
#: Rounds of the fixed point of :func:`log_evidence` and of a logistic regression, at most, and the change of alpha /
#: beta at which the first ends.
_ROUNDS, _CHANGE = 100, 1e-4


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
        votes = functional.one_hot(labels[nearest], classes).sum(dim=1)
        correct += int(((votes * classes + lowest_first).argmax(dim=1) == wanted).sum())
    return correct / len(queries)


def ridge_accuracy(features: Tensor, labels: Tensor, queries: Tensor, query_labels: Tensor) -> float:
    """Accuracy in [0, 1] of a linear classifier that ridge regression fits to one-hot targets.

    Source: A. E. Hoerl & R. W. Kennard, "Ridge Regression", Technometrics 12(1), 1970; as a probe of a network's
    features: G. Alain & Y. Bengio, "Understanding Intermediate Layers Using Linear Classifier Probes", 2016,
    arXiv:1610.01644.

    Args:
        features: ``[N, F]``, of training images; standardised here, together with ``queries`` by the same numbers.
        labels: ``[N]``, from 0.
        queries: ``[M, F]``, of held-out images.
        query_labels: ``[M]``.

    Returns:
        The share of queries whose answer is right.
    """
    fit, check = _standardise(features, queries)
    targets = functional.one_hot(labels).double()
    centre = targets.mean(dim=0)
    penalty = RIDGE * len(fit) * torch.eye(fit.shape[1], dtype=torch.float64, device=fit.device)
    weights = torch.linalg.solve(fit.T @ fit + penalty, fit.T @ (targets - centre))
    answers = (check @ weights + centre).argmax(dim=1)
    return float((answers == query_labels).double().mean())


def fit_head(head: nn.Linear, features: Tensor, labels: Tensor) -> None:
    """Fit a linear layer by logistic regression, as a probe of features: weights decay by :data:`DECAY`, features are
    standardised first, which the layer's weights undo. L-BFGS, in double precision; nothing is drawn.

    Source: as a place to begin training from: A. Kumar et al., "Fine-Tuning can Distort Pretrained Features and
    Underperform Out-of-Distribution", ICLR 2022, arXiv:2202.10054.

    Args:
        head: ``[F] -> [classes]``, whose weights are replaced.
        features: ``[N, F]``.
        labels: ``[N]``, from 0.
    """
    mean, deviation = features.double().mean(dim=0), features.double().std(dim=0, unbiased=False).clamp_min(1e-4)
    rows = (features.double() - mean) / deviation
    weight = torch.zeros(head.out_features, rows.shape[1], dtype=rows.dtype, device=rows.device, requires_grad=True)
    bias = torch.zeros_like(weight[:, 0], requires_grad=True)
    solver = torch.optim.LBFGS([weight, bias], max_iter=_ROUNDS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        solver.zero_grad()
        found = functional.cross_entropy(rows @ weight.T + bias, labels) + DECAY * weight.square().sum()
        found.backward()
        return found

    with torch.enable_grad():
        solver.step(loss)
    with torch.no_grad():
        head.weight.copy_(weight / deviation)
        head.bias.copy_(bias - (weight / deviation) @ mean)


def h_score(features: Tensor, labels: Tensor) -> float:
    """H-score: the trace of the inverse covariance of the features times the covariance of their class means.

    Features are standardised, and :data:`RIDGE` is added to the variance of each, without which the inverse means
    little where there are hardly more images than features.

    Source: Y. Bao et al., "An Information-Theoretic Approach to Transferability in Task Transfer Learning", ICIP 2019;
    on regularising the covariance: S. Ibrahim, N. Ponomareva, R. Mazumder, "Newer is not Always Better", 2021,
    arXiv:2110.06893.

    Args:
        features: ``[N, F]``.
        labels: ``[N]``, from 0.

    Returns:
        0 where classes do not differ, and less than their number; higher is better.
    """
    (fit,) = _standardise(features)
    classes = functional.one_hot(labels).double()
    counts = classes.sum(dim=0).clamp_min(1)
    means = (classes / counts).T @ fit
    between = (means * (counts / len(fit))[:, None]).T @ means
    covariance = fit.T @ fit / len(fit) + RIDGE * torch.eye(fit.shape[1], dtype=torch.float64, device=fit.device)
    return float(torch.linalg.solve(covariance, between).trace())


def log_evidence(features: Tensor, labels: Tensor) -> float:
    """LogME: the log evidence, per degree of freedom, of a Bayesian linear model of each class's indicator.

    For each class the precisions alpha, of the weights, and beta, of the noise, are those of the highest evidence, by
    the fixed point of MacKay. Features and indicators are centred, so that no constant is explained.

    Source: K. You et al., "LogME: Practical Assessment of Pre-trained Models for Transfer Learning", ICML 2021.

    Args:
        features: ``[N, F]``.
        labels: ``[N]``, from 0.

    Returns:
        The mean over the classes that occur; higher is better, and there is no bound.

    Raises:
        ValueError: there are fewer than two images.
    """
    if len(features) < 2:
        raise ValueError(f"{len(features)} images: the evidence needs 2 or more")
    rows = features.double() - features.double().mean(dim=0)
    left, singular, _ = torch.linalg.svd(rows, full_matrices=False)
    classes = functional.one_hot(labels).double()
    present = classes[:, classes.sum(dim=0) > 0]
    centred = present - present.mean(dim=0)
    evidences = [_class_evidence(left.T @ target, singular.square(), target, rows.shape[1]) for target in centred.T]
    return sum(evidences) / len(evidences)


def _class_evidence(projected: Tensor, squares: Tensor, target: Tensor, width: int) -> float:
    """Evidence per degree of freedom of one indicator ``[N]``: ``projected`` on the features' left singular vectors;
    ``squares`` are the squared singular values, ``width`` is the number of features."""
    # Centring took a degree of freedom: without that, the direction that it emptied has an evidence without bound.
    count, inside = len(target) - 1, projected.square()
    outside = float((target.square().sum() - inside.sum()).clamp_min(0))
    tiny = torch.finfo(torch.float64).tiny

    def fit_ridge(ratio: float) -> tuple[float, float]:
        """Squared weights and squared residuals of the ridge solution for alpha / beta."""
        shrunk = inside / (squares + ratio).square()
        return float((squares * shrunk).sum()), float(ratio**2 * shrunk.sum()) + outside

    alpha = beta = 1.0
    for _ in range(_ROUNDS):
        ratio = alpha / beta
        effective = float((squares / (squares + ratio)).sum())
        weights, residual = fit_ridge(ratio)
        alpha, beta = effective / max(weights, tiny), (count - effective) / max(residual, tiny)
        # Where the features explain nothing alpha has no bound, and where they explain all beta has none.
        alpha, beta = (min(max(value, 1e-9), 1e9) for value in (alpha, beta))
        if abs(alpha / beta - ratio) <= _CHANGE * ratio:
            break
    weights, residual = fit_ridge(alpha / beta)
    determinant = float((alpha + beta * squares).log().sum()) + (width - len(squares)) * math.log(alpha)
    return (
        width * math.log(alpha)
        + count * math.log(beta)
        - determinant
        - beta * residual
        - alpha * weights
        - count * math.log(2 * math.pi)
    ) / (2 * count)


def extract_features(
    forward: Forward, images: TaskImages, batch_size: int, on_batch: Callable[[int], None]
) -> tuple[Tensor, Tensor]:
    """Compute features of all images; the caller has set evaluation mode.

    Args:
        forward: images ``[N, C, H, W]`` -> features ``[N, F]``.
        images: of one task and split.
        batch_size: images per batch.
        on_batch: called with the number of images of each batch.

    Returns:
        Features ``[N, F]`` and labels ``[N]``.
    """
    rows, labels = [], []
    with torch.no_grad(), RepeatedBatches() as repeated:
        for x, y in images.batches(batch_size, shuffle=False):
            repeated.begin()
            rows.append(forward(x))
            repeated.end(len(y))
            labels.append(y)
            on_batch(len(y))
    return torch.cat(rows), torch.cat(labels)


def _standardise(features: Tensor, *others: Tensor) -> list[Tensor]:
    """Features, and others by the same numbers, with mean 0 and variance 1 in double precision."""
    mean, deviation = features.mean(dim=0), features.std(dim=0, unbiased=False).clamp_min(1e-6)
    return [(rows.double() - mean.double()) / deviation.double() for rows in (features, *others)]
