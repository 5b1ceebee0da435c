"""Searches on a tiny task, and creations on super models that grew unevenly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from support.tiny import class_stream, genotype, image_shape, registry, super_model
from torch import Tensor

from seu_bench.config.protocol import CreationSchedule, SearchSchedule
from seu_bench.data.images import TaskImages
from seu_bench.training.stage import Stage
from seu_bench.utils.seeding import RandomState
from seu_bench_kit.cells import CellSpace
from seu_bench_kit.components import CreationTask, SearchTask
from seu_bench_seu.super_model import SuperModel

CPU = torch.device("cpu")

#: The images of a search: of 17, eight train.
IMAGES = class_stream([[0, 1], [2, 3]], images=11).tasks[1].train
SCHEDULE = SearchSchedule(epochs=3, batch_size=8, cells=3, channels=2, min_learning_rate=0.001)
SPACES = [CellSpace(edges, kinds) for edges in ("top2", "all14") for kinds in (1, 2)]
every_space = pytest.mark.parametrize("space", SPACES, ids=lambda space: f"{space.edges}-{space.cell_types}")


def search_task(seed: int = 3, space: CellSpace | None = None, schedule: SearchSchedule = SCHEDULE) -> SearchTask:
    """Input of a searcher."""
    return SearchTask(IMAGES, 1, 2, image_shape(), space or CellSpace(), schedule, seed, CPU)


STREAM = class_stream([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]], images=23)


#: By task, the path that it was learned with: layers end up with different numbers of units.
PATHS = ((0, 0, 0, 0), (0, 1, 0, 1), (1, 0, 1, 2), (0, 1, 1, 0))


GENOTYPES = ("darts_v1", "mdenas_mixture", "darts_v2", "mdenas_pmnist", "mdenas_mixture")


def grown(task: int = 2, *, stem: Any = "selectable", paths: Sequence[Sequence[int]] = PATHS) -> SuperModel:
    """A super model that learned the tasks before ``task`` and was expanded for it; the same one every time."""
    model = super_model((2,) * 5, stem=stem)
    with RandomState(1).active():
        for earlier in range(task):
            model.expand(genotype(GENOTYPES[earlier]), earlier)
            model.train()
            model.set_path(earlier, [count - 1 for count in model.candidates])
            images = STREAM.tasks[earlier].train
            # BatchNorm's statistics are those of real images, and no two units are alike.
            model.forward_single_task(images.gather(torch.arange(16))[0], earlier)
            path = list(paths[earlier])
            if stem == "shared":
                path[0] = 0
            model.keep(earlier, path)
            model.freeze()
        model.expand(genotype(GENOTYPES[task]), task)
    return model


def task_of(
    model: SuperModel, task: int = 2, *, epochs: int = 3, seed: int = 3, images: int = 20, batch: int = 8
) -> CreationTask:
    """Input of a creator: half of so many images train."""
    schedule = CreationSchedule(epochs=epochs, batch_size=batch, learning_rate=0.05)
    return CreationTask(model, STREAM.tasks[task].train.part(0, images), task, schedule, seed, CPU)


def creation(
    name: str, model: SuperModel | None = None, task: int = 2, options: Any = None, **more: Any
) -> Stage[tuple[int, ...]]:
    """A creation stage as the strategy makes it: by the registered factory."""
    factory = registry().creators.find(name).factory
    return factory.build(options or factory.options(), task_of(model or grown(task), task, **more))


def announced(name: str, *, epochs: int, images: int, batch: int = 8) -> int:
    """Image passes that the factory says the stage takes, at most."""
    factory = registry().creators.find(name).factory
    schedule = CreationSchedule(epochs=epochs, batch_size=batch)
    return sum(factory.estimate_passes(factory.options(), schedule, images))


def all_of(images: TaskImages) -> tuple[Tensor, Tensor]:
    return images.gather(torch.arange(len(images)))
