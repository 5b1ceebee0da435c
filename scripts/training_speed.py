"""Images per second of three ways to train one small network on the same data, measured side by side in one process.

    python scripts/training_speed.py [--images 10000] [--rounds 5]

- bare: a plain PyTorch loop that gathers the same batches from memory and counts loss and accuracy.
- naive: seu-bench's naive strategy, accuracy and loss measured.
- avalanche: Avalanche's stock Naive on its own data loader, with its accuracy and loss metrics.

Machines are shared and noisy, so each round measures all three one after another and ratios are taken within a round.
The medians over rounds are printed: naive / bare should be at least 0.9, naive / avalanche at least 1.3.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from avalanche.benchmarks import benchmark_from_datasets, with_task_labels
from avalanche.benchmarks.utils import TaskLabels, as_classification_dataset
from avalanche.evaluation.metrics import accuracy_metrics, loss_metrics
from avalanche.training import Naive as StockNaive
from avalanche.training.plugins import EvaluationPlugin
from torch import nn
from torch.utils.data import TensorDataset

from seu_bench.loading import TaskDataset, TaskImages
from seu_bench.multihead import BackboneModel
from seu_bench.spec import Schedule
from seu_bench.strategy import SilentLogger
from seu_bench_naive.strategy import Naive

BATCH = 128
CLASSES = 10
SCHEDULE = Schedule(epochs=1, batch_size=BATCH, clip_norm=None, weight_decay=0.0)


def small_network() -> BackboneModel:
    """A small convolutional network for 3x32x32 images, one head."""
    backbone = nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    return BackboneModel(backbone, 16, [CLASSES])


def bare(images: TaskImages) -> None:
    """A plain loop: the least that training on these batches can cost."""
    model = small_network().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=SCHEDULE.learning_rate, momentum=SCHEDULE.momentum)
    total, correct = torch.zeros(()), torch.zeros((), dtype=torch.int64)
    for positions in torch.randperm(len(images)).split(BATCH):
        x = images.store.index_select(0, images.rows.index_select(0, positions))
        y = images.labels.index_select(0, positions)
        optimizer.zero_grad()
        logits = model.forward_single_task(x, 0)
        loss = nn.functional.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(y)
        correct += (logits.detach().argmax(dim=1) == y).sum()
    if not torch.isfinite(total) or int(correct) < 0:
        raise SystemExit("the bare loop diverged")


def ours(images: TaskImages) -> Callable[[], None]:
    """seu-bench's naive strategy on the same images."""
    stream = with_task_labels(benchmark_from_datasets(train=[TaskDataset.of(images)]))
    strategy = Naive(model=small_network(), schedule=SCHEDULE, restore="last")
    return lambda: strategy.train(stream.train_stream[0], eval_streams=[]) and None


def stock(images: TaskImages) -> Callable[[], None]:
    """Avalanche's Naive on the same images through its own loader."""
    tensors: Any = TensorDataset(images.store, images.labels)
    tensors.targets = images.labels.tolist()
    data = as_classification_dataset(tensors).update_data_attribute(
        "targets_task_labels", TaskLabels([0] * len(images))
    )
    stream = with_task_labels(benchmark_from_datasets(train=[data]))
    for experience in stream.train_stream:
        experience.classes_in_this_experience = list(range(CLASSES))
    model = small_network()
    silent = [SilentLogger()]  # type: ignore[no-untyped-call]
    strategy = StockNaive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=SCHEDULE.learning_rate, momentum=SCHEDULE.momentum),
        train_mb_size=BATCH,
        train_epochs=1,
        evaluator=EvaluationPlugin(accuracy_metrics(epoch=True), loss_metrics(epoch=True), loggers=silent),
    )
    return lambda: strategy.train(stream.train_stream[0], eval_streams=[]) and None


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.manual_seed(0)
    count: int = given.images
    images = TaskImages(
        torch.randn(count, 3, 32, 32), torch.arange(count), torch.randint(0, CLASSES, (count,)), 0, channels=3
    )
    ways: dict[str, Callable[[], None]] = {
        "bare": lambda: bare(images),
        "naive": ours(images),
        "avalanche": stock(images),
    }
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for round_ in range(given.rounds + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if round_:  # the first round warms up
                speeds[name].append(count / (time.perf_counter() - began))
    for name, values in speeds.items():
        print(f"{name:<10} {statistics.median(values):10,.0f} images/s (median of {len(values)})")
    for name, least in (("bare", 0.9), ("avalanche", 1.3)):
        ratio = statistics.median(a / b for a, b in zip(speeds["naive"], speeds[name], strict=True))
        print(f"naive / {name:<10} {ratio:.2f} (should be at least {least})")


if __name__ == "__main__":
    main()
