"""Methods in closed form against computations of their own by NumPy, on real numbers, class-incrementally; and what is
chosen without test data."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from support.streams import everything
from support.tiny import benchmark, context, logits_of, registry

from seu_bench.config.protocol import ImageLimits
from seu_bench.data.dataset import DatasetInfo, RawDataset, RawSplit
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.testing import StrategyContract
from seu_bench.testing.streams import class_split
from seu_bench.training.monitoring import memory_of
from seu_bench_methods.ranpac import RIDGES
from seu_bench_methods.slda import SHRINKAGES

Numbers = NDArray[np.float64]
GROUPS = [[3, 1, 7], [0, 8], [9, 2, 5], [6, 4]]
ENDS = np.cumsum([len(group) for group in GROUPS])


def digits() -> TaskStream:
    """The 64 numbers of scikit-learn's digits, in tasks of these classes; every fourth is a test sample."""
    x, y = load_digits(return_X_y=True)
    test = np.arange(len(y)) % 4 == 0
    train, held = (RawSplit(x[rows].astype(np.float32), y[rows]) for rows in (~test, test))
    info = DatasetInfo("tiny", 64, 1, 1, 10, len(train), len(held), kind="features")
    spec = class_split(GROUPS) | {"scenario": "class", "input": {"mean": [8], "std": [4]}}
    return build_stream(benchmark(spec), lambda _: RawDataset(info, train, held), ImageLimits(), 0)


def numbers(images: Any) -> tuple[Numbers, Numbers]:
    """Samples ``[N, D]`` and the one-hot classes ``[N, 10]`` of a table, numbered over all tasks."""
    x, y = everything(images)
    return x.double().numpy(), np.eye(10)[y.numpy()]


def learned(stream: TaskStream, tasks: int) -> tuple[Numbers, Numbers]:
    """The training samples of the first tasks."""
    x, y = zip(*(numbers(task.train) for task in stream.tasks[:tasks]), strict=True)
    return np.concatenate(x), np.concatenate(y)


def check(name: str, answer: Any, close: float, *, validated: bool = True, **options: Any) -> Any:
    """Learn task by task, and compare logits of all test samples with ``answer(strategy, x, y, valid, test)``; return
    what learned, with its accuracy of the last time."""
    stream = digits()
    scenario, right = stream.avalanche(), list[bool]()
    strategy = registry().strategies.find(name).factory.build(context(stream.plan, name, options))
    for tasks, experience in enumerate(scenario.train_stream, start=1):
        strategy.train(experience, eval_streams=[scenario.streams["valid"]] if validated else [])
        valid = numbers(stream.tasks[tasks - 1].valid) if validated else None
        for task in range(tasks):
            test, labels = numbers(stream.tasks[task].test)
            expected = answer(strategy, *learned(stream, tasks), valid, test)[:, : ENDS[tasks - 1]]
            found = logits_of(strategy.model, stream, task).numpy()
            np.testing.assert_allclose(found, expected, atol=close, rtol=close)
            right += [*(found.argmax(axis=1) == labels.argmax(axis=1))] if tasks == len(GROUPS) else []
    return strategy, np.mean(right)


def means(x: Numbers, y: Numbers) -> Numbers:
    """Mean ``[C, D]`` of each class."""
    return (y.T @ x) / np.maximum(y.sum(axis=0), 1)[:, None]


def test_nearest_mean() -> None:
    """By distance and by angle."""

    def by_distance(_: Any, x: Numbers, y: Numbers, valid: Any, test: Numbers) -> Numbers:
        apart = ((test[:, None] - means(x, y)) ** 2).sum(axis=2)
        return ((test**2).sum(axis=1, keepdims=True) - apart) / 2

    def by_angle(_: Any, x: Numbers, y: Numbers, valid: Any, test: Numbers) -> Numbers:
        centres = means(x, y)
        lengths = np.linalg.norm(test, axis=1)[:, None] * np.maximum(np.linalg.norm(centres, axis=1), 1e-9)
        return test @ centres.T / lengths

    check("nearest_mean", by_distance, 1e-4)
    check("nearest_mean", by_angle, 1e-5, distance="cosine")


def discriminant(x: Numbers, y: Numbers, test: Numbers, share: float) -> Numbers:
    """Logits of linear discriminant analysis with this share of the identity."""
    centres = means(x, y)
    covariance = (x - y @ centres).T @ (x - y @ centres) / len(x)
    identity = np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    weight = np.linalg.solve((1 - share) * covariance + share * identity, centres.T)
    return test @ weight - (weight * centres.T).sum(axis=0) / 2


def test_discriminant_analysis() -> None:
    """Of a given shrinkage, and of the one that is right most often on the last task's validation samples."""

    def given(_: Any, x: Numbers, y: Numbers, valid: Any, test: Numbers) -> Numbers:
        return discriminant(x, y, test, 0.1)

    def chosen(_: Any, x: Numbers, y: Numbers, valid: Any, test: Numbers) -> Numbers:
        seen = np.flatnonzero(y.sum(axis=0))
        right = [
            (seen[discriminant(x, y, valid[0], share)[:, seen].argmax(axis=1)] == valid[1].argmax(axis=1)).sum()
            for share in SHRINKAGES
        ]
        picked.append(SHRINKAGES[int(np.argmax(right))])
        return discriminant(x, y, test, picked[-1])

    picked: list[float] = []
    check("slda", given, 1e-3, shrinkage=0.1)
    check("slda", chosen, 1e-3, shrinkage="auto")
    assert len(set(picked)) > 1


def ridge(x: Numbers, y: Numbers, share: float) -> Numbers:
    """Weights ``[D, C]`` of ridge regression of the one-hot classes."""
    gram = x.T @ x
    solved: Numbers = np.linalg.solve(gram + share * np.trace(gram) / len(gram) * np.eye(len(gram)), x.T @ y)
    return solved


@pytest.mark.parametrize(("projection", "validated"), [(300, True), (0, True), (300, False)])
def test_ridge_on_a_random_projection(projection: int, validated: bool) -> None:
    """Of the ridge that errs least on the last task's withheld samples: a fifth of the training ones, if need be."""

    def answer(strategy: Any, x: Numbers, y: Numbers, valid: Any, test: Numbers) -> Numbers:
        drawn = strategy.model.projection
        project = (lambda rows: np.maximum(rows @ drawn.double().numpy(), 0)) if projection else lambda rows: rows
        held = np.zeros(len(x), dtype=bool)
        if valid is None:
            last = int(y[:, [0, *ENDS][strategy.model.tasks - 1] :].sum())
            held[len(x) - last :] = np.arange(last) % 5 == 4
            valid = x[held], y[held]
        rows, seen = project(x), int(y.any(axis=0).sum())
        errors = [
            ((project(valid[0]) @ ridge(rows[~held], y[~held], share) - valid[1])[:, :seen] ** 2).sum()
            for share in RIDGES
        ]
        return project(test) @ ridge(rows, y, RIDGES[int(np.argmin(errors))])

    strategy, accuracy = check("ranpac", answer, 1e-3, validated=validated, projection=projection)
    wide = projection or 64
    assert sum(memory_of(strategy).values()) == 4 * (64 * projection + wide**2 + 2 * 10 * wide + 10)
    assert accuracy > (0.95 if projection else 0.85)


class TestChosenShrinkage(StrategyContract):
    """The contract of a strategy whose strength is chosen on validation images."""

    strategy = "slda"
    options: ClassVar = {"shrinkage": "auto"}
    scenario = "class"
