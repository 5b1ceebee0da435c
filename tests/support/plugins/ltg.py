"""Small growing networks, searches and images for Learn to Grow."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from support.tiny import (
    class_stream,
)
from torch import Tensor

from seu_bench.config.protocol import Schedule
from seu_bench.data.images import TaskImages
from seu_bench.data.streams import TaskStream
from seu_bench.training.stage import TaskData
from seu_bench_kit.blocks import AlexNetShape
from seu_bench_ltg.method import LearnToGrow, StructureSearch
from seu_bench_ltg.network import Choice, Decision, GrowingAlexNet, Mixture

#: One channel, 8x8, without dropout: what is computed has one answer.
SHAPE = AlexNetShape(1, 8, 8, (2, 3, 4), 5, dropout=(0.0,) * 5)


#: What becomes of a layer: its kind and its unit.
NEW, REUSE, ADAPT = (Choice("new", 1), Choice("reuse", 0), Choice("adapt", 0))


def network(shape: AlexNetShape = SHAPE, classes: tuple[int, ...] = (2, 3, 2, 2)) -> Any:
    """A network that learned its first task: one frozen unit per layer, weights from seed 0."""
    torch.manual_seed(0)
    model = GrowingAlexNet(shape, classes)
    model.grow_anew(0)
    model.freeze()
    return model


def grown(model: GrowingAlexNet, task: int, *choices: Choice) -> None:
    """Let a task choose, with fresh modules, and freeze it."""
    decisions = []
    for index, choice in enumerate(choices):
        layer = model.layer(index)
        made = {"new": layer.make_unit, "adapt": layer.make_adapter, "reuse": lambda: None}[choice.kind]()
        decisions.append(Decision(choice, made))
    model.grow(task, decisions)
    model.freeze()


def images(count: int = 12, task: int = 1, seed: int = 0) -> TaskImages:
    """Noise with two labels."""
    generator = torch.Generator().manual_seed(seed)
    store = torch.randn(count, 1, 8, 8, generator=generator)
    return TaskImages(store, torch.arange(count), torch.arange(count) % 2, task, 1)


def search(
    model: GrowingAlexNet,
    data: TaskImages,
    *,
    valid: TaskImages | None = None,
    mixture: Mixture | None = None,
    batch: int = 64,
    epochs: int = 4,
    seed: int = 3,
    cosine: bool = True,
    schedule: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> StructureSearch:
    """The search of task 1, by default with a mixture from a fixed seed."""
    torch.manual_seed(1)
    training = Schedule(epochs=epochs, batch_size=batch, **schedule)
    method = LearnToGrow(model=model, schedule=training, seed=seed, lr_schedule="cosine" if cosine else "constant")
    method.begin(LearnToGrow.Options(search_weight_decay=training.weight_decay, **options), stream().plan)
    return StructureSearch(method, TaskData(1, data, valid), mixture or Mixture(model, 1))


def rectified(x: Tensor) -> Tensor:
    """ReLU and, of images, pooling: written as it is defined, without the layer's own code."""
    x = x.clamp(min=0)
    return x if x.dim() == 2 else x.unfold(2, 2, 2).unfold(3, 2, 2).amax(dim=(-2, -1))


def stream(**more: Any) -> TaskStream:
    """Three tasks, heads of unequal width."""
    return class_stream([[0, 1], [2, 3, 4], [5, 6]], **{"images": 16, **more})


#: Structures that differ from task to task, in little time.
LIVELY: dict[str, Any] = {"epochs": 2, "batch_size": 8, "arch_learning_rate": 0.3, "size_penalty": 0.0}
