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
from typing import Final, TypeAlias

from seu_bench.utils.text import format_seconds

AccuracyMatrix: TypeAlias = Sequence[Sequence[float | None]]

#: What each id means, one line each; the peers of this project do not agree on all of them.
METRIC_DEFINITIONS: Final[dict[str, str]] = {
    "acc": "mean over tasks of the accuracy after the last task: mean_j R[T-1,j] (Lopez-Paz & Ranzato 2017)",
    "avg_acc_curve": "after each task i, mean accuracy on the tasks learned so far: mean_{j<=i} R[i,j] (SEU paper)",
    "learning_acc": "mean accuracy on each task right after learning it: mean_j R[j,j] (Riemer et al. 2019)",
    "bwt": "backward transfer: mean_{j<T-1} (R[T-1,j] - R[j,j]) (Lopez-Paz & Ranzato 2017)",
    "forgetting": "mean_{j<T-1} (max_{l<T-1} R[l,j] - R[T-1,j]) (Chaudhry et al. 2018)",
    "intransigence": "mean_j (J[j] - R[j,j]), J[j] = accuracy on task j of one model trained on the whole stream "
    "(joint, same seed); leaderboards only (after Chaudhry et al. 2018)",
    "percent_of_joint": "acc divided by the acc of the run of joint with the same seed; leaderboards only",
    "fwt": "forward transfer: mean_{i>0} (R[i-1,i] - b_i), b = untrained accuracy (Lopez-Paz & Ranzato 2017)",
    "params_total": "parameters stored after the last task, each counted once, all heads included (SEU paper)",
    "params_active": "parameters on the last task's own path, its head included",
    "macs": "multiply-accumulates per image on the last task's path, forward",
    "mixed_score": "accuracy and size in one number in [0, 1], from acc and params_total (SEU paper, equation MS)",
    "train_seconds": "wall-clock seconds of all stages but evaluation, searching included",
    "train_cpu_seconds": "seconds that the processors computed in the same stages, all threads together",
    "search_seconds": "wall-clock seconds of the search stages",
    "image_passes": "images passed forward in all stages but evaluation",
    "peak_memory_bytes": "largest memory held on the accelerator, in bytes",
    "peak_feature_bytes": "outputs of frozen layers kept at the most (--feature-cache), in bytes",
}

#: Metrics that are a number for every task rather than one for the run.
CURVES: Final = frozenset({"avg_acc_curve"})

#: Metrics of a run beside another one; a record has them as ``None``, leaderboards find them.
RELATIVE: Final = ("intransigence", "percent_of_joint")

#: Ids whose values are fractions that are read as percent.
FRACTIONS: Final = frozenset({"acc", "learning_acc", "bwt", "forgetting", "intransigence", "percent_of_joint", "fwt"})


def acc(matrix: AccuracyMatrix) -> float | None:
    """Mean accuracy over all T tasks after the last one, in [0, 1] (Lopez-Paz & Ranzato 2017).

    Args:
        matrix: ``R``, T rows.

    Returns:
        ``mean_j R[T-1][j]``; ``None`` if the last row is not complete or there are no tasks.
    """
    last = len(matrix) - 1
    return _mean([_entry(matrix, last, task) for task in range(len(matrix))])


def avg_acc_curve(matrix: AccuracyMatrix) -> list[float | None]:
    """Mean accuracy over the tasks learned so far, after each task, in [0, 1] (SEU paper, "Average Performance").

    Args:
        matrix: ``R``, T rows.

    Returns:
        T values, ``mean_{j<=i} R[i][j]`` for each i; ``None`` where an entry was not measured.
    """
    return [_mean([_entry(matrix, row, task) for task in range(row + 1)]) for row in range(len(matrix))]


def learning_acc(matrix: AccuracyMatrix) -> float | None:
    """Mean accuracy on each task right after it was learned, in [0, 1] (Riemer et al. 2019).

    Args:
        matrix: ``R``, T rows.

    Returns:
        ``mean_j R[j][j]``; ``None`` if the diagonal is not complete or there are no tasks.
    """
    return _mean([_entry(matrix, task, task) for task in range(len(matrix))])


def bwt(matrix: AccuracyMatrix) -> float | None:
    """Backward transfer, in [-1, 1]; negative where tasks were forgotten (Lopez-Paz & Ranzato 2017).

    Args:
        matrix: ``R``, T rows.

    Returns:
        ``mean_{j<T-1} (R[T-1][j] - R[j][j])``; ``None`` for T < 2 or if one of these was not measured.
    """
    last = len(matrix) - 1
    return _mean([_difference(_entry(matrix, last, task), _entry(matrix, task, task)) for task in range(max(last, 0))])


def forgetting(matrix: AccuracyMatrix) -> float | None:
    """How far the tasks fell from their best, in [-1, 1]; less is better (Chaudhry et al. 2018).

    Args:
        matrix: ``R``, T rows.

    Returns:
        ``mean_{j<T-1} (max_{l<T-1} R[l][j] - R[T-1][j])``, the maximum over the entries that were measured; ``None``
        for T < 2, if the last row lacks one of these tasks, or if a task was never measured before the last one.
    """
    return _mean(task_forgetting(matrix))


def task_forgetting(matrix: AccuracyMatrix) -> list[float | None]:
    """How far each task but the last fell from its best, in [-1, 1]; :func:`forgetting` is the mean of these.

    Args:
        matrix: ``R``, T rows.

    Returns:
        T - 1 values, ``max_{l<T-1} R[l][j] - R[T-1][j]``; ``None`` where the last row lacks the task or it was never
        measured before the last one.
    """
    last = len(matrix) - 1
    falls: list[float | None] = []
    for task in range(max(last, 0)):
        before = [value for row in range(last) if (value := _entry(matrix, row, task)) is not None]
        falls.append(_difference(max(before, default=None), _entry(matrix, last, task)))
    return falls


def intransigence(matrix: AccuracyMatrix, reference: Sequence[float | None]) -> float | None:
    """How far a strategy learns its tasks worse than a model trained on all of them, in [-1, 1]; less is better.

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
    return _mean([_difference(_entry([reference], 0, task), _entry(matrix, task, task)) for task in tasks])


def percent_of_joint(accuracy: float | None, joint: float | None) -> float | None:
    """A strategy's accuracy as a share of that of a model trained on all tasks jointly.

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


def fwt(matrix: AccuracyMatrix, baseline: Sequence[float | None]) -> float | None:
    """Forward transfer, in [-1, 1]: what earlier tasks bring to one not learned yet (Lopez-Paz & Ranzato 2017).

    Only defined where a strategy can answer for a task that it has not learned.

    Args:
        matrix: ``R``, T rows, with the entries right above the diagonal.
        baseline: T accuracies in [0, 1], task i's at random initialisation; the first is not used.

    Returns:
        ``mean_{i>0} (R[i-1][i] - baseline[i])``; ``None`` for T < 2 or if one of these was not measured.
    """
    return _mean(
        [_difference(_entry(matrix, task - 1, task), _entry([baseline], 0, task)) for task in range(1, len(matrix))]
    )


def mixed_score(accuracy_percent: float, parameters: int) -> float:
    """Accuracy and model size in one number (SEU paper, equation of the mixed score "MS").

    ``sqrt(a) / 10 * (cos(pi * (1 - exp(-lg(n + 1) / 10))) + 1) / 2`` with lg the decimal logarithm. It is 1 for an
    accuracy of 100 % without any parameter, grows with accuracy and falls with size.

    Args:
        accuracy_percent: a, mean accuracy over all tasks in percent, 0 to 100.
        parameters: n, parameters stored (not millions).

    Raises:
        ValueError: the accuracy is not within 0 to 100, or the number of parameters is negative.
    """
    if not 0 <= accuracy_percent <= 100:
        raise ValueError(f"an accuracy in percent is between 0 and 100, not {accuracy_percent!r}")
    if parameters < 0:
        raise ValueError(f"a number of parameters is not negative: {parameters!r}")
    smallness = math.exp(-math.log10(parameters + 1) / 10)
    return math.sqrt(accuracy_percent) / 10 * (math.cos(math.pi * (1 - smallness)) + 1) / 2


def format_metric(name: str, value: float | None) -> str:
    """A metric's value for a reader: fractions in percent, times and sizes in units; ``-`` for ``None``.

    Args:
        name: the metric's id; one that is not known here is shown as a plain number.
        value: as in a record.
    """
    if value is None:
        return "-"
    if name in FRACTIONS:
        return f"{round(100 * value, 2) + 0.0:.2f} %"  # adding 0.0 turns -0.0 into 0.0
    if name == "mixed_score":
        return f"{value:.4f}"
    if name.endswith("_seconds"):
        return format_seconds(value)
    if name.endswith("_bytes"):
        return f"{value / 2**20:,.1f} MiB"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _entry(matrix: AccuracyMatrix, row: int, task: int) -> float | None:
    values = matrix[row] if 0 <= row < len(matrix) else ()
    value = values[task] if task < len(values) else None
    return None if value is None or math.isnan(value) else value


def _difference(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left - right


def _mean(values: Sequence[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return fmean(measured) if measured and len(measured) == len(values) else None
