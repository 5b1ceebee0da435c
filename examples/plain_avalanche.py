"""SEU from a plain Avalanche script: no command line, no records, any Avalanche benchmark with task labels.

    python examples/plain_avalanche.py

Avalanche's own metrics and loggers work beside seu-bench's accuracy matrix and sizes.
"""

from __future__ import annotations

from typing import Any

import torch
from avalanche.benchmarks import benchmark_from_datasets, with_task_labels
from avalanche.benchmarks.utils import AvalancheDataset, TaskLabels, as_classification_dataset
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.logging import TextLogger
from avalanche.training.plugins import EvaluationPlugin
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

from seu_bench import make_strategy
from seu_bench.training import AccuracyMatrix, ModelSizes

TASKS = ((0, 1), (2, 3), (4, 5))

#: What SEU is given in place of the paper's schedules and sizes, as after ``-o`` on the command line.
OPTIONS = {
    "cells": 3,
    "channels": 8,
    "epochs": 6,
    "batch_size": 32,
    "searcher.epochs": 4,
    "searcher.batch_size": 64,
    "searcher.cells": 3,
    "searcher.channels": 4,
    "creator.epochs": 4,
    "creator.batch_size": 32,
}


def digits_of(classes: tuple[int, ...], task: int, *, test: bool) -> AvalancheDataset[Any]:
    """One task as any Avalanche user would make it: images [N, 1, 8, 8], labels from 0, a task label."""
    digits = load_digits()
    keep = torch.tensor([target in classes for target in digits.target])
    keep &= (torch.arange(len(keep)) % 4 == 0) == test
    images = torch.tensor(digits.images, dtype=torch.float32)[keep].unsqueeze(1) / 8 - 1
    labels = torch.tensor(digits.target)[keep] - classes[0]
    data: Any = TensorDataset(images, labels)
    data.targets = labels.tolist()
    return as_classification_dataset(data).update_data_attribute(
        "targets_task_labels", TaskLabels([task] * len(labels))
    )


def main() -> list[list[float | None]]:
    """Learn three tasks and return the accuracy matrix."""
    torch.manual_seed(0)
    benchmark = with_task_labels(
        benchmark_from_datasets(
            train=[digits_of(classes, task, test=False) for task, classes in enumerate(TASKS)],
            test=[digits_of(classes, task, test=True) for task, classes in enumerate(TASKS)],
        )
    )
    matrix, sizes = AccuracyMatrix(len(TASKS)), ModelSizes()
    strategy = make_strategy(
        "seu",
        benchmark,
        options=OPTIONS,
        seed=0,
        evaluator=EvaluationPlugin(matrix, sizes, accuracy_metrics(experience=True), loggers=[TextLogger()]),
    )
    for experience in benchmark.train_stream:
        strategy.train(experience, eval_streams=[])
        strategy.eval(benchmark.test_stream[: experience.current_experience + 1])
    for row in matrix.result():
        print("  ".join("  -  " if value is None else f"{value:.3f}" for value in row))
    print(f"{sizes.params_total[-1]:,} parameters, {sizes.memory_bytes[-1]:,} bytes kept for later tasks")
    return matrix.result()


if __name__ == "__main__":
    main()
