"""Small modular networks, searches and images for PathNet."""

from __future__ import annotations

from typing import Any

import torch
from support.tiny import class_stream
from torch import nn

from seu_bench.data.images import TaskImages
from seu_bench.data.streams import TaskStream
from seu_bench_kit import AlexNetShape, chain_of
from seu_bench_kit.blocks import alexnet
from seu_bench_pathnet.network import ModularNetwork, Path

#: One channel, 8x8, without dropout: what is computed has one answer.
SHAPE = AlexNetShape(1, 8, 8, (16, 24, 32), 40, dropout=(0.0,) * 5)

#: Paths through the five layers of four modules of :func:`network`.
FIRST: Path = ((0, 1), (2, 3), (0, 3), (1, 2), (0, 1))
SECOND: Path = ((0, 2), (2, 2), (1, 2), (3, 0), (1, 0))


def network(classes: tuple[int, ...] = (2, 3, 2), modules: int = 4, seed: int = 0, **more: Any) -> ModularNetwork:
    """An AlexNet variant of modules, without paths, its weights from a seed."""
    torch.manual_seed(seed)
    return ModularNetwork(chain_of(alexnet(more.get("shape", SHAPE)), "pathnet"), classes, modules)


def perceptron(inputs: int, hidden: int) -> nn.Sequential:
    """A backbone of two linear layers."""
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())


def images(count: int = 12, task: int = 0, seed: int = 0) -> TaskImages:
    """Noise with two labels."""
    store = torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
    return TaskImages(store, torch.arange(count), torch.arange(count) % 2, task, 1)


def stream() -> TaskStream:
    """Three tasks of two or three classes."""
    return class_stream([[0, 1], [2, 3, 4], [5, 6]], images=16)


#: A network and a search that learn :func:`stream` in a moment.
QUICK: dict[str, Any] = {"backbone": "mlp", "width": 0.2, "modules": 5, "active": 2, "epochs": 3, "batch_size": 8}
