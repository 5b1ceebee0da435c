"""Tiny data, streams and settings that the tests of the core share: plain functions, real parts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

from seu_bench.config.protocol import ImageLimits
from seu_bench.config.run import Request
from seu_bench.data import InputShape
from seu_bench.data.dataset import RawDataset
from seu_bench.data.images import TaskImages
from seu_bench.data.planning import StreamPlan
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.engine.resolve import resolve
from seu_bench.plugin.registry import Registry
from seu_bench.testing.streams import benchmark, class_split, raw_dataset, raw_split
from seu_bench.testing.trial import evaluate_logits, same
from seu_bench.training.interfaces import StrategyContext
from seu_bench_kit.cells import CellSpace
from seu_bench_kit.genotypes import GENOTYPES, Genotype
from seu_bench_seu.super_model import SuperModel

__all__ = ["benchmark", "class_stream", "raw_dataset", "raw_split", "same"]

CPU = torch.device("cpu")

#: Threads before :func:`one_thread`.
_THREADS: list[int] = []

#: A run that takes a fraction of a second per task.
SMALL: dict[str, Any] = {
    "cells": 3,
    "channels": 2,
    "epochs": 2,
    "batch_size": 16,
    "searcher.epochs": 2,
    "searcher.batch_size": 16,
    "searcher.cells": 3,
    "searcher.channels": 2,
    "creator.epochs": 2,
    "creator.batch_size": 16,
}


def one_thread() -> None:
    """Compute with one thread for the length of a test module: images this small only wait for a second one."""
    _THREADS.append(torch.get_num_threads())
    torch.set_num_threads(1)


def all_threads() -> None:
    """Undo :func:`one_thread`."""
    torch.set_num_threads(_THREADS.pop())


def class_stream(
    groups: Sequence[Sequence[int]],
    *,
    images: int = 40,
    test: int = 12,
    channels: int = 1,
    size: int = 8,
    seed: int = 0,
    data: RawDataset | None = None,
) -> TaskStream:
    """Tasks of the given classes in this order, with a quarter of the training images for validation."""
    count = 1 + max(label for group in groups for label in group)
    data = data or raw_dataset([images] * count, [test] * count, channels=channels, size=size)
    return build_stream(benchmark(class_split(groups)), lambda _: data, ImageLimits(), seed)


def disturb() -> None:
    """Draw from the global generators, as other code might between two epochs."""
    torch.manual_seed(99)
    np.random.seed(99)
    random.seed(99)
    torch.rand(3), np.random.rand(3), random.random()


def task_of(stream: TaskStream, task: int = 0) -> TaskImages:
    """The training images of a task."""
    return stream.tasks[task].train


@cache
def registry() -> Registry:
    """Registry of the installed plugins; looked up once."""
    return Registry()


def context(
    plan: StreamPlan, strategy: str, options: Mapping[str, Any], *, seed: int = 0, **more: Any
) -> StrategyContext:
    """A strategy's context for a stream of our own, by way of the options' own validation and presets."""
    request = Request(strategy=strategy, protocol="smoke", seed=seed, options=options)
    return resolve(registry(), request).context(plan, **more)


def build(stream: TaskStream, strategy: str, *, seed: int = 0, on_progress: Any = None, **options: Any) -> Any:
    """A strategy for a stream; a dot in an option's name is written as two underscores."""
    given = {name.replace("__", "."): value for name, value in options.items()}
    small = SMALL if strategy == "seu" else {"epochs": 2, "batch_size": 16}
    made = context(stream.plan, strategy, {**small, **given}, seed=seed, on_progress=on_progress)
    return registry().strategies.find(strategy).factory.build(made)


def learn(stream: TaskStream, strategy: Any, tasks: int | None = None) -> Any:
    """Train on the first ``tasks`` tasks as a plain Avalanche script does, with the validation stream to select by."""
    scenario = stream.avalanche()
    for experience in scenario.train_stream[:tasks]:
        strategy.train(experience, eval_streams=[scenario.streams["valid"]])
    return strategy


def logits_of(model: Any, stream: TaskStream, task: int) -> torch.Tensor:
    """Logits of a task's test images in evaluation mode."""
    images = stream.tasks[task].test
    return evaluate_logits(model, images.gather(torch.arange(len(images)))[0], task)


def super_model(
    classes: Sequence[int] = (2, 3, 2), cells: int = 3, channels: int = 2, *, image_channels: int = 1, **more: Any
) -> SuperModel:
    """An empty super model, its weights from seed 0."""
    torch.manual_seed(0)
    return SuperModel(image_shape(image_channels), classes, cells, channels, more.pop("space", CellSpace()), **more)


def image_shape(channels: int = 1, size: int = 8) -> InputShape:
    """The shape of square images."""
    return InputShape("image", (channels, size, size))


def genotype(name: str = "darts_v1") -> Genotype:
    """A published genotype."""
    return GENOTYPES[name]


def weights(module: nn.Module) -> dict[str, torch.Tensor]:
    """A copy of everything in a module's state."""
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}
