"""Linear discriminant analysis beside scikit-learn's, in any order of tasks, and what it keeps."""

from __future__ import annotations

from typing import Any

import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from seu_bench.testing import Trial
from seu_bench_methods.slda import Discriminant


def add(model: Discriminant, x: Tensor, y: Tensor, shrinkage: float = 0.01) -> None:
    """Show images to a model."""
    rows, classes = x.double(), len(model.counts)
    sums = torch.zeros(classes, x.shape[1], dtype=torch.double).index_add_(0, y, rows)
    model.add(sums, torch.bincount(y, minlength=classes).double(), rows.T @ rows, shrinkage)


def drawn(classes: int, each: int = 40, pixels: int = 6) -> tuple[Tensor, Tensor]:
    """Images of classes whose means differ, and whose pixels hang together."""
    torch.manual_seed(3)
    labels = torch.arange(classes).repeat_interleave(each)
    mixed = torch.eye(pixels) + 0.2 * torch.randn(pixels, pixels)
    return torch.randn(classes, pixels)[labels] + torch.randn(len(labels), pixels) @ mixed, labels


def test_answers_follow_the_formula() -> None:
    """W = mu ((1 - e) S + e (tr S / D) I)^-1 and b = -1/2 diag(W mu^T), in double precision from the images."""
    x, y = drawn(4)
    model = Discriminant(6, [4], "class")
    model.begin_task(0)
    add(model, x, y, 0.1)
    rows = x.double()
    means = torch.stack([rows[y == label].mean(dim=0) for label in range(4)])
    covariance = (rows - means[y]).T @ (rows - means[y]) / len(y)
    shrunk = 0.9 * covariance + 0.1 * covariance.trace() / 6 * torch.eye(6, dtype=torch.double)
    weight = means @ shrunk.inverse()
    expected = rows @ weight.T - (weight * means).sum(dim=1) / 2
    torch.testing.assert_close(model.forward_single_task(x, 0), expected.float(), rtol=1e-5, atol=1e-5)


def test_without_shrinkage_to_speak_of_logits_are_scikit_learns() -> None:
    x, y = drawn(3)
    model = Discriminant(6, [3], "class")
    model.begin_task(0)
    add(model, x, y, 1e-12)
    analysis: Any = LinearDiscriminantAnalysis(solver="lsqr", priors=[1 / 3] * 3)
    analysis.fit(x.double().numpy(), y.numpy())
    logits = model.forward_single_task(x, 0)
    expected = torch.as_tensor(analysis.decision_function(x.double().numpy())).float()
    torch.testing.assert_close(logits - logits.mean(1, True), expected - expected.mean(1, True), rtol=1e-5, atol=1e-5)


def test_the_order_of_images_and_their_tasks_make_no_difference() -> None:
    """All at once, or in parts that share classes."""
    x, y = drawn(3)
    at_once = Discriminant(6, [3], "domain")
    at_once.begin_task(0)
    add(at_once, x, y)
    in_parts = Discriminant(6, [3, 3, 3], "domain")
    for task, rows in enumerate(torch.randperm(len(y)).split(50)):
        in_parts.begin_task(task)
        add(in_parts, x[rows], y[rows])
    for name in ("means", "scatter", "counts", "weight", "offset"):
        torch.testing.assert_close(getattr(in_parts, name), getattr(at_once, name), rtol=1e-5, atol=1e-5)


def test_operations_are_those_of_the_products_and_the_solution() -> None:
    """Each image with itself; then two products of D numbers for each class and pair of pixels, and the solution."""
    seen: dict[int, int | None] = {}
    learner = Trial("slda").learner("tiny_two")
    learner.strategy.on_progress = lambda report: seen.update({report.task: report.flops} if report.done else {})
    learner.learn(0)
    pixels, classes = 64, sum(learner.stream.plan.classes_per_task)
    images = len(learner.stream.tasks[0].train)
    solution = 2 * pixels**3 // 3 + 2 * classes * pixels**2
    assert seen == {0: 2 * images * pixels**2 + 4 * classes * pixels**2 + solution}
