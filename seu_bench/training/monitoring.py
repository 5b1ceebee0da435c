"""What a run measures: accuracies, sizes, bytes kept from task to task; and what a user attaches to a run.

Kept is what a deployment without access to old data would have to keep to answer every task and to learn another one:
parameters and buffers of the model, and all that earlier tasks left for later ones, such as exemplars, importances and
anchors. What a task makes and its end throws away (gradients, optimisers, cached features) is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, Self

import torch
from avalanche.core import BasePlugin, BaseSGDPlugin, SupervisedPlugin
from avalanche.evaluation import PluginMetric
from avalanche.evaluation.metric_results import MetricValue
from avalanche.logging import BaseLogger
from avalanche.training.plugins import EvaluationPlugin
from torch import Tensor, nn

from seu_bench.data.images import TaskImages
from seu_bench.models.modes import modes_kept
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.models.sizes import count_bytes, count_macs, count_parameters
from seu_bench.models.walk import named_state

#: Bytes of an image's label and of the number of its task.
LABEL_BYTES: Final = 2
#: Classes whose callbacks do nothing.
_EMPTY: Final = (BasePlugin, BaseSGDPlugin, SupervisedPlugin, PluginMetric, BaseLogger)


@dataclass(frozen=True)
class KeptImages:
    """Training images kept beyond their task, with their labels, e.g. ``KeptImages(200, (1, 28, 28))``.

    However a strategy keeps them, as tensors or as places in a stream, a deployment has to keep the images: 8 bits for
    each pixel and channel, and a byte each for label and task. The shape has channels as the data set has them, before
    grey images are repeated, height and width. Of features and of tokens it has the length: each takes 32 bits.
    """

    count: int
    shape: tuple[int, ...]

    @classmethod
    def of(cls, images: TaskImages) -> Self:
        """All images of a split or of a part of one."""
        return cls(len(images), tuple(images.store.shape[1:]))

    @property
    def nbytes(self) -> int:
        """Bytes of images and labels."""
        return self.count * (math.prod(self.shape) * (1 if len(self.shape) == 3 else 4) + LABEL_BYTES)


def has_state(it: Any) -> bool:
    """Return whether what is attached can be saved and restored with a run."""
    return hasattr(it, "state_dict") and hasattr(it, "load_state_dict")


def bytes_by_kind(kept: Mapping[str, Any]) -> dict[str, int]:
    """Count what is kept, in bytes by kind.

    Args:
        kept: by kind, in any nesting of mappings and sequences, tensors, modules (their parameters and persistent
            buffers), :class:`~seu_bench.data.images.TaskImages` and :class:`KeptImages`. Other values, such as numbers
            and names, are not counted.

    Returns:
        Bytes of each kind that takes any. Memory that tensors share is counted once, for the first kind that has it.
    """
    found: dict[str, int] = {}
    tensors, spans, counted = dict[int, Tensor](), dict[object, set[tuple[int, int]]](), 0
    for kind, value in kept.items():
        before, known, images = counted, len(tensors), sum(_collect(value, tensors))
        if len(tensors) > known:
            counted = count_bytes(islice(tensors.values(), known, None), spans)
        if taken := counted - before + images:
            found[kind] = taken
    return found


def memory_of(strategy: Any) -> dict[str, int] | None:
    """Count what an Avalanche strategy keeps between two tasks, in bytes by kind; ``None`` where it does not say so, as
    Avalanche's own do not, nor attached plugins without ``state_dict()``.
    """
    kept: Mapping[str, Any] = getattr(strategy, "kept", dict)()
    plugins = [it for it in getattr(strategy, "attached", {}).values() if not isinstance(it, PluginMetric)]
    if not kept or not all(map(has_state, plugins)):
        return None
    return bytes_by_kind({**kept, "attached": [plugin.state_dict() for plugin in plugins]})


def _collect(value: Any, tensors: dict[int, Tensor]) -> Iterator[int]:
    """Add all tensors of a value to ``tensors``, and yield the bytes of its images."""
    waiting = [value]
    for it in waiting:  # which grows: a generator for each of a thousand units' tensors takes several times as long
        if isinstance(it, Tensor):
            tensors[id(it)] = it
        elif isinstance(it, nn.Module):
            waiting += named_state(it).values()
        elif isinstance(it, KeptImages | TaskImages):
            yield (it if isinstance(it, KeptImages) else KeptImages.of(it)).nbytes
        elif isinstance(it, Mapping | list | tuple | set | frozenset):
            waiting += it.values() if isinstance(it, Mapping) else it


class SilentLogger(BaseLogger):
    """A logger that logs nothing: without one, Avalanche warns that there is none."""


#: What :class:`ModelSizes` measures, which are fields of the record of the same names.
SIZES: Final = ("params_total", "mask_bits", "params_active", "macs", "memory_bytes")


def class_counts(labels: Tensor, right: Tensor, classes: Iterable[int]) -> list[tuple[int, int]]:
    """Count right answers and images of each of ``classes``, from all labels and those of images answered right."""
    return [(int((right == label).sum()), int((labels == label).sum())) for label in classes]


class AccuracyMatrix(PluginMetric[list[list[float | None]]]):
    """``R[i][j]``: accuracy on task j's test images after learning task i; ``None`` where it was not measured.

    Answers stay on the device; there is one synchronisation per evaluated task.

    Args:
        tasks: length of the stream.
        stream: name of the stream that is evaluated; evaluations of other streams do not enter.
        classes: number of classes that each task adds, for :attr:`confusion` where answers are of all tasks' classes.
        labels: numbers of the classes of each task; empty where no class is in several tasks.

    Attributes:
        class_counts: for each class of each task, in the order of the experience's ``classes_in_this_experience``, the
            number of right answers and of images in the last evaluation; tasks that were not evaluated then are empty.
        confusion: ``C[i][j]``: how many of task i's images were answered with a class of task j in that evaluation. A
            class of several tasks counts as one of task i where that has it, otherwise as one of the first of them.
    """

    def __init__(
        self, tasks: int, stream: str = "test", *, classes: Sequence[int] = (), labels: Sequence[Sequence[int]] = ()
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tasks, self.stream, self._labels = tasks, stream, labels
        counts = torch.tensor([*classes], dtype=torch.int64)
        self._first_tasks = torch.arange(len(classes)).repeat_interleave(counts)
        for task, own in reversed([*enumerate(labels)]):
            self._first_tasks[list(own)] = task
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.matrix: list[list[float | None]] = [[None] * self.tasks for _ in range(self.tasks)]
        self._begin(None)
        self.before_eval_exp(None)

    def _begin(self, learned: int | None) -> None:
        self._learned = learned
        self.class_counts: list[list[tuple[int, int]]] = [[] for _ in range(self.tasks)]
        self.confusion: list[list[int]] = [[] for _ in range(self.tasks)] if len(self._first_tasks) else []

    def result(self) -> list[list[float | None]]:
        """The matrix, a row per learned task."""
        return [list(row) for row in self.matrix]

    def before_eval_exp(self, strategy: Any) -> None:
        """Start counting a task."""
        self._answers: list[Tensor] = []

    def after_eval_iteration(self, strategy: Any) -> None:
        """Count a batch."""
        super().after_eval_iteration(strategy)
        self._answers.append(torch.stack([strategy.mb_y, strategy.mb_output.argmax(dim=1)]))

    def after_eval_exp(self, strategy: Any) -> list[MetricValue] | None:
        """Enter the task's accuracy, and that on each of its classes; counts of an earlier evaluation go."""
        learned, experience = strategy.clock.train_exp_counter - 1, strategy.experience
        if experience.origin_stream.name != self.stream or not self._answers or learned < 0:
            return None
        task = int(experience.current_experience)
        labels, answers = torch.cat(self._answers, dim=1).cpu()
        right = labels[labels == answers]
        accuracy = len(right) / len(labels)
        self.matrix[learned][task] = accuracy
        if learned != self._learned:
            self._begin(learned)
        classes = getattr(experience, "classes_in_this_experience", None) or labels.unique().tolist()
        self.class_counts[task] = class_counts(labels, right, classes)
        if self.confusion:
            task_of = self._first_tasks.clone()
            if self._labels:
                task_of[list(self._labels[task])] = task
            self.confusion[task] = torch.bincount(task_of[answers], minlength=self.tasks).tolist()
        name = f"AccuracyMatrix/{self.stream}/Task{task:03d}"
        return [MetricValue(self, name, accuracy, strategy.clock.train_iterations)]

    def __str__(self) -> str:
        return "AccuracyMatrix"


class ModelSizes(PluginMetric[dict[str, list[Any]]]):
    """Parameters stored, bits of masks, parameters on the task's path, multiply-accumulates per image and bytes kept,
    after each learned task; ``memory_by_kind`` has the bytes kept after the last one, by kind.

    ``further`` are sizes, by the names of :data:`SIZES`, of a pretrained network that is no part of the model.
    """

    def __init__(self, further: Mapping[str, int] | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.further = {**dict.fromkeys(SIZES, 0), **(further or {})}
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.params_total: list[int] = []
        self.mask_bits: list[int] = []
        self.params_active: list[int] = []
        self.macs: list[int] = []
        self.memory_bytes: list[int | None] = []
        self.memory_by_kind: dict[str, int] = {}

    def result(self) -> dict[str, list[Any]]:
        """Lists with an entry per learned task; bytes are ``None`` where the strategy does not say what it keeps."""
        return {name: getattr(self, name) for name in SIZES}

    def after_training_exp(self, strategy: Any) -> list[MetricValue] | None:
        """Measure the strategy as it is after a task."""
        model = strategy.model
        if not isinstance(model, MultiHeadModel):
            raise TypeError("ModelSizes measures a MultiHeadModel: the task's path must be known")
        task = int(strategy.experience.current_experience)
        further = self.further
        self.params_total.append(count_parameters(model) + further["params_total"])
        self.mask_bits.append(int(model.mask_bits))
        self.params_active.append(count_parameters(model.task_module(task)) + further["params_active"])
        with modes_kept(model):
            model.eval()
            # Not of the last batch: a run resumed behind the last epoch has seen none.
            sample = strategy.experience.dataset[0][0]
            inference = getattr(strategy, "task_inference", None)
            answer = partial(model.forward_single_task, task_label=task)
            if inference is not None:
                answer = partial(inference, model, tasks=task + 1)
            self.macs.append(count_macs(answer, sample.shape, strategy.device, sample.dtype) + further["macs"])
        memory = memory_of(strategy)
        if memory is not None and further["memory_bytes"]:
            memory["encoder"] = further["memory_bytes"]
        self.memory_by_kind = memory or {}
        self.memory_bytes.append(None if memory is None else sum(memory.values()))
        at = strategy.clock.train_iterations
        measured = {name: values[-1] for name, values in self.result().items() if values[-1] is not None}
        return [MetricValue(self, f"{name}/Task{task:03d}", value, at) for name, value in measured.items()]

    def __str__(self) -> str:
        return "ModelSizes"


def implements(target: object, event: str) -> bool:
    """Whether a plugin does something in a callback."""
    if isinstance(target, EvaluationPlugin) and event not in vars(type(target)):
        return any(implements(listener, event) for listener in (*target.metrics, *target.loggers))
    owner = next((base for base in type(target).__mro__ if event in vars(base)), None)
    return (owner is not None and owner not in _EMPTY) or event in vars(target)


def attach(strategy: Any, attached: Mapping[str, Any]) -> None:
    """Add plugins by name to a strategy of Avalanche that has learned nothing yet, behind its own; without a state that
    can be saved it cannot be resumed any more."""
    place = strategy.plugins.index(strategy.evaluator)
    strategy.plugins[place:place] = attached.values()
    strategy.attached = dict(attached)
    strategy.resumable = getattr(strategy, "resumable", False) and all(map(has_state, attached.values()))


class AttachedValues(SilentLogger):
    """The last value of each name that metrics gave one, of these metrics alone; ``None``: it is no finite number."""

    def __init__(self, metrics: Sequence[PluginMetric[Any]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.metrics = metrics
        self.values: dict[str, float | None] = {}

    def log_metrics(self, metric_values: list[MetricValue]) -> None:
        """Note values as an ``EvaluationPlugin`` receives them."""
        found = (it for it in metric_values if any(it.origin is metric for metric in self.metrics))
        self.values |= {it.name: _number(it.value) for it in found}


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
