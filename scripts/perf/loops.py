"""Overhead of the training loop: naive against a plain PyTorch loop; naive and rehearsal against Avalanche's own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from avalanche.benchmarks import benchmark_from_datasets, with_task_labels
from avalanche.benchmarks.utils import TaskLabels, as_classification_dataset
from avalanche.evaluation.metrics import accuracy_metrics, loss_metrics
from avalanche.training import Naive as StockNaive
from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
from avalanche.training.supervised import er_ace as stock_er_ace
from torch import nn
from torch.utils.data import TensorDataset

from scripts.perf.comparison import Result, Table
from scripts.perf.timing import Work, interleaved, median, ratio
from seu_bench import Method
from seu_bench.config.protocol import Schedule
from seu_bench.data.avalanche import TaskDataset
from seu_bench.data.images import TaskImages
from seu_bench.models.backbone import BackboneModel
from seu_bench.training.monitoring import SilentLogger
from seu_bench_kit import AlexNetShape
from seu_bench_kit.blocks import alexnet
from seu_bench_methods.er_ace import ErAce
from seu_bench_methods.naive import Naive
from seu_bench_methods.replay import Replay

CLASSES = 10
BATCH = 128
EPOCHS = 8
#: Images that rehearsal remembers.
MEMORY = 200
METHODS: Mapping[str, type[Method]] = {"replay": Replay, "er_ace": ErAce}


def small_network(tasks: int = 1) -> BackboneModel:
    """A small convolutional network for 3x32x32 images, a head for each task."""
    backbone = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    return BackboneModel(backbone, 16, [CLASSES] * tasks)


def alexnet_network() -> BackboneModel:
    """The AlexNet variant in full width, one head."""
    shape = AlexNetShape.of(3, 32, 32)
    return BackboneModel(alexnet(shape), shape.linear, [CLASSES])


def bare(tables: Sequence[TaskImages], model: BackboneModel, schedule: Schedule) -> Work:
    """A plain loop: the least that training on these batches can cost."""
    (images,) = tables
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=schedule.learning_rate,
        momentum=schedule.momentum,
        weight_decay=schedule.weight_decay,
    )

    def train() -> None:
        model.train()
        total, correct = torch.zeros(()), torch.zeros((), dtype=torch.int64)
        order = (torch.randperm(len(images)).split(schedule.batch_size) for _ in range(schedule.epochs))
        for positions in itertools.chain.from_iterable(order):
            x = images.store.index_select(0, images.rows.index_select(0, positions))
            y = images.labels.index_select(0, positions)
            optimizer.zero_grad()
            logits = model.forward_single_task(x, 0)
            loss = nn.functional.cross_entropy(logits, y)
            loss.backward()
            if schedule.clip_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), schedule.clip_norm)
            optimizer.step()
            total += loss.detach() * len(y)
            correct += (logits.detach().argmax(dim=1) == y).sum()
        if not torch.isfinite(total) or int(correct) < 0:
            raise RuntimeError("the plain loop diverged")

    return train


def ours(tables: Sequence[TaskImages], model: BackboneModel, schedule: Schedule, method: type[Method] = Naive) -> Work:
    """A strategy of seu-bench that learns the last of these tasks again and again, after the others; accuracy and loss
    counted."""
    stream = with_task_labels(benchmark_from_datasets(train=[TaskDataset.of(images) for images in tables]))
    plan: Any = SimpleNamespace(online=False)  # nothing else is read of it
    memory = {} if method is Naive else {"memory": MEMORY, "batch_size_mem": schedule.batch_size}
    strategy = method(model=model, schedule=schedule, restore="last").begin(method.Options(**memory), plan)
    return _last_again(strategy, stream.train_stream)


def stock(tables: Sequence[TaskImages], model: BackboneModel, schedule: Schedule, method: type[Method] = Naive) -> Work:
    """Avalanche's strategy of that kind on the same images through its own loader."""
    sets = []
    for images in tables:
        x, y = images.gather(torch.arange(len(images)))
        tensors: Any = TensorDataset(x, y)
        tensors.targets = y.tolist()
        labels = TaskLabels([images.task] * len(images))
        sets.append(as_classification_dataset(tensors).update_data_attribute("targets_task_labels", labels))
    stream = with_task_labels(benchmark_from_datasets(train=sets))
    for experience in stream.train_stream:
        experience.classes_in_this_experience = list(range(CLASSES))
    silent = [SilentLogger()]  # type: ignore[no-untyped-call]
    common: dict[str, Any] = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=schedule.learning_rate, momentum=schedule.momentum),
        "train_mb_size": schedule.batch_size,
        "train_epochs": schedule.epochs,
        "evaluator": EvaluationPlugin(accuracy_metrics(epoch=True), loss_metrics(epoch=True), loggers=silent),
    }
    strategy: Any
    if method is ErAce:
        strategy = stock_er_ace.ER_ACE(
            criterion=nn.CrossEntropyLoss(), mem_size=MEMORY, batch_size_mem=schedule.batch_size, **common
        )
    elif method is Replay:
        replay = ReplayPlugin(mem_size=MEMORY, batch_size=schedule.batch_size, batch_size_mem=schedule.batch_size)
        strategy = StockNaive(plugins=[replay], **common)
    else:
        strategy = StockNaive(**common)
    return _last_again(strategy, stream.train_stream)


def _last_again(strategy: Any, stream: Sequence[Any]) -> Work:
    for experience in stream[:-1]:
        strategy.train(experience, eval_streams=[])
    return lambda: strategy.train(stream[-1], eval_streams=[])


def measure_rehearsal(images: TaskImages, schedule: Schedule) -> Result:
    """Images per second of an epoch of a second task while the first is remembered."""
    rounds, ways, tables = 7, dict[str, Work](), [images, replace(images, task=1)]
    for name, method in METHODS.items():
        ways[name] = ours(tables, small_network(2), schedule, method)
        ways[f"avalanche {name}"] = stock(tables, small_network(2), schedule, method)
    taken = interleaved(ways, rounds)
    rows = [[way, len(images) / median(taken, way)] for way in ways]
    return Result(
        {"images": len(images), "batch size": schedule.batch_size, "remembered": MEMORY, "rounds": rounds},
        {name: ratio(taken, f"avalanche {name}", name) for name in METHODS},
        (Table("Speeds, medians over rounds", ("loop", "images/s"), rows),),
    )


def measure(name: str) -> Result:
    """Images per second of each way to train a task; what begins a task, such as counting operations once, is in it."""
    torch.manual_seed(0)
    torch.set_num_threads(1)  # as a run has it
    make: Callable[[], BackboneModel]
    ways = {"bare": bare, "naive": ours}
    if name == "loop_alexnet":
        make, count, rounds = alexnet_network, 640, 6
        schedule = Schedule(epochs=EPOCHS, batch_size=BATCH)
    else:
        make, count, rounds = small_network, 5120, 9
        # Avalanche's Naive does not clip, and decays no weights by default.
        schedule = Schedule(epochs=EPOCHS, batch_size=BATCH, clip_norm=None, weight_decay=0.0)
        ways["avalanche"] = stock
    images = TaskImages(
        torch.randn(count, 3, 32, 32), torch.arange(count), torch.randint(0, CLASSES, (count,)), 0, channels=3
    )
    # A learning rate that small leaves weights as they are: no way is faster for having diverged.
    schedule = schedule.model_copy(update={"learning_rate": 1e-4})
    if name == "loop_rehearsal":
        short = {"batch_size": BATCH // 4, "epochs": 1}
        return measure_rehearsal(images.part(0, 2048), schedule.model_copy(update=short))
    taken = interleaved({way: begin([images], make(), schedule) for way, begin in ways.items()}, rounds)
    others = [way for way in ways if way != "naive"]
    return Result(
        {"images": count, "epochs": EPOCHS, "batch size": BATCH, "rounds": rounds, "pixels": "3x32x32"},
        {other: ratio(taken, other, "naive") for other in others},
        (
            Table(
                "Speeds, medians over rounds",
                ("loop", "images/s", "naive / it"),
                [[way, count * EPOCHS / median(taken, way), ratio(taken, way, "naive")] for way in ways],
            ),
        ),
    )
