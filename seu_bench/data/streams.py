"""Tasks of a benchmark in memory, and the Avalanche benchmark over them.

Orders, splits and permutations are those of the paper and its code (docs/reference/benchmarks.md): ``numpy``'s legacy
``RandomState(seed).shuffle`` on index arrays throughout, which equals ``sklearn.utils.shuffle``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from avalanche.benchmarks import CLScenario, benchmark_from_datasets, with_task_labels
from numpy.typing import NDArray

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.protocol import ImageLimits
from seu_bench.config.run import Evaluation
from seu_bench.config.streams import DatasetSequence, DrawnTasks, InputSpec, stream_identity
from seu_bench.data.avalanche import TaskDataset
from seu_bench.data.class_pools import class_rows
from seu_bench.data.classes import numbered, place_of, shuffled
from seu_bench.data.dataset import RawDataset
from seu_bench.data.image_store import Store
from seu_bench.data.images import TaskImages
from seu_bench.data.normaliser import Normaliser
from seu_bench.data.planning import StreamPlan, plan_stream
from seu_bench.data.task_images import Rows, relabelled, split_rows, stored
from seu_bench.data.task_parts import dataset_names, ordered_tasks
from seu_bench.errors import RequestError
from seu_bench.utils.progress import tracked


@dataclass(frozen=True)
class TaskSplits:
    """One task's images, three splits that share no image."""

    train: TaskImages
    valid: TaskImages
    test: TaskImages


@dataclass(frozen=True)
class TaskStream:
    """A stream in memory.

    Attributes:
        plan: with the sizes as they are, not as planned.
        tasks: in the order in which they are learned.
        fingerprint: SHA-256 of the data and of how it is cut, without the seed.
        inputs: what makes the network's input of the 8-bit images of each task, as plain values
            (:class:`~seu_bench.results.record_parts.TaskInput`).
    """

    plan: StreamPlan
    tasks: tuple[TaskSplits, ...]
    fingerprint: str
    inputs: tuple[dict[str, Any], ...]

    def avalanche(self) -> CLScenario[Any]:
        """The Avalanche benchmark with streams ``train``, ``valid`` and ``test``, task labels and classes."""
        splits: dict[str, list[TaskImages]] = {
            name: [getattr(task, name) for task in self.tasks] for name in ("train", "valid", "test")
        }
        streams = {name: list(map(TaskDataset.of, images)) for name, images in splits.items()}
        scenario: CLScenario[Any] = with_task_labels(benchmark_from_datasets(**streams))
        for stream in scenario.streams.values():
            for experience, task in zip(stream, self.plan.tasks, strict=True):
                # Avalanche leaves this unset or makes it a set; its own MultiHeadClassifier wants a list.
                experience.classes_in_this_experience = list(task.labels)
        return scenario


def build_stream(
    spec: BenchmarkSpec,
    load: Callable[[str], RawDataset],
    limits: ImageLimits,
    seed: int,
    device: torch.device | None = None,
    *,
    first_tasks: int | None = None,
    evaluation: Evaluation = "test",
) -> TaskStream:
    """Build the tasks of a benchmark.

    Args:
        spec: the benchmark.
        load: name of a data set -> the data set; called once for each.
        limits: largest numbers of images per task and split.
        seed: of the tasks' order, splits and permutations.
        device: of the images.
        first_tasks: how many of its tasks; ``None``: all.
        evaluation: ``validation`` reads no test images: half of each task's validation images takes their place.

    Returns:
        The stream, its tasks in the order of learning.

    Raises:
        RequestError: the benchmark does not fit the data, e.g. it names classes that there are not.

    Example:
        ``stream = build_stream(spec, lambda name: source(name).load(None), ImageLimits(train=64), seed=0)``
    """
    device = torch.device("cpu") if device is None else device
    raw = {name: load(name) for name in tracked(dataset_names(spec), "reading data sets")}
    if evaluation == "validation":
        raw = {name: data.without_test() for name, data in raw.items()}
    raw = {name: data.checked() for name, data in raw.items()}
    infos = {name: data.info for name, data in raw.items()}
    spec = numbered(spec, infos)
    excerpt: Any = {"first_tasks": first_tasks, "evaluation": evaluation}
    plan = plan_stream(spec, infos, limits, seed, **excerpt)
    everything = ordered_tasks(spec, infos, seed)
    by_class = class_rows(everything, {name: data.train.labels for name, data in raw.items()}, seed)[:first_tasks]
    parts = everything[:first_tasks]
    drawn = [
        split_rows(spec, part, raw[part.dataset], limits, seed, evaluation, own)
        for part, own in zip(parts, by_class, strict=True)
    ]

    @cache
    def store(name: str, source: InputSpec) -> tuple[Store, Normaliser, Rows]:
        """Inputs of a data set for all tasks of this normalisation."""
        own = [
            splits for part, splits in zip(parts, drawn, strict=True) if (part.dataset, part.input) == (name, source)
        ]
        used = np.unique(np.concatenate([numbers for splits in own for numbers in splits]))
        return stored(raw[name], source, used, device)

    def tensor(array: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(array).to(device)

    tasks: list[TaskSplits] = []
    inputs: list[dict[str, Any]] = []
    for index, (part, splits) in enumerate(tracked(list(zip(parts, drawn, strict=True)), "preparing tasks")):
        images, normaliser, used = store(part.dataset, part.input)
        data = raw[part.dataset]
        info = data.info
        inputs.append(normaliser.document((info.channels, info.height, info.width), part.permutation_seed))
        labels = relabelled(np.concatenate([data.train.labels, data.test.labels]), part)
        chosen = labels[np.concatenate(splits)]
        if chosen.min() < 0 or chosen.max() >= part.head:
            remedy = "set classes (or label_offset) of the task in the benchmark file"
            if chosen.min() == 1:
                remedy = f"labels begin at 1, and must begin at 0: subtract 1, e.g. by label_offset = 1; or {remedy}"
            raise RequestError(
                f"task {part.name!r} has labels {chosen.min()} to {chosen.max()} but its head has {part.head} outputs",
                where=place_of(spec, part.dataset, "stream"),
                remedy=remedy,
            )
        permutation = None
        if part.permutation_seed is not None:
            # The store's channels, not the plan's: grey images are permuted before they are repeated.
            permutation = tensor(shuffled(images.shape[1:].numel(), part.permutation_seed))
        outputs, hides_task = np.array(plan.tasks[index].labels), plan.scenario != "task"
        places = [(tensor(np.searchsorted(used, numbers)), tensor(outputs[labels[numbers]])) for numbers in splits]
        train, valid, test = (
            TaskImages(images, rows, own, index, plan.channels, permutation, hides_task=hides_task)
            for rows, own in places
        )
        augmenter = normaliser.augmenter(part.input.augment, images.shape[1])
        augmenter = None if augmenter is None else augmenter.to(device)
        tasks.append(TaskSplits(replace(train, augmenter=augmenter), valid, test))
    sizes = [
        replace(task, num_train=len(train), num_valid=len(valid), num_test=len(test))
        for task, (train, valid, test) in zip(plan.tasks, drawn, strict=True)
    ]
    plan = replace(plan, tasks=tuple(sizes))
    return TaskStream(plan, tuple(tasks), fingerprint(spec, raw, **excerpt), tuple(inputs))


def fingerprint(
    spec: BenchmarkSpec,
    raw: Mapping[str, RawDataset],
    *,
    first_tasks: int | None = None,
    evaluation: Evaluation = "test",
) -> str:
    """SHA-256 of the data sets as loaded and of how they are cut into tasks; the same for every seed."""
    parts: dict[str, Any] = {
        "stream": stream_identity(spec.stream),
        "data": {name: data.checksum() for name, data in sorted(raw.items())},
    }
    if isinstance(spec.stream, DatasetSequence | DrawnTasks) and spec.stream.scenario != "task":
        # They decide which classes of different data sets are one.
        parts["class_names"] = {name: data.info.class_names for name, data in raw.items()}
    if first_tasks is not None:
        parts["first_tasks"] = first_tasks
    if evaluation != "test":
        parts["evaluation"] = evaluation
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
