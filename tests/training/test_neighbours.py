"""Nearest neighbours on features, against a direct computation by hand and by scikit-learn's rule."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier

from seu_bench.training import knn_accuracy


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


@pytest.mark.parametrize(("points", "queries", "k"), [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_refused(points: int, queries: int, k: int) -> None:
    """There is no nearest neighbour of or among nothing."""
    labels = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(ValueError, match="each must be 1 or more"):
        knn_accuracy(torch.ones(points, 2), labels[:points], torch.ones(queries, 2), labels[:queries], k=k)
