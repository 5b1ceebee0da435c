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

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.protocol import ImageLimits
from seu_bench.config.run import Evaluation
from seu_bench.config.streams import DatasetSequence, DrawnTasks, InputSpec, stream_identity
from seu_bench.data.avalanche import TaskDataset
from seu_bench.data.dataset import DatasetInfo, RawDataset, blocks, require_memory
from seu_bench.data.encoding import StreamEncoder
from seu_bench.data.images import AbsentStore, FileStore, Normaliser, Store, TaskImages
from seu_bench.data.planning import Rows, StreamPlan, TaskPlan, class_rows, plan_stream, validation_share, withheld
from seu_bench.data.tasks import (
    TaskSpec,
    dataset_names,
    learned_datasets,
    number_classes,
    ordered_tasks,
    refusal,
    shuffle_indices,
)
from seu_bench.utils.progress import track


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
        inputs: what makes the network's input of the samples of each task, as plain values
            (:class:`~seu_bench.results.record.TaskInput`).
        identities: what makes each task the same in another stream, as plain values: data, classes, images, input.
    """

    plan: StreamPlan
    tasks: tuple[TaskSplits, ...]
    fingerprint: str
    inputs: tuple[dict[str, Any], ...]
    identities: tuple[dict[str, Any], ...] = ()

    def avalanche(self) -> CLScenario[Any]:
        """The Avalanche benchmark with streams ``train``, ``valid`` and ``test``, task labels and classes."""
        names = ("train", "valid", "test")
        streams = {name: [TaskDataset.of(getattr(task, name)) for task in self.tasks] for name in names}
        scenario: CLScenario[Any] = with_task_labels(benchmark_from_datasets(**streams))
        for name, stream in scenario.streams.items():
            for experience, task in zip(stream, self.plan.tasks, strict=True):
                # Avalanche leaves this unset or makes it a set; its own MultiHeadClassifier wants a list.
                experience.classes_in_this_experience = list(task.test_labels if name == "test" else task.labels)
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
    learned: int = 0,
    encoder: StreamEncoder | None = None,
) -> TaskStream:
    """Build the tasks of a benchmark.

    Args:
        spec: the benchmark.
        load: returns a data set by name; called once for each.
        limits: largest numbers of images per task and split.
        seed: of the tasks' order, splits and permutations.
        device: of the images.
        first_tasks: how many of its tasks; ``None``: all.
        evaluation: ``validation`` reads no test images: half of each task's validation images takes their place.
        learned: how many tasks are only evaluated. Of data sets that no other task needs no more than test images are
            held, as 8-bit pixels.
        encoder: the pretrained network whose features samples are, or by which images are normalised.

    Returns:
        The stream, its tasks in the order of learning.

    Raises:
        RequestError: the benchmark does not fit the data.
    """
    device = torch.device("cpu") if device is None else device
    done = learned_datasets(spec, seed, learned) if evaluation == "test" else ()

    def read(name: str) -> RawDataset:
        data = load(name)
        data = (data.without_test() if evaluation == "validation" else data).check()
        return data.without_train() if name in done else data

    raw = {name: read(name) for name in track(dataset_names(spec), "reading data sets")}
    infos = {name: data.info for name, data in raw.items()}
    spec = number_classes(spec, infos.__getitem__)
    excerpt: Any = {"first_tasks": first_tasks, "evaluation": evaluation, "encoder": encoder}
    plan = plan_stream(spec, infos, limits, seed, **excerpt)
    tasks = ordered_tasks(spec, infos, seed, limits)
    by_class = class_rows(tasks, {name: data.train.labels for name, data in raw.items()}, seed)[:first_tasks]
    drawn = [
        (task, _split_rows(spec, task, raw[task.dataset], limits, seed, evaluation, own))
        for task, own in zip(tasks[:first_tasks], by_class, strict=True)
    ]

    first, (first_rows, *_) = drawn[0]

    @cache
    def store(name: str, source: InputSpec) -> tuple[Store, Normaliser, Rows]:
        """Inputs of a data set for all tasks of this normalisation."""
        own = [rows for task, splits in drawn if (task.dataset, task.input) == (name, source) for rows in splits]
        by_first = source.normalise == "first_task"
        images = blocks(raw[first.dataset].train.images, first_rows) if by_first else blocks(raw[name].train.images)
        normaliser, used = _normaliser(source, infos[name], images, encoder), np.unique(np.concatenate(own))
        if encoder is not None and encoder.makes_samples:
            return _encoded_store(raw[name], normaliser, used, encoder, source.layers, device)
        return _store(raw[name], normaliser, used, device)

    found: list[TaskSplits] = []
    planned: list[TaskPlan] = []
    inputs: list[dict[str, Any]] = []
    identities: list[dict[str, Any]] = []
    for index, (task, splits) in enumerate(track(drawn, "preparing tasks")):
        images, normaliser, used = store(task.dataset, task.input)
        info = raw[task.dataset].info
        inputs.append(normaliser.document(info.input.shape, task.permutation_seed))
        inputs[-1] |= {} if encoder is None else encoder.document(task.input.layers)
        permutation = None
        if task.permutation_seed is not None:
            # The store's channels, not the plan's: grey images are permuted before they are repeated.
            order = shuffle_indices(images.shape[1:].numel(), task.permutation_seed)
            permutation = torch.from_numpy(order).to(device)
        outputs = _outputs(spec, task, raw[task.dataset], splits, plan.tasks[index].labels)
        num_train, num_valid, num_test = sizes = [len(rows) for rows in splits]
        planned.append(replace(plan.tasks[index], num_train=num_train, num_valid=num_valid, num_test=num_test))
        chosen = hashlib.sha256(b"".join(rows.astype("<i8").tobytes() for rows in splits)).hexdigest()
        own = {"data": raw[task.dataset].checksum(), "classes": list(task.labels), "images": [*sizes, chosen]}
        identities.append({**own, "input": inputs[-1]})
        train, valid, test = (
            TaskImages(
                images,
                torch.from_numpy(np.searchsorted(used, rows)).to(device),
                torch.from_numpy(outputs[rows]).to(device),
                index,
                plan.channels,
                permutation,
                hides_task=plan.scenario != "task",
            )
            for rows in splits
        )
        if task.dataset in done:
            absent = AbsentStore(images.shape, device)
            train, valid = (replace(split, store=absent) for split in (train, valid))
        augmenter = normaliser.augmenter(task.input.augment, images.shape[1])
        train = replace(train, augmenter=None if augmenter is None else augmenter.to(device))
        found.append(TaskSplits(train, valid, test))
    prints = fingerprint(spec, raw, **excerpt)
    return TaskStream(replace(plan, tasks=tuple(planned)), tuple(found), prints, tuple(inputs), tuple(identities))


def _split_rows(
    spec: BenchmarkSpec,
    task: TaskSpec,
    data: RawDataset,
    limits: ImageLimits,
    seed: int,
    evaluation: Evaluation,
    by_class: tuple[Rows, Rows] | None,
) -> tuple[Rows, Rows, Rows]:
    """Images that train, validate and test a task; test images are numbered after all training images.

    The validation images are in an order drawn by the seed: withheld ones are those at its end, so that where a limit
    leaves enough, those that are learned with are the same whether or not any are withheld. ``by_class`` are the
    training and validation images of a task that asks for so many of each class.
    """
    pool, test = (
        np.arange(len(split)) if task.takes_all else np.flatnonzero(np.isin(split.labels, labels))
        for split, labels in ((data.train, task.labels), (data.test, task.test_labels))
    )
    if not len(pool) or not (len(test) or evaluation == "validation"):
        what = f"has a task {task.name!r} without {'test' if len(pool) else 'training'} images"
        raise refusal(spec, task.dataset, "stream", what, "bring images of its classes, or leave them out")
    if by_class is None:
        mixed = pool[shuffle_indices(len(pool), seed)]
        cut = int(validation_share(spec) * len(pool))
        by_class = mixed[cut:], mixed[:cut]
    train, valid = by_class
    if evaluation == "validation":
        kept = len(valid) - withheld(len(valid), evaluation)
        if kept == len(valid):
            what = f"has a task {task.name!r} with {len(valid)} validation images: none can be withheld"
            remedy = "raise the share of validation images, e.g. -o benchmark.stream.validation=0.2"
            raise refusal(spec, task.dataset, "stream.validation", what, remedy)
        return train[: limits.train], valid[:kept][: limits.valid], valid[kept:][: limits.test]
    if task.test_per_class is not None:
        of_class = (test[data.test.labels[test] == label] for label in task.test_labels)
        test = np.sort(np.concatenate([_subset(images, task.test_per_class) for images in of_class]))
    return train[: limits.train], valid[: limits.valid], len(data.train) + _subset(test, limits.test)


def _subset(images: Rows, count: int | None) -> Rows:
    """So many of the images, at most: the same for every seed, so that seeds are measured on the same images."""
    return images if count is None or len(images) <= count else images[shuffle_indices(len(images), 0)[:count]]


def _store(data: RawDataset, normalise: Normaliser, used: Rows, device: torch.device) -> tuple[Store, Normaliser, Rows]:
    """Inputs of a data set, what makes them, and the numbers of the images that the store has, ascending.

    Of a data set in memory the store is a tensor of the images ``used``; of one in a file, or without training images,
    it has all images, of which batches are read.
    """
    train, test = data.train.images, data.test.images
    if isinstance(train, np.memmap) or len(train) < len(data.train) or normalise.resize is not None:
        first, last = len(data.train) - len(train), len(data.train) + len(test)
        return FileStore(train, test, normalise.to(device), device), normalise, np.arange(first, last)
    require_memory(data.info.name, len(used), normalise.shape(data.info.input.shape), bytes_per_pixel=4)
    is_test = used >= len(train)
    raw = np.concatenate([train[used[~is_test]], test[used[is_test] - len(train)]])
    return normalise(torch.from_numpy(raw)).to(device), normalise, used


def _normaliser(source: InputSpec, info: DatasetInfo, images: Any, encoder: StreamEncoder | None) -> Normaliser:
    if encoder is not None:
        source = source.model_copy(update={"mean": encoder.info.mean, "std": encoder.info.std})
    return Normaliser.of(source, info, images)


def _encoded_store(
    data: RawDataset,
    normalise: Normaliser,
    used: Rows,
    encoder: StreamEncoder,
    layers: tuple[int, ...] | None,
    device: torch.device,
) -> tuple[Store, Normaliser, Rows]:
    """Features in place of inputs; of data sets whose training images are not read, those of test images alone."""
    images = FileStore(data.train.images, data.test.images, normalise.to(device), device)
    absent = len(data.train) - len(images.train)
    used = used[used >= absent]
    made = {**normalise.document(data.info.input.shape, None), "data": data.checksum()}
    return encoder.features(images, used, absent, layers, made), normalise, used


def _outputs(
    spec: BenchmarkSpec, task: TaskSpec, data: RawDataset, splits: tuple[Rows, ...], numbers: tuple[int, ...]
) -> Rows:
    """The output for each image of a data set, -1 where it is of none of the task's classes."""
    labels = np.concatenate([data.train.labels, data.test.labels])
    table = np.full(1 + max(*task.labels, labels.max(), 0), -1, dtype=np.int64)
    table[list(task.labels)] = numbers
    chosen = labels[np.concatenate(splits)]
    if (table[chosen] < 0).any():
        least, most = chosen.min() - task.labels[0], chosen.max() - task.labels[0]
        what = f"has a task {task.name!r} of labels {least} to {most}, but its head has {len(task.labels)} outputs"
        remedy = "set classes, or the label_offset that labels begin at, of the task in the benchmark file"
        raise refusal(spec, task.dataset, "stream", what, remedy)
    found: Rows = table[labels]
    return found


def fingerprint(
    spec: BenchmarkSpec,
    raw: Mapping[str, RawDataset],
    *,
    first_tasks: int | None = None,
    evaluation: Evaluation = "test",
    encoder: StreamEncoder | None = None,
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
    if encoder is not None:
        parts["encoder"] = encoder.info.document()
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
