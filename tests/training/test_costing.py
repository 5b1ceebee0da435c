"""Costs of networks of one's own."""

from __future__ import annotations

import torch
from support.tiny import all_threads, class_stream, context, learn, one_thread
from torch import Tensor, nn

from seu_bench.data.planning import StreamPlan
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.models.sizes import count_parameters
from seu_bench.training.stage import StageProgress
from seu_bench.training.strategy import StagedStrategy
from seu_bench_kit.costing import fixed_size_cost

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
    cost = fixed_size_cost(made, lambda: Deepening(stream.plan))
    model = Deepening(stream.plan)
    pixels = stream.plan.channels * stream.plan.height * stream.plan.width
    assert cost.params_total == (count_parameters(model),) * 2
    assert cost.macs == (pixels * 4 + 8, pixels * 4 + 16 + 8)
    assert cost.memory_bytes == (4 * count_parameters(model),) * 2
    learn(stream, StagedStrategy.of(made, model=model))
    assert sum(it.image_passes for it in ended) == cost.image_passes
    assert sum(it.flops or 0 for it in ended) == cost.train_flops
