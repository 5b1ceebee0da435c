"""BatchNorm's statistics of a sample: estimated anew, of its own layers alone, with the passes that are announced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import multivariate_normal
from sklearn.neighbors import KNeighborsClassifier
from support.closed_form import ridge_by_sklearn
from support.tiny import CPU, all_threads, one_thread, same, weights
from torch import Tensor, nn

from seu_bench.config.common_options import ScoringOptions
from seu_bench.config.protocol import Schedule, SearchSchedule
from seu_bench.data.images import TaskImages
from seu_bench.training.loops import Forward
from seu_bench_kit import h_score, knn_accuracy, log_evidence, recalibration_passes, ridge_accuracy, schedule_passes
from seu_bench_kit.sampling import SampledStage, recalibrate
from seu_bench_kit.transferability import RIDGE

setup_module, teardown_module = one_thread, all_threads

SCHEDULE = Schedule(epochs=3, batch_size=10, learning_rate=1e-6, clip_norm=None)


def task_images(count: int = 80) -> TaskImages:
    """One pixel, whose value is 100 or 102: the classes are told apart by what is left without the mean."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (count,), generator=generator)
    store = (100 + 2.0 * labels).reshape(count, 1, 1, 1)
    return TaskImages(store=store, rows=torch.arange(count), labels=labels, task=0, channels=1)


class Branches(nn.Module):
    """Two branches, of which a sample uses one: BatchNorm, then a head whose weights solve the task exactly."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(1, affine=False) for _ in range(2))
        self.head = nn.Linear(1, 2)
        with torch.no_grad():
            self.head.weight.copy_(torch.tensor([[-1.0], [1.0]]))
            self.head.bias.zero_()

    def forward(self, x: Tensor, branch: int) -> Tensor:
        logits: Tensor = self.head(self.norms[branch](x).flatten(1))
        return logits


class Known(SampledStage[int, list[float]]):
    """Samples branch 0 alone, and keeps the rewards."""

    def __init__(self, recalibration_images: int, images: TaskImages | None = None) -> None:
        super().__init__("search", 0, SCHEDULE, images or task_images(), 3, CPU, recalibration_images)
        self.network = Branches()
        self.rewards: list[float] = []
        self.prepare(self.network)

    def sample(self) -> int:
        return 0

    def forward_of(self, sampled: int) -> Forward:
        return lambda x: self.network(x, sampled)

    def learn(self, sampled: int, accuracy: float, loss: float) -> None:
        self.rewards.append(accuracy)

    def result(self) -> list[float]:
        return self.rewards

    def get_extra_state(self) -> dict[str, Any]:
        return {**super().get_extra_state(), "rewards": list(self.rewards)}

    def set_extra_state(self, state: Any) -> None:
        super().set_extra_state(state)
        self.rewards = list(state["rewards"])


def test_a_network_that_knows_is_scored_as_one_that_knows() -> None:
    """Its weights are perfect. With the statistics of four batches everything looks as if it were of one class, and
    the reward is that class's share; with its own it makes no mistake."""
    guesses, found = Known(0).run(), Known(1024).run()
    share = float((task_images().halves()[1].labels == 1).double().mean())
    assert guesses[0] == share < 0.6
    assert found == [1.0] * 3


def test_statistics_are_the_means_over_whole_batches() -> None:
    """Mean and unbiased variance of each batch have the same weight; momentum, mode and the weights are as before."""
    network, images, seen = Branches().eval(), task_images(37), list[int]()
    before = {name: value for name, value in weights(network).items() if name.startswith("head")}
    with torch.no_grad():
        for norm in network.norms:
            norm.running_mean.fill_(7.0)
            norm.running_var.fill_(9.0)
    left = weights(network.norms[1])
    recalibrate(network, lambda x: network(x, 0), images, 1024, 10, seen.append)
    assert seen == [10, 10, 10]
    batches = images.gather(torch.arange(30))[0].reshape(3, 10)
    assert network.norms[0].running_mean.item() == pytest.approx(batches.mean(dim=1).mean().item(), rel=1e-6)
    assert network.norms[0].running_var.item() == pytest.approx(batches.var(dim=1).mean().item(), rel=1e-5)
    # The branch that the sample does not use is as it was.
    assert same(weights(network.norms[1]), left)
    assert all(not norm.training and norm.momentum == 0.1 for norm in network.norms)
    assert same({name: value for name, value in weights(network).items() if name.startswith("head")}, before)


@pytest.mark.parametrize(
    ("limit", "images", "batch", "expected"),
    [(1024, 0, 8, 0), (1024, 1, 8, 1), (1024, 8, 8, 8), (1024, 15, 8, 8), (1024, 5000, 96, 960), (0, 50, 8, 0)],
)
def test_passes(limit: int, images: int, batch: int, expected: int) -> None:
    """Whole batches, or all images where they are fewer; a component announces them once per epoch."""
    assert recalibration_passes(limit, images, batch) == expected
    schedule = SearchSchedule(epochs=7, batch_size=batch)
    options = ScoringOptions(recalibration_images=limit)
    assert schedule_passes(options, schedule, 2 * images) == (7 * images, 7 * (images + expected))


@pytest.mark.parametrize("k", [1, 5, 15, 400])
def test_against_scikit_learn(k: int) -> None:
    """The same answers, ties of votes included; distances have no ties here."""
    generator = np.random.default_rng(k)
    points, queries = generator.normal(size=(200, 7)), generator.normal(size=(90, 7))
    labels, wanted = generator.integers(0, 4, 200), generator.integers(0, 4, 90)
    expected = KNeighborsClassifier(min(k, 200), algorithm="brute").fit(points, labels).score(queries, wanted)
    assert knn_accuracy(*map(torch.from_numpy, (points, labels, queries, wanted)), k=k) == pytest.approx(expected)
    assert 0 < expected < 1


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
