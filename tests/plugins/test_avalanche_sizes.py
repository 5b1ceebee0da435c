"""What Avalanche's strategies keep, in bytes: forecast and measured, on streams of ours and of a plain script."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from avalanche.benchmarks import benchmark_from_datasets, with_task_labels
from avalanche.benchmarks.utils import AvalancheDataset, TaskLabels, as_classification_dataset
from avalanche.training import Naive
from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
from support.tiny import all_threads, benchmark, context, one_thread, raw_dataset, registry
from torch import nn
from torch.utils.data import TensorDataset

from seu_bench.config.protocol import ImageLimits, Schedule
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.models import BackboneModel
from seu_bench.testing.streams import class_split
from seu_bench.training import ModelSizes, SilentLogger
from seu_bench_avalanche.buffers import PolicyMemory
from seu_bench_avalanche.strategy import AvalancheStrategy

setup_module, teardown_module = one_thread, all_threads

#: Bytes of a grey image of 8x8 with its label and task.
IMAGE = 8 * 8 + 2


def measuring() -> tuple[ModelSizes, Any]:
    sizes = ModelSizes()
    return sizes, EvaluationPlugin(sizes, loggers=[SilentLogger()], collect_all=False)  # type: ignore[no-untyped-call]


def repeated_stream() -> TaskStream:
    """Two tasks of 24 and 12 training images, grey ones which the network sees in three channels."""
    stream = class_split([(0, 1), (2,)]) | {"input": {"mean": [0.5], "std": [0.25], "channels": 3}}
    return build_stream(benchmark(stream), lambda _: raw_dataset([16] * 3, [4] * 3), ImageLimits(), 0)


@pytest.mark.parametrize(
    ("name", "options", "kept"),
    [
        ("gem", {"patterns_per_experience": 15}, [15 * IMAGE, (15 + 12) * IMAGE]),
        ("agem", {"patterns_per_experience": 15, "sample_size": 4}, [15 * IMAGE, (15 + 12) * IMAGE]),
        ("replay", {"mem_size": 25, "batch_size_mem": 4}, [24 * (IMAGE + 4), (13 + 12) * (IMAGE + 4)]),
        ("cumulative", {}, [24 * IMAGE, 36 * IMAGE]),
        ("joint", {}, [36 * IMAGE]),
    ],
)
def test_images_count_as_their_data_set_has_them(name: str, options: dict[str, Any], kept: list[int]) -> None:
    """One channel of 8 bits, whatever the network sees and however the strategy holds them; forecast exactly."""
    source = repeated_stream()
    sizes, evaluator = measuring()
    made = context(source.plan, name, {"backbone": "linear", "epochs": 1, **options}, evaluator=evaluator)
    factory = registry().strategies.find(name).factory
    strategy, scenario = factory.build(made), source.avalanche()
    if strategy.whole_stream:
        strategy.train(scenario.train_stream, eval_streams=[])
    else:
        for experience in scenario.train_stream:
            strategy.train(experience, eval_streams=[])
    model = 4 * (3 * 64 + 1) * 3
    assert sizes.memory_bytes == [model + taken for taken in kept]
    cost = factory.cost(made)
    assert cost.memory_bytes[-len(kept) :] == cost.memory_bytes_min[-len(kept) :] == tuple(sizes.memory_bytes)


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
