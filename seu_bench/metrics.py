"""Metrics: pure functions on the accuracy matrix and on sizes, each with one definition.

The accuracy matrix ``R`` is a sequence of T rows, one per task learned, in the order in which they were learned:
``R[i][j]`` in [0, 1] is the accuracy on task j's test images after learning task i (0-based). ``None`` (or NaN), and
whatever lies beyond the end of a row, was not measured. A value that would need an entry that was not measured is
``None``, never 0. Means are over tasks, whatever their number of images, unless a function says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Literal, TypeAlias

AccuracyMatrix: TypeAlias = Sequence[Sequence[float | None]]
#: How many of task i's images were answered with a class of task j, a row for each i, of which none is empty.
TaskConfusion: TypeAlias = Sequence[Sequence[int]]
#: For each class of each task the number of right answers, and of images.
ClassCounts: TypeAlias = Sequence[Sequence[tuple[int, int]]]


def acc(matrix: AccuracyMatrix) -> float | None:
    """Mean accuracy over all T tasks after the last one, in [0, 1] (Lopez-Paz & Ranzato 2017).

    Returns:
        ``mean_j R[T-1][j]``; ``None`` if the last row is not complete or there are no tasks.
    """
    last = len(matrix) - 1
    return _mean([entry(matrix, last, task) for task in range(len(matrix))])


def image_acc(matrix: AccuracyMatrix, images: Sequence[int]) -> float | None:
    """Accuracy over the test images of all T tasks after the last one, in [0, 1]: the share that is answered right.

    It differs from :func:`acc` where tasks have different numbers of test images.

    Args:
        matrix: ``R``, T rows.
        images: number of test images of each task.

    Returns:
        ``sum_j n_j R[T-1][j] / sum_j n_j``; ``None`` if the last row is not complete, a number is missing, or there is
        no image.

    Example:
        >>> image_acc([[1.0], [0.25, 1.0]], [4, 1])
        0.4
    """
    return _share_right(matrix[-1], images) if 0 < len(images) == len(matrix) else None


def balanced_acc(counts: ClassCounts) -> float | None:
    """Mean over the classes of all tasks of the accuracy on each class's test images, in [0, 1].

    Args:
        counts: for each class of each task the number of right answers, and of images; classes without an image do not
            count.

    Returns:
        The mean; ``None`` if a task was not evaluated or there are none.

    Example:
        >>> balanced_acc([[(8, 8), (0, 1)], [(3, 4), (0, 0)]])
        0.5833333333333334
    """
    shares = [right / images for task in counts for right, images in task if images]
    return _mean(shares) if all(any(images for _, images in task) for task in counts) else None


def avg_acc_curve(matrix: AccuracyMatrix) -> list[float | None]:
    """Mean accuracy over the tasks learned so far, after each task, in [0, 1] (SEU paper, "Average Performance").

    Returns:
        T values, ``mean_{j<=i} R[i][j]`` for each i; ``None`` where an entry was not measured.
    """
    return [_mean([entry(matrix, row, task) for task in range(row + 1)]) for row in range(len(matrix))]


def avg_incremental_acc(matrix: AccuracyMatrix) -> float | None:
    """Average incremental accuracy, in [0, 1] (Rebuffi et al. 2017): the mean of :func:`avg_acc_curve`.

    Every step counts, the first one included, and at each step every task learned so far counts the same. Published
    numbers of this name differ in both: some leave out the first step, after which nothing can be forgotten, and some
    take the mean over images, which is another one where tasks have different numbers of them.

    Returns:
        ``mean_i mean_{j<=i} R[i][j]``; ``None`` if one of these was not measured or there are no tasks.

    Example:
        >>> avg_incremental_acc([[1.0], [0.5, 0.5]])
        0.75
    """
    return _mean(avg_acc_curve(matrix))


def avg_incremental_image_acc(matrix: AccuracyMatrix, images: Sequence[int]) -> float | None:
    """Mean over the steps of the accuracy over the test images of all tasks seen so far, in [0, 1].

    It is the average incremental accuracy of class-incremental papers, whose steps are measured on the test images of
    all classes seen so far at once (S. Hou et al., CVPR 2019; A. Douillard et al., "PODNet", ECCV 2020; the first step
    included), and differs from :func:`avg_incremental_acc` where tasks have different numbers of test images.

    Args:
        matrix: ``R``, T rows.
        images: number of test images of each task.

    Returns:
        ``mean_i (sum_{j<=i} n_j R[i][j] / sum_{j<=i} n_j)``; ``None`` if one of these was not measured, a number is
        missing, a step has no image, or there are no tasks.

    Example:
        >>> avg_incremental_image_acc([[1.0], [0.25, 1.0]], [4, 1])
        0.7
    """
    rows = enumerate(matrix, 1) if len(images) == len(matrix) else ()
    return _mean([_share_right(row, images[:seen]) for seen, row in rows])


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


def fwt(forward: Sequence[float | None], untrained: Sequence[float | None]) -> float | None:
    """Forward transfer, in [-1, 1]: what a task gains, before it is learned, from those before (Lopez-Paz & Ranzato
    2017).

    Args:
        forward: ``R[i-1][i]`` of each of T tasks, the accuracy on task i before it is learned; the first has none.
        untrained: ``b[i]``, the accuracy on each task before anything is learned.

    Returns:
        ``mean_{i>0} (R[i-1][i] - b[i])``; ``None`` for T < 2 or if one of these was not measured.

    Example:
        >>> fwt([None, 0.75, 0.5], [0.25, 0.25, 0.5])
        0.25
    """
    if len(forward) != len(untrained):
        return None
    return _mean([_difference(after, before) for after, before in zip(forward[1:], untrained[1:], strict=True)])


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


def task_accuracy(confusion: TaskConfusion) -> float | None:
    """How well the task of an image is told, in [0, 1]: the mean share of answers that are a class of their own task.

    Args:
        confusion: ``C[i][j]``, how many of task i's images were answered with a class of task j; T rows and columns.

    Returns:
        ``mean_i (C[i][i] / sum_j C[i][j])``; ``None`` if a row is missing or has no image, or there are no tasks.

    Example:
        >>> task_accuracy([[8, 2], [5, 5]])
        0.65
    """
    return _mean([row[task] / sum(row) if _is_counted(row, confusion) else None for task, row in enumerate(confusion)])


def cross_task_errors(confusion: TaskConfusion, accuracies: Sequence[float | None]) -> float | None:
    """Share of the errors that are a class of another task, in [0, 1].

    Args:
        confusion: ``C[i][j]``, how many of task i's images were answered with a class of task j; T rows and columns.
        accuracies: T accuracies in [0, 1] of the same answers, on each task.

    Returns:
        ``sum_i sum_{j!=i} C[i][j] / sum_i (1 - accuracies[i]) n_i`` with ``n_i = sum_j C[i][j]`` images of task i;
        ``None`` where there is no error, if one of these was not measured, or if they cannot be of the same answers.

    Example:
        >>> cross_task_errors([[8, 2], [5, 5]], [0.6, 0.5])  # 7 of 9 errors
        0.7777777777777778
    """
    crossed = errors = 0
    for task, row in enumerate(confusion):
        accuracy = entry([accuracies], 0, task)
        if accuracy is None or not _is_counted(row, confusion):
            return None
        crossed += sum(row) - row[task]
        errors += sum(row) - round(accuracy * sum(row))
    return crossed / errors if errors and crossed <= errors else None


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


def transfer(matrix: AccuracyMatrix, reference: AccuracyMatrix) -> float | None:
    """Transfer to the last task, in [-1, 1]: what it gains from the tasks before (CTrL's T(S); Veniat, Denoyer &
    Ranzato, ICLR 2021).

    Args:
        matrix: ``R``, T rows.
        reference: the matrix of networks each trained on its task alone, with the same budget.

    Returns:
        ``R[T-1][T-1]`` less the reference's; ``None`` if one of the two was not measured, or there are no tasks.

    Example:
        >>> transfer([[0.9, None], [0.9, 0.8]], [[0.9, None], [0.9, 0.55]])
        0.25
    """
    last = len(matrix) - 1
    if last < 0 or len(reference) != len(matrix):
        return None
    return _difference(entry(matrix, last, last), entry(reference, last, last))


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


def chance_acc(classes: Sequence[int], scenario: Literal["task", "class", "domain"]) -> float | None:
    """Accuracy of a guess among the classes that an answer may be, in [0, 1]; a constant answer's, where they are
    equally frequent.

    Args:
        classes: number of classes of each task.
        scenario: ``task``: an answer is a class of its own task; ``domain``: tasks share their classes.

    Returns:
        The mean over tasks of 1 / classes; ``None`` if a number is missing.
    """
    answers = [sum(classes)] if scenario == "class" else classes
    return fmean(1 / number for number in answers) if answers and 0 not in answers else None


def mixed_score_above_chance(accuracy: float | None, chance: float | None, parameters: float | None) -> float | None:
    """Accuracy above chance and model size in one number, in [0, 1].

    ``max(0, (a - c) / (1 - c))`` times :func:`mixed_score` of an accuracy of 100 %: 0 for an answer that knows nothing,
    whatever its size, 1 for one that is always right and has no parameter. Unlike in :func:`mixed_score` the accuracy
    has no root, which is steepest where an answer is worth least.

    Args:
        accuracy: a, mean accuracy over all tasks, in [0, 1].
        chance: c, :func:`chance_acc`, in [0, 1).
        parameters: n, as of :func:`mixed_score`.

    Returns:
        The score; ``None`` if one of the three was not measured, or is out of its range.

    Example:
        >>> mixed_score_above_chance(0.5, 0.5, 0), mixed_score_above_chance(1.0, 0.5, 0)
        (0.0, 1.0)
    """
    if accuracy is None or chance is None or parameters is None:
        return None
    if not (0 <= accuracy <= 1 and 0 <= chance < 1 and parameters >= 0):
        return None
    return max(0.0, (accuracy - chance) / (1 - chance)) * mixed_score(100, parameters)


def entry(matrix: AccuracyMatrix, row: int, task: int) -> float | None:
    """Return ``R[row][task]``; ``None`` where it was not measured."""
    values = matrix[row] if 0 <= row < len(matrix) else ()
    value = values[task] if task < len(values) else None
    return None if value is None or not math.isfinite(value) else value


def _share_right(row: Sequence[float | None], images: Sequence[int]) -> float | None:
    right = [it * number for it, number in zip(row, images, strict=False) if it is not None and math.isfinite(it)]
    return sum(right) / sum(images) if len(right) == len(images) and any(images) else None


def _is_counted(row: Sequence[int], confusion: TaskConfusion) -> bool:
    """Whether a row has a count for every task, and an image."""
    return len(row) == len(confusion) and sum(row) > 0


def _difference(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left - right


def _mean(values: Sequence[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return fmean(measured) if measured and len(measured) == len(values) else None
