"""Small progressive networks and streams."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import torch
from support.commands import Command
from support.tiny import (
    class_stream,
)

from seu_bench.data.streams import TaskStream
from seu_bench.training.stage import Stage, TaskData
from seu_bench_kit.blocks import AlexNetShape
from seu_bench_methods.pnn import ProgressiveNetwork

#: 3, 6 and 13 channels, 102 hidden units.
WIDTH = 0.05


#: Sizes that differ wherever they may.
SMALL = AlexNetShape(2, 9, 16, (3, 4, 5), 7)


CLASSES = (2, 4, 3)


def stream(groups: Any = ((0, 1), (2, 3, 4), (5, 6)), **more: Any) -> TaskStream:
    return class_stream(groups, **{"images": 16, **more})


def network(shape: AlexNetShape = SMALL, columns: int = 3, seed: int = 0) -> ProgressiveNetwork:
    """A network of which the newest column trains."""
    torch.manual_seed(seed)
    made = ProgressiveNetwork(shape, CLASSES)
    for task in range(columns):
        made.freeze()
        made.expand(task)
    return made


def column_size(shape: AlexNetShape, t: int, n: int) -> int:
    """Parameters of column t with n classes: its layers, and a lateral of s, V and U into each but the first."""
    inputs = (shape.image_channels, *shape.convolutions[:2], shape.flat, shape.linear, shape.linear)
    outputs = (*shape.convolutions, shape.linear, shape.linear, n)
    kernels = (9, 9, 9, 1, 1, 1)
    layers = [(k * i + 1) * o for k, i, o in zip(kernels, inputs, outputs, strict=True)]
    laterals = [t + i * (i * t + 1) + layer for i, layer in zip(inputs[1:], layers[1:], strict=True)]
    return sum(layers) + (sum(laterals) if t else 0)


@cache
def cost(command: Command, *arguments: object) -> dict[str, Any]:
    answer = command("cost", "--strategy", "pnn", "--no-time", "--format", "json", *arguments)
    assert (answer.status, answer.err) == (0, "")
    document: dict[str, Any] = json.loads(answer.out)
    return document


def training(strategy: Any, task: int) -> Stage[None]:
    """The stage that trains a task's new column."""
    source = stream()
    strategy.experience = source.avalanche().train_stream[task]
    strategy.adapted_dataset = strategy.experience.dataset
    strategy.make_train_dataloader()
    stage: Stage[None] = strategy.phases(TaskData(task, source.tasks[task].train, source.tasks[task].valid))[0].make()
    return stage
