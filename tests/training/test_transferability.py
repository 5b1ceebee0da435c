"""Scores of features, against scikit-learn, SciPy, and computations by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from sklearn.neighbors import KNeighborsClassifier
from support.closed_form import ridge_by_sklearn

from seu_bench_kit import h_score, knn_accuracy, log_evidence, ridge_accuracy
from seu_bench_kit.transferability import RIDGE


@pytest.mark.parametrize("k", [1, 5, 15, 400])
def test_against_scikit_learn(k: int) -> None:
    """The same answers, ties of votes included; distances have no ties here."""
    generator = np.random.default_rng(k)
    points, queries = generator.normal(size=(200, 7)), generator.normal(size=(90, 7))
    labels, wanted = generator.integers(0, 4, 200), generator.integers(0, 4, 90)
    expected = KNeighborsClassifier(min(k, 200), algorithm="brute").fit(points, labels).score(queries, wanted)
    assert knn_accuracy(*map(torch.from_numpy, (points, labels, queries, wanted)), k=k) == pytest.approx(expected)
    assert 0 < expected < 1


def test_ties() -> None:
    """Equal votes go to the lowest class, equal distances to the point that comes first."""
    points, labels = torch.tensor([[2.0], [-2.0], [0.0]]), torch.tensor([1, 0, 2])
    query = torch.tensor([[0.0]])
    assert knn_accuracy(points, labels, query, torch.tensor([0]), k=3) == 1.0
    # The nearest, class 2, and of the two at distance 2 the first, class 1.
    assert knn_accuracy(points, labels, query, torch.tensor([1]), k=2) == 1.0


# --- ridge ---


@pytest.mark.parametrize(("images", "features", "noise"), [(40, 6, 1.5), (12, 30, 1.0), (5, 3, 3.0)])
def test_ridge_is_ridge_regression(images: int, features: int, noise: float) -> None:
    """The accuracy is that of scikit-learn's ridge on one-hot targets and equally standardised features."""
    seen = set()
    for seed in range(8):
        generator = np.random.default_rng(seed)
        centres = generator.normal(0, 1, (3, features))
        labels, check_labels = (np.concatenate([[0, 1, 2], generator.integers(0, 3, images)]) for _ in range(2))
        # Features of very different means and sizes, one of which never changes.
        size = 10.0 ** generator.integers(-2, 3, features)
        rows, check = (
            ((centres[y] + generator.normal(0, noise, (len(y), features))) * size + 3 * size).astype(np.float32)
            for y in (labels, check_labels)
        )
        rows[:, 0] = check[:, 0] = 7.0
        given = [torch.from_numpy(values) for values in (rows, labels, check, check_labels)]
        expected = ridge_by_sklearn(*given)
        assert ridge_accuracy(*given) == pytest.approx(expected, abs=1e-12)
        seen.add(expected)
    # Neither always right nor always the same.
    assert len(seen) > 1 and min(seen) < 1


def test_ridge_of_separable_classes() -> None:
    """Classes that lie apart are told apart without a fault; features without a difference tell nothing."""
    labels = torch.arange(30) % 3
    features = torch.eye(3)[labels] * 5 + torch.randn(30, 3, generator=torch.Generator().manual_seed(0)) * 0.1
    assert ridge_accuracy(features, labels, features.flip(0), labels.flip(0)) == 1.0
    assert ridge_accuracy(features, labels, features.flip(0), (labels + 1).flip(0) % 3) == 0.0
    flat = torch.full((30, 4), 2.5)
    assert ridge_accuracy(flat, labels, flat, labels) == pytest.approx(1 / 3)
    # Far from zero, where single precision would lose the difference.
    assert ridge_accuracy(features + 1000, labels, features + 1000, labels) == 1.0


# --- scores without a classifier ---


def made(seed: int, images: int, width: int, apart: float, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Features of classes whose centres lie so far apart, all classes among them."""
    generator = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), generator.integers(0, classes, images - classes)])
    centres = generator.normal(0, apart, (classes, width))
    return torch.from_numpy(centres[labels] + generator.normal(0, 1, (images, width)) + 5), torch.from_numpy(labels)


@pytest.mark.parametrize(("images", "width"), [(60, 4), (12, 30), (40, 40)])
def test_log_evidence_is_the_highest(images: int, width: int) -> None:
    """The evidence of each class is the density of its indicator, with the precisions for which that is highest."""
    features, labels = made(images, images, width, 0.8)
    # In coordinates of what is orthogonal to constants, which are what centring leaves.
    basis = np.linalg.svd(np.eye(images) - 1 / images)[0][:, : images - 1]
    rows = basis.T @ features.numpy()
    expected = []
    for name in range(3):
        target = basis.T @ (labels == name).double().numpy()

        def negative(precisions: np.ndarray, target: np.ndarray = target) -> float:
            weights, noise = np.exp(-precisions).clip(1e-9)
            covariance = noise * np.eye(images - 1) + weights * rows @ rows.T
            density = multivariate_normal(np.zeros(images - 1), covariance, allow_singular=True)
            return -float(density.logpdf(target)) / (images - 1)

        starts = [(0.0, 0.0), (3.0, 3.0), (6.0, 2.0), (3.0, 10.0)]
        expected.append(-min(minimize(negative, start, method="Nelder-Mead").fun for start in starts))
    assert log_evidence(features, labels) == pytest.approx(float(np.mean(expected)), abs=2e-3)


@pytest.mark.parametrize(("images", "width"), [(60, 4), (12, 30)])
def test_h_score_by_hand(images: int, width: int) -> None:
    """The trace, from NumPy's covariances of standardised features and of their class means."""
    features, labels = made(3, images, width, 1.0)
    rows, names = features.numpy(), labels.numpy()
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    means = np.stack([rows[names == name].mean(axis=0) for name in names])
    covariance = np.cov(rows.T, bias=True) + RIDGE * np.eye(width)
    expected = np.trace(np.linalg.inv(covariance) @ np.cov(means.T, bias=True))
    assert h_score(features, labels) == pytest.approx(expected)
    assert h_score(features * 7 - 3, labels) == pytest.approx(expected)
