"""Metrics: pure functions on the accuracy matrix and on sizes, each with one definition.

The accuracy matrix ``R`` is a sequence of T rows, one per task learned, in the order in which they were learned:
``R[i][j]`` in [0, 1] is the accuracy on task j's test images after learning task i (0-based). ``None`` (or NaN), and
whatever lies beyond the end of a row, was not measured. A value that would need an entry that was not measured is
``None``, never 0. Means are over tasks, whatever their number of images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import TypeAlias

AccuracyMatrix: TypeAlias = Sequence[Sequence[float | None]]


def acc(matrix: AccuracyMatrix) -> float | None:
    """Mean accuracy over all T tasks after the last one, in [0, 1] (Lopez-Paz & Ranzato 2017).

    Returns:
        ``mean_j R[T-1][j]``; ``None`` if the last row is not complete or there are no tasks.
    """
    last = len(matrix) - 1
    return _mean([entry(matrix, last, task) for task in range(len(matrix))])


def avg_acc_curve(matrix: AccuracyMatrix) -> list[float | None]:
    """Mean accuracy over the tasks learned so far, after each task, in [0, 1] (SEU paper, "Average Performance").

    Returns:
        T values, ``mean_{j<=i} R[i][j]`` for each i; ``None`` where an entry was not measured.
    """
    return [_mean([entry(matrix, row, task) for task in range(row + 1)]) for row in range(len(matrix))]


def avg_incremental_acc(matrix: AccuracyMatrix) -> float | None:
    """Average incremental accuracy: mean over tasks of the mean accuracy on all tasks learned so far, in [0, 1].

    After Rebuffi et al., "iCaRL", CVPR 2017. Numbers in papers differ in whether the first step counts (here it does)
    and whether means are over images or over tasks (here over tasks, which is the same where tasks are equally large).

    Returns:
        ``mean_i mean_{j<=i} R[i][j]``; ``None`` if one of these was not measured or there are no tasks.
    """
    return _mean(avg_acc_curve(matrix))


def task_accuracy(confusion: Sequence[Sequence[int]]) -> float | None:
    """Mean share of a task's test images that are answered with a class of that task, in [0, 1].

    Where a head answers with any class of any task it says how well tasks are told apart, whether or not the class is
    right.

    Args:
        confusion: T rows of T counts, ``C[i][j]`` test images of task i that are answered with a class of task j.

    Returns:
        ``mean_i C[i][i] / sum_j C[i][j]``; ``None`` if a row is missing or empty.
    """
    shares = [row[task] / sum(row) if sum(row) and len(row) > task else None for task, row in enumerate(confusion)]
    return _mean(shares)


def cross_task_errors(confusion: Sequence[Sequence[int]], errors: int) -> float | None:
    """Share of all errors that are a class of another task than the image's, in [0, 1].

    Args:
        confusion: as of :func:`task_accuracy`.
        errors: test images of all tasks that are answered wrongly.

    Returns:
        ``sum_{i != j} C[i][j] / errors``; ``None`` without a confusion or without errors.
    """
    if not confusion or not errors:
        return None
    return sum(count for task, row in enumerate(confusion) for other, count in enumerate(row) if other != task) / errors


def learning_acc(matrix: AccuracyMatrix) -> float | None:
    """Mean accuracy on each task right after it was learned, in [0, 1] (Riemer et al. 2019).

    Returns:
        ``mean_j R[j][j]``; ``None`` if the diagonal is not complete or there are no tasks.
    """
    return _mean([entry(matrix, task, task) for task in range(len(matrix))])


def bwt(matrix: AccuracyMatrix) -> float | None:
    """Backward transfer, in [-1, 1]; negative where tasks were forgotten (Lopez-Paz & Ranzato 2017).

    Returns:
        ``mean_{j<T-1} (R[T-1][j] - R[j][j])``; ``None`` for T < 2 or if one of these was not measured.
    """
    last = len(matrix) - 1
    return _mean([_difference(entry(matrix, last, task), entry(matrix, task, task)) for task in range(max(last, 0))])


def forgetting(matrix: AccuracyMatrix) -> float | None:
    """Mean fall of the tasks from their best, in [-1, 1]; less is better (Chaudhry et al. 2018).

    Returns:
        ``mean_{j<T-1} (max_{l<T-1} R[l][j] - R[T-1][j])``, the maximum over the entries that were measured; ``None``
        for T < 2, if the last row lacks one of these tasks, or if a task was never measured before the last one.
    """
    return _mean(task_forgetting(matrix))


def task_forgetting(matrix: AccuracyMatrix) -> list[float | None]:
    """Fall of each task but the last from its best, in [-1, 1]; :func:`forgetting` is the mean of these.

    Returns:
        T - 1 values, ``max_{l<T-1} R[l][j] - R[T-1][j]``; ``None`` where the last row lacks the task or it was never
        measured before the last one.
    """
    last = len(matrix) - 1
    falls: list[float | None] = []
    for task in range(max(last, 0)):
        before = [value for row in range(last) if (value := entry(matrix, row, task)) is not None]
        falls.append(_difference(max(before, default=None), entry(matrix, last, task)))
    return falls


def intransigence(matrix: AccuracyMatrix, reference: Sequence[float | None]) -> float | None:
    """Mean lack of accuracy beside a model trained on all tasks jointly, in [-1, 1]; less is better.

    After Chaudhry et al., "Riemannian Walk for Incremental Learning", ECCV 2018. They measure task j by a reference
    trained jointly on the tasks up to j. Here the reference is one joint model of the whole stream, of the same seed.

    Args:
        matrix: ``R``, T rows.
        reference: T accuracies in [0, 1], the reference's on each task.

    Returns:
        ``mean_j (reference[j] - R[j][j])``, negative where the strategy learns better than the reference; ``None`` if
        one of these was not measured, for either of the two, or there are no tasks.
    """
    tasks = range(max(len(matrix), len(reference)))
    return _mean([_difference(entry([reference], 0, task), entry(matrix, task, task)) for task in tasks])


def percent_of_joint(accuracy: float | None, joint: float | None) -> float | None:
    """Accuracy as a share of that of a model trained on all tasks jointly.

    Args:
        accuracy: :func:`acc` of the strategy, in [0, 1].
        joint: the same of the joint model.

    Returns:
        ``accuracy / joint``, a fraction that is shown in percent; above 1 where the strategy is better. ``None`` if one
        of them was not measured, or if ``joint`` is 0.
    """
    if accuracy is None or joint is None or not (math.isfinite(accuracy) and math.isfinite(joint)):
        return None
    return accuracy / joint if joint else None


def mixed_score(accuracy_percent: float, parameters: float) -> float:
    """Accuracy and model size in one number (SEU paper, equation of the mixed score "MS").

    ``sqrt(a) / 10 * (cos(pi * (1 - exp(-lg(n + 1) / 10))) + 1) / 2`` with lg the decimal logarithm. It is 1 for an
    accuracy of 100 % without any parameter, grows with accuracy and falls with size.

    Args:
        accuracy_percent: a, mean accuracy over all tasks in percent, 0 to 100.
        parameters: n, parameters stored (not millions), or bytes of all that is kept divided by the 4 of a float32.

    Raises:
        ValueError: the accuracy is not within 0 to 100, or the number of parameters is negative.
    """
    if not 0 <= accuracy_percent <= 100:
        raise ValueError(f"an accuracy in percent is between 0 and 100, not {accuracy_percent!r}")
    if parameters < 0:
        raise ValueError(f"a number of parameters is not negative: {parameters!r}")
    smallness = math.exp(-math.log10(parameters + 1) / 10)
    return math.sqrt(accuracy_percent) / 10 * (math.cos(math.pi * (1 - smallness)) + 1) / 2


def points_for_size(accuracy_percent: float, parameters: float, factor: float = 10.0) -> float:
    """Compute what a larger model must be better by for an equal mixed score.

    The score is ``sqrt(a) / 10 * f(n)``. It stays the same from n to ``factor * n`` parameters where the accuracy goes
    from a to ``a * (f(n) / f(factor * n)) ** 2``.

    Args:
        accuracy_percent: a, in percent, 0 to 100.
        parameters: n, parameters stored (not millions).
        factor: how many times as many the larger model has.

    Returns:
        The difference of both accuracies in points; with the accuracy it may be above 100: then no model of that size
        can have the score.

    Example:
        >>> round(points_for_size(80, 100_000), 1)
        27.0
    """
    ratio = mixed_score(100, round(parameters)) / mixed_score(100, round(factor * parameters))
    return accuracy_percent * (ratio**2 - 1)


def entry(matrix: AccuracyMatrix, row: int, task: int) -> float | None:
    """Return ``R[row][task]``; ``None`` where it was not measured."""
    values = matrix[row] if 0 <= row < len(matrix) else ()
    value = values[task] if task < len(values) else None
    return None if value is None or not math.isfinite(value) else value


def _difference(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left - right


def _mean(values: Sequence[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return fmean(measured) if measured and len(measured) == len(values) else None
