"""What Avalanche's strategies keep, in bytes: forecast and measured, on streams of ours and of a plain script."""

from __future__ import annotations

from typing import Any

import torch
from avalanche.benchmarks import benchmark_from_datasets, with_task_labels
from avalanche.benchmarks.utils import AvalancheDataset, TaskLabels, as_classification_dataset
from avalanche.training import Naive
from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
from support.tiny import all_threads, one_thread
from torch import nn
from torch.utils.data import TensorDataset

from seu_bench.config.protocol import Schedule
from seu_bench.models import BackboneModel
from seu_bench.training import ModelSizes, SilentLogger
from seu_bench_avalanche.buffers import PolicyMemory
from seu_bench_avalanche.strategy import AvalancheStrategy

setup_module, teardown_module = one_thread, all_threads


def measuring() -> tuple[ModelSizes, Any]:
    sizes = ModelSizes()
    return sizes, EvaluationPlugin(sizes, loggers=[SilentLogger()], collect_all=False)  # type: ignore[no-untyped-call]


def plain_task(task: int) -> AvalancheDataset[Any]:
    """Ten images of two classes as any Avalanche user has them."""
    data: Any = TensorDataset(torch.rand(10, 1, 4, 4), torch.arange(10) % 2)
    data.targets = [index % 2 for index in range(10)]
    return as_classification_dataset(data).update_data_attribute("targets_task_labels", TaskLabels([task] * 10))


def test_plain_script() -> None:
    """The evaluator counts in a script of one's own too; Avalanche's own strategies do not say what they keep."""
    tasks = [plain_task(task) for task in range(2)]
    stream: Any = with_task_labels(benchmark_from_datasets(train=tasks, test=tasks)).train_stream
    model = BackboneModel(nn.Flatten(), 16, (2, 2))
    sizes, evaluator = measuring()
    ours = AvalancheStrategy(
        model=model,
        schedule=Schedule(epochs=1, batch_size=5, learning_rate=0.1),
        methods=[ReplayPlugin(mem_size=6, batch_size_mem=3)],
        memory=PolicyMemory,
        evaluator=evaluator,
    )
    for experience in stream:
        ours.train(experience, eval_streams=[])
    weights = 4 * (16 + 1) * 2 * 2
    assert sizes.memory_bytes == [weights + 6 * (4 * 4 + 2 + 4)] * 2
    assert sizes.memory_by_kind == {"parameters": weights, "exemplars": 132}

    sizes, evaluator = measuring()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    stock = Naive(model=model, optimizer=optimizer, criterion=nn.CrossEntropyLoss(), evaluator=evaluator)
    stock.train(stream[0])
    assert (sizes.params_total, sizes.memory_bytes, sizes.memory_by_kind) == ([weights // 4], [None], {})
