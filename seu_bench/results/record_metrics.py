"""Core's metrics in one table, and their values for a record."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import seu_bench.metrics as formulas
from seu_bench.config.streams import Scenario
from seu_bench.metrics import AccuracyMatrix, TaskConfusion
from seu_bench.results.metric import Metric, Value

if TYPE_CHECKING:
    from seu_bench.results.record import Record

#: The stage that measures the matrix; no cost counts it.
EVALUATION: Final = "evaluation"
SEARCH: Final = "search"
#: Bytes of a parameter in float32.
FLOAT_BYTES: Final = 4


def complete_matrix(record: Record) -> AccuracyMatrix:
    """Return a record's accuracy matrix with a row for every task of the stream.

    Tasks that were never learned are rows without measurements, so that nothing is called final which is not.
    """
    tasks = max(len(record.task_order), len(record.task_names), len(record.task_classes), len(record.accuracy_matrix))
    return [*record.accuracy_matrix, *[()] * (tasks - len(record.accuracy_matrix))]


def measured_rows(record: Record) -> list[int]:
    """Return the tasks (0-based) after which the model was evaluated."""
    return [row for row, values in enumerate(record.accuracy_matrix) if any(value is not None for value in values)]


def _matrix(function: Callable[[AccuracyMatrix], float | None]) -> Callable[[Record], Value]:
    return lambda record: function(complete_matrix(record))


def _test_images(record: Record) -> list[int]:
    return [images for *_, images in record.task_images]


def _confusion(record: Record) -> TaskConfusion | None:
    is_counted = record.scenario == "class" and len(record.task_confusion) == len(complete_matrix(record)) > 0
    return record.task_confusion if is_counted else None


def _cross_task_errors(record: Record) -> float | None:
    counts = _confusion(record)
    return None if counts is None else formulas.cross_task_errors(counts, complete_matrix(record)[-1])


def _task_accuracy(record: Record) -> float | None:
    counts = _confusion(record)
    return None if counts is None else formulas.task_accuracy(counts)


def _last(field: str) -> Callable[[Record], Value]:
    return lambda record: next(reversed(getattr(record, field)), None)


def _memory_added(record: Record) -> Value:
    kept = next(reversed(record.memory_bytes), None)
    return None if kept is None or record.encoder is None else kept - record.encoder.bytes


def _undefined(record: Record) -> None:
    """Not defined by a record alone."""


def _mixed_score(field: str, per_number: int = 1) -> Callable[[Record], Value]:
    """The mixed score with the last entry of a size per task, so many units of which are one number."""

    def score(record: Record) -> float | None:
        accuracy, size = formulas.acc(complete_matrix(record)), _last(field)(record)
        if accuracy is None or size is None:
            return None
        return formulas.mixed_score(100 * accuracy, size / per_number)

    return score


def _mixed_score_above_chance(record: Record) -> float | None:
    accuracy, chance = formulas.acc(complete_matrix(record)), formulas.chance_acc(record.task_classes, record.scenario)
    return formulas.mixed_score_above_chance(accuracy, chance, _last("params_total")(record))


def _stages(field: str, name: str | None = None) -> Callable[[Record], Value]:
    """The sum of a field over the stages of this name, or over all but evaluation; ``None`` where one lacks it."""

    def total(record: Record) -> Value:
        counted = (stage for stage in record.stages if (stage.name == name if name else stage.name != EVALUATION))
        values = [getattr(stage, field) for stage in counted]
        if not values or None in values:
            return None
        return sum(values) if all(isinstance(value, int) for value in values) else math.fsum(values)

    return total


def _intransigence(record: Record, reference: Record) -> float | None:
    rows = complete_matrix(reference)
    return formulas.intransigence(complete_matrix(record), rows[-1] if rows else ())


def _transfer(record: Record, reference: Record) -> float | None:
    return formulas.transfer(complete_matrix(record), complete_matrix(reference))


_score = partial(Metric, unit="fraction", higher_is_better=True)
_loss = partial(Metric, unit="fraction", higher_is_better=False)
_size = partial(Metric, unit="count", higher_is_better=False)
_operations = partial(Metric, unit="flops", higher_is_better=False)
_time = partial(Metric, unit="seconds", higher_is_better=False, machine_dependent=True)
_memory = partial(Metric, _undefined, unit="bytes", higher_is_better=False, machine_dependent=True, from_record=False)

#: Core's metrics by id, in the order of columns and tables; this project's peers do not agree on all definitions.
METRICS: Final[Mapping[str, Metric]] = {
    "acc": _score(
        _matrix(formulas.acc),
        "mean over tasks of the accuracy after the last task: mean_j R[T-1,j] (Lopez-Paz & Ranzato 2017)",
        column="acc (%)",
    ),
    "image_acc": _score(
        lambda record: formulas.image_acc(complete_matrix(record), _test_images(record)),
        "accuracy over the test images of all tasks after the last one, whichever task they are of",
        column="image acc (%)",
    ),
    "balanced_acc": _score(
        lambda record: formulas.balanced_acc(record.task_class_counts),
        "balanced accuracy: mean over the classes of all tasks of the accuracy on each, after the last task",
    ),
    "forgetting": _loss(
        _matrix(formulas.forgetting),
        "mean_{j<T-1} (max_{l<T-1} R[l,j] - R[T-1,j]) (Chaudhry et al. 2018)",
        column="forgetting (%)",
    ),
    "avg_incremental_acc": _score(
        _matrix(formulas.avg_incremental_acc),
        "average incremental accuracy: mean_i mean_{j<=i} R[i,j], the first step included (Rebuffi et al. 2017)",
        column="incremental acc (%)",
    ),
    "avg_incremental_image_acc": _score(
        lambda record: formulas.avg_incremental_image_acc(complete_matrix(record), _test_images(record)),
        "average incremental accuracy over images: mean_i of the accuracy over the test images of all tasks j <= i "
        "(as Hou et al. 2019 and PODNet, Douillard et al. 2020, measure)",
        column="incremental image acc (%)",
    ),
    "task_accuracy": _score(
        _task_accuracy,
        "share of test images whose answer is a class of their own task, mean over tasks, after the last one; "
        "class-incremental only",
        column="task acc (%)",
    ),
    "cross_task_errors": Metric(
        _cross_task_errors,
        "share of the errors that are a class of another task, after the last task; class-incremental only",
        unit="fraction",
        column="cross-task errors (%)",
    ),
    "memory_bytes": Metric(
        _last("memory_bytes"),
        "bytes of all that is kept for later tasks, after the last one: parameters, buffers, exemplars as 8-bit "
        "images, importances, anchors, teachers",
        unit="bytes",
        higher_is_better=False,
        column="memory (MB)",
    ),
    "memory_added_bytes": Metric(
        _memory_added,
        "memory_bytes without the pretrained network: what tasks add, heads and statistics included; null: there is no "
        "pretrained network",
        unit="bytes",
        higher_is_better=False,
        column="memory added (MB)",
    ),
    "params_total": _size(
        _last("params_total"),
        "parameters stored after the last task, each counted once, all heads included (SEU paper)",
        column="parameters (M)",
    ),
    "mask_bits": _size(
        _last("mask_bits"),
        "bits of binary masks that tell tasks apart, after the last task: one for each weight or unit that a mask "
        "takes or leaves; embeddings and other numbers that are learned are parameters",
        column="masks (Mbit)",
    ),
    "train_flops": _operations(
        _stages("flops"),
        "floating-point operations of all stages but evaluation, searching included: two per multiply-accumulate of "
        "convolutions and linear layers, forward and backward",
        column="training (TFLOP)",
    ),
    "mixed_score": Metric(
        _mixed_score("params_total"),
        "accuracy and size in one number in [0, 1], from acc and params_total (SEU paper, equation MS)",
        unit="score",
        higher_is_better=True,
        column="mixed score",
    ),
    "mixed_score_above_chance": Metric(
        _mixed_score_above_chance,
        "max(0, (acc - c) / (1 - c)), c = chance, times the mixed score of params_total at an accuracy of 100 %: "
        "0 for a guess of any size, 1 for a perfect answer of none",
        unit="score",
        higher_is_better=True,
        column="mixed score above chance",
    ),
    "mixed_score_memory": Metric(
        _mixed_score("memory_bytes", FLOAT_BYTES),
        "the mixed score of all that is kept, n = memory_bytes / 4: as many parameters as would take that memory",
        unit="score",
        higher_is_better=True,
        column="mixed score (memory)",
    ),
    "percent_of_joint": _score(
        _undefined,
        "acc divided by the acc of joint training with the same seed; leaderboards only",
        column="% of joint",
        relative=lambda record, joint: formulas.percent_of_joint(record.metrics.get("acc"), joint.metrics.get("acc")),
    ),
    "macs": _size(_last("macs"), "multiply-accumulates per image on the last task's path, forward", column="MACs (M)"),
    "search_flops": _operations(
        _stages("flops", SEARCH), "floating-point operations of the search stages", column="search (TFLOP)"
    ),
    "learning_acc": _score(
        _matrix(formulas.learning_acc),
        "mean accuracy on each task right after learning it: mean_j R[j,j] (Riemer et al. 2019)",
        column="learning acc (%)",
    ),
    "intransigence": _loss(
        _undefined,
        "mean_j (J[j] - R[j,j]), J[j] = accuracy on task j of one model trained on the whole stream "
        "(joint training, same seed); leaderboards only (after Chaudhry et al. 2018)",
        column="intransigence (%)",
        relative=_intransigence,
    ),
    "transfer": _score(
        _undefined,
        "accuracy on the last task less that of a network of its own, trained on it alone with the same budget and "
        "seed (strategy independent); leaderboards only (T(S) of Veniat et al. 2021)",
        relative=_transfer,
        reference="apart",
    ),
    "train_seconds": _time(
        _stages("seconds"),
        "wall-clock seconds of all stages but evaluation, searching included",
        column="training (s)",
    ),
    "tuning_passes": _size(
        lambda record: record.tuned.image_passes if record.tuned is not None else None,
        "images passed forward by the tuning that chose the options, all of its trials together; null: they were not "
        "tuned",
        column="tuning (M passes)",
    ),
    "bwt": _score(
        _matrix(formulas.bwt), "backward transfer: mean_{j<T-1} (R[T-1,j] - R[j,j]) (Lopez-Paz & Ranzato 2017)"
    ),
    "fwt": _score(
        lambda record: (
            formulas.fwt(*zip(*record.forward_accuracies, strict=True)) if record.forward_accuracies else None
        ),
        "forward transfer: mean_{i>0} (R[i-1,i] - b_i), b = untrained accuracy (Lopez-Paz & Ranzato 2017); "
        "domain-incremental only, where one head answers for a task before it is learned",
    ),
    "params_active": _size(_last("params_active"), "parameters on the last task's own path, its head included"),
    "train_cpu_seconds": _time(
        _stages("cpu_seconds"), "seconds that the processors computed in the same stages, all threads together"
    ),
    "search_seconds": _time(_stages("seconds", SEARCH), "wall-clock seconds of the search stages"),
    "image_passes": _size(_stages("image_passes"), "images passed forward in all stages but evaluation"),
    "peak_memory_bytes": _memory("largest memory held on the accelerator, in bytes"),
    "peak_feature_bytes": _memory("peak memory of cached outputs of frozen layers (--feature-cache), in bytes"),
}

#: Metrics that leaderboards of these scenarios alone show: elsewhere they say little, or are not defined.
SCENARIO_METRICS: Final[Mapping[str, Sequence[Scenario]]] = {
    "avg_incremental_acc": ("class", "domain"),
    "avg_incremental_image_acc": ("class", "domain"),
    "task_accuracy": ("class",),
    "cross_task_errors": ("class",),
}

#: Metrics over images, which are shown where another one over tasks is another value.
OVER_IMAGES: Final[Mapping[str, str]] = {"image_acc": "acc", "avg_incremental_image_acc": "avg_incremental_acc"}

#: Defaults of a metric that is not registered.
_UNKNOWN: Final = Metric(_undefined)


def known_metric(name: str, metrics: Mapping[str, Metric] = METRICS) -> Metric:
    """Return the metric of this id, or one with defaults where it is unknown, e.g. of a plugin that is gone."""
    return metrics.get(name, _UNKNOWN)


def says_more(record: Record, metric: str) -> bool:
    """Return whether an accuracy over images is another one than that over tasks, as these differ in test images."""
    over_tasks, over_images = record.metrics.get(OVER_IMAGES[metric]), record.metrics.get(metric)
    return over_tasks is not None and over_images is not None and not math.isclose(over_tasks, over_images)


def in_order(names: Sequence[str], metrics: Mapping[str, Metric] = METRICS) -> list[str]:
    """Return ids in the order of the registry, those that are unknown last, by name."""
    return [*[name for name in metrics if name in names], *sorted(set(names) - set(metrics))]


def compute_metrics(record: Record) -> dict[str, Value]:
    """Compute core's metrics of a record; ``None`` where not measured or not defined, or not by a record alone."""
    return {name: metric(record) for name, metric in METRICS.items()}


def without_times(record: Record, metrics: Mapping[str, Metric] = METRICS) -> dict[str, Any]:
    """Return a record's values without clocks, measured memory and places: equal in two runs of one seed."""
    clocks = {"__all__": {"seconds", "cpu_seconds"}}
    others = dict.fromkeys(("started", "seconds", "record_sha256", "benchmark_file"), True)
    document = record.model_dump(mode="json", exclude={**others, "stages": clocks})
    document["metrics"] = {
        name: value for name, value in document["metrics"].items() if not known_metric(name, metrics).machine_dependent
    }
    return document


def check_metrics(
    record: Record, metrics: Mapping[str, Metric], *, with_absent: bool = True
) -> tuple[list[str], list[str]]:
    """Compare recorded metrics with what the rest of the record gives: differences, and what cannot be compared.

    ``with_absent``: a metric that could be computed and is not recorded is a difference, but in older records.
    """
    faults, not_compared = [], []
    for name in dict.fromkeys([*(METRICS if with_absent else ()), *record.metrics]):
        if name not in metrics:
            not_compared.append(f"{name} (its plugin is not installed)")
            continue
        if not metrics[name].from_record:
            continue
        try:
            found = metrics[name](record)
        except Exception as error:  # a plugin's may raise anything, and a record may have been changed to anything
            if name in METRICS:
                return [f"they cannot be computed: {error}"], not_compared
            not_compared.append(f"{name} ({type(error).__name__}: {error})")
            continue
        recorded = record.metrics.get(name)  # absent and not measured are the same: older versions know fewer metrics
        if recorded is None or found is None:
            is_same = recorded is found
        else:  # another machine's mathematical library may round otherwise
            is_same = math.isclose(recorded, found, rel_tol=1e-12, abs_tol=1e-12)
        if not is_same:
            told = f"recorded {recorded}" if name in record.metrics else "not recorded"
            faults.append(f"{name}: {told}, found {found}")
    return faults, not_compared
