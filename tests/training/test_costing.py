"""Costs of networks of one's own, and what those are told who forget a part of one."""

from __future__ import annotations

import pytest
import torch
from support.tiny import all_threads, class_stream, context, learn, one_thread
from torch import Tensor, nn

from seu_bench.data.planning import StreamPlan
from seu_bench.errors import RequestError
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.models.sizes import count_parameters
from seu_bench.training.costing import fixed_size_cost
from seu_bench.training.interfaces import checked_options
from seu_bench.training.stage import StageProgress
from seu_bench.training.strategy import StagedStrategy
from seu_bench_seu.options import SeuOptions

setup_module, teardown_module = one_thread, all_threads


class Deepening(MultiHeadModel):
    """Task t is computed by t + 1 layers of 4 units."""

    def __init__(self, plan: StreamPlan) -> None:
        super().__init__(plan.classes_per_task)
        pixels = plan.channels * plan.height * plan.width
        self.layers = nn.ModuleList(nn.Linear(4 if depth else pixels, 4) for depth in range(len(plan.tasks)))
        self.heads = nn.ModuleList(nn.Linear(4, classes) for classes in plan.classes_per_task)

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        x = x.flatten(1)
        for layer in self.layers[: task_label + 1]:
            x = torch.relu(layer(x))
        logits: Tensor = self.heads[task_label](x)
        return logits

    def task_module(self, task: int) -> nn.Module:
        return nn.ModuleList([*self.layers[: task + 1], self.heads[task]])


def test_cost_of_a_network_of_its_own() -> None:
    """Sizes by task, and operations that a training takes, though heads are as wide as each other."""
    stream = class_stream([[0, 1], [2, 3]], images=6)
    ended: list[StageProgress] = []
    options = {"epochs": 2, "batch_size": 8}
    made = context(stream.plan, "naive", options, on_progress=lambda it: ended.append(it) if it.done else None)
    cost = fixed_size_cost(made, kept_copies=0, build=lambda: Deepening(stream.plan))
    model = Deepening(stream.plan)
    pixels = stream.plan.channels * stream.plan.height * stream.plan.width
    assert cost.params_total == (count_parameters(model),) * 2
    assert cost.macs == (pixels * 4 + 8, pixels * 4 + 16 + 8)
    assert cost.memory_bytes == (4 * count_parameters(model),) * 2
    learn(stream, StagedStrategy.of(made, model=model))
    assert sum(it.image_passes for it in ended) == cost.image_passes
    assert sum(it.flops or 0 for it in ended) == cost.train_flops


def test_a_network_without_a_method_is_told_of_it() -> None:
    """Both methods are named, and the class."""
    model = MultiHeadModel([2])
    with pytest.raises(NotImplementedError, match=r"MultiHeadModel has no task_module\(task\)"):
        model.task_module(0)
    with pytest.raises(NotImplementedError, match=r"MultiHeadModel has no forward_single_task\(x, task_label\)"):
        model(torch.zeros(1, 1, 2, 2), 0)


def test_options_of_another_kind() -> None:
    """Both classes are named, and what to do."""
    plan = class_stream([[0, 1]]).plan
    with pytest.raises(RequestError, match="of the kind SeuOptions, not ") as error:
        checked_options(context(plan, "naive", {}), SeuOptions)
    assert "derive " in str(error.value) and " from SeuOptions" in str(error.value)
