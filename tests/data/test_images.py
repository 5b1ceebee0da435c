"""Whole batches equal single images, Avalanche's own plugins run on our data sets, and batches keep their order."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from avalanche.benchmarks import CLScenario, benchmark_from_datasets, with_task_labels
from avalanche.benchmarks.utils import AvalancheDataset, ConstantSequence, DataAttribute, TaskLabels
from avalanche.training.plugins import AGEMPlugin, EvaluationPlugin, EWCPlugin, GEMPlugin, ReplayPlugin
from avalanche.training.supervised import Naive
from support.tiny import all_threads, benchmark, class_stream, one_thread, raw_dataset, same, weights
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from seu_bench.config.protocol import ImageLimits
from seu_bench.data.avalanche import BatchLoader, TaskDataset, task_images
from seu_bench.data.images import TaskImages
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.errors import RunError
from seu_bench.models.backbone import BackboneModel
from seu_bench.training.monitoring import SilentLogger

setup_module, teardown_module = one_thread, all_threads

CPU = torch.device("cpu")


def stream() -> TaskStream:
    return class_stream([[0, 1], [2, 3, 4]], images=24)


def everything(images: TaskImages) -> list[Tensor]:
    return [*images.gather(torch.arange(len(images))), torch.full((len(images),), images.task)]


def equal(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def one_by_one(dataset: Any, positions: Sequence[int]) -> list[Tensor]:
    items = [dataset[position] for position in positions]
    return [torch.stack([torch.as_tensor(item[column]) for item in items]) for column in range(3)]


def foreign(x: Tensor, y: Tensor, task: int) -> AvalancheDataset[Any]:
    """Avalanche's own data set of tensors."""
    attributes = [DataAttribute(y.tolist(), "targets"), TaskLabels(ConstantSequence(task, len(y)))]
    return AvalancheDataset([TensorDataset(x, y)], data_attributes=attributes)


# --- TaskImages ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "size", "shuffle", "expected"),
    [
        (9, 3, True, [3, 3, 3]),
        (8, 3, True, [3, 3, 2]),
        (7, 3, True, [3, 4]),
        (7, 3, False, [3, 3, 1]),
        (3, 8, True, [3]),
        (1, 8, True, [1]),
        (4, 1, True, [1, 1, 2]),
        (9, 8, True, [9]),
    ],
)
def test_batch_sizes(count: int, size: int, shuffle: bool, expected: list[int]) -> None:
    """Batches are full but for the last; a single image left over joins the batch before it, in training only."""
    images = stream().tasks[0].train.part(0, count)
    assert [len(y) for _, y in images.batches(size, shuffle=shuffle)] == expected
    loader = BatchLoader(images, size, shuffle=shuffle)
    assert [len(y) for _, y, _ in loader] == expected
    assert len(loader) == len(expected)


def test_batch_order() -> None:
    """Without shuffling the order stays; shuffling follows torch's generator, anew each time, every image once."""
    images = stream().tasks[1].train
    x, y, t = everything(images)
    loader = BatchLoader(images, 5, shuffle=False)
    assert equal([torch.cat(column) for column in zip(*loader, strict=True)], [x, y, t])
    loader = BatchLoader(images, 5, shuffle=True)
    torch.manual_seed(1)
    first, second = (torch.cat([batch[0] for batch in loader]) for _ in range(2))
    torch.manual_seed(1)
    orders = [torch.randperm(len(images)) for _ in range(2)]
    assert torch.equal(first, x[orders[0]]) and torch.equal(second, x[orders[1]])
    assert next(batch[2].tolist() for batch in loader) == [1] * 5


# --- TaskDataset --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("permuted", [False, True])
def test_subsets_and_concatenations(permuted: bool) -> None:
    """Images, labels and tasks stay together and in order through subset and concat, also of several tasks."""
    if permuted:
        data = raw_dataset([12, 12], [4, 4])
        source = {"mean": [0.5], "std": [0.5], "channels": 3}
        spec = benchmark({"kind": "permutation", "dataset": "tiny", "tasks": 2, "input": source})
        tasks = build_stream(spec, lambda _: data, ImageLimits(), 0)
    else:
        tasks = stream()
    sets = [TaskDataset.of(task.train) for task in tasks.tasks]
    whole = [everything(task.train) for task in tasks.tasks]
    part: Any = sets[0].subset([7, 2, 2, 9])
    joined: Any = part.concat(sets[1].subset([4, 0]))
    again: Any = joined.subset([5, 0, 3, 4])
    expected_part = [tensor[[7, 2, 2, 9]] for tensor in whole[0]]
    expected = [torch.cat([a, b[[4, 0]]]) for a, b in zip(expected_part, whole[1], strict=True)]
    picked = [tensor[[5, 0, 3, 4]] for tensor in expected]
    for dataset, wanted in ((part, expected_part), (joined, expected), (again, picked)):
        assert isinstance(dataset, TaskDataset)
        assert equal(dataset.__getitems__(range(len(dataset))).tensors, wanted)
        assert equal(one_by_one(dataset, range(len(dataset))), wanted)
        assert list(dataset.targets) == wanted[1].tolist()
        assert list(dataset.targets_task_labels) == wanted[2].tolist()
        loader: Any = DataLoader(dataset, batch_size=3, collate_fn=dataset.collate_fn)
        assert equal([torch.cat(column) for column in zip(*loader, strict=True)], wanted)


def test_task_images_of_others() -> None:
    """A plain Avalanche data set is read once, in order, and belongs to the task that is named."""
    x, y = torch.randn(7, 3, 5, 5), torch.tensor([0, 1, 2, 0, 1, 2, 0])
    found = task_images(foreign(x, y, 3), 2, CPU)
    assert equal(everything(found), [x, y, torch.full((7,), 2)])
    assert found.channels == 3 and found.permutation is None
    plain = TensorDataset(x, y)
    assert equal(everything(task_images(plain, 0, CPU))[:2], [x, y])


def test_images_of_several_tasks_are_no_tasks_images() -> None:
    """They would all be answered by one head: whoever mixes tasks needs a loader that keeps them apart."""
    train = class_stream([[0, 1], [2, 3]]).avalanche().train_stream
    mixed = train[0].dataset.concat(train[1].dataset)
    with pytest.raises(RunError, match="the data set for task 0 has images of 2 tasks"):
        task_images(mixed, 0, torch.device("cpu"))


def test_a_batch_is_a_sequence_of_images() -> None:
    """To torch's own collate function, which some of Avalanche's strategies keep, it looks like single images."""
    dataset = class_stream([[0, 1]]).avalanche().train_stream[0].dataset
    whole = dataset.__getitems__([3, 1, 4])
    assert len(whole) == 3
    assert equal(torch.utils.data.default_collate(whole), whole.tensors)
    assert equal(whole[1], [tensor[1] for tensor in whole.tensors])
    assert equal(whole[1:], [tensor[1:] for tensor in whole.tensors])
    assert isinstance(dataset.collate_fn(whole), list)  # Avalanche moves its entries to the device in place


# --- Avalanche's own strategies and plugins -----------------------------------------------------------------------


def plain_benchmark(source: TaskStream) -> CLScenario:
    """The same images as Avalanche's own data sets of tensors."""
    train = [foreign(*everything(task.train)[:2], index) for index, task in enumerate(source.tasks)]
    return with_task_labels(benchmark_from_datasets(train=train))


def model(source: TaskStream) -> BackboneModel:
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Conv2d(1, 4, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 8), nn.ReLU())
    return BackboneModel(backbone, 8, source.plan.classes_per_task)


def strategy(source: TaskStream, plugin: Any) -> Any:
    made = model(source)
    return Naive(
        model=made,
        optimizer=torch.optim.SGD(made.parameters(), lr=0.05),
        train_mb_size=8,
        train_epochs=1,
        eval_mb_size=8,
        plugins=[plugin],
        evaluator=EvaluationPlugin(loggers=[SilentLogger()]),
    )


PLUGINS = {
    "ewc": lambda: EWCPlugin(ewc_lambda=10),
    "gem": lambda: GEMPlugin(patterns_per_experience=12, memory_strength=0.5),
    "agem": lambda: AGEMPlugin(patterns_per_experience=12, sample_size=6),
    "replay": lambda: ReplayPlugin(mem_size=10),
}


@pytest.mark.parametrize("name", PLUGINS)
def test_plugins_run_and_learn_the_same(name: str) -> None:
    """On our data sets Avalanche's plugins end with the bits that they reach on its own data sets of tensors."""
    found = []
    for scenario in (stream().avalanche(), plain_benchmark(stream())):
        learner = strategy(stream(), PLUGINS[name]())
        torch.manual_seed(5)
        random.seed(5)
        for experience in scenario.train_stream:
            learner.train(experience, num_workers=0)
        found.append(weights(learner.model))
    assert not same(found[0], weights(model(stream())))
    assert same(found[0], found[1])
