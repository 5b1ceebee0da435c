"""Networks as the stages train them, each as a step: loss and gradients of one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seu_bench.data.images import TaskImages
from seu_bench.models.backbone import BackboneModel
from seu_bench.models.feature_cache import FeatureCache
from seu_bench.models.feature_store import Tier
from seu_bench.models.multihead import MultiHeadModel
from seu_bench_kit import EDGES, GENOTYPES, OPERATIONS, AlexNetShape, ProxyNetwork, SearchSpace
from seu_bench_kit.blocks import alexnet
from seu_bench_ltg.network import GrowingAlexNet, Mixture
from seu_bench_methods.pnn import ProgressiveNetwork
from seu_bench_seu.super_model import SuperModel

CLASSES = (20, 20, 20, 20, 20)
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Scale:
    """Sizes of networks and batches.

    Attributes:
        width: factor of the AlexNet variant.
        cells, channels: of SEU's networks.
    """

    width: float = 1.0
    cells: int = 5
    channels: int = 16
    batch: int = 128
    pixels: int = 32


Step = Callable[[], None]


def training_step(forward: Callable[[Tensor], Tensor], weights: Sequence[Tensor], x: Tensor, y: Tensor) -> Step:
    """Loss and gradients of a batch."""

    def step() -> None:
        for weight in weights:
            weight.grad = None
        nn.functional.cross_entropy(forward(x), y).backward(inputs=list(weights))

    return step


def batch(scale: Scale, cached: MultiHeadModel | None = None) -> tuple[Tensor, Tensor]:
    """Random images and labels; those of a task whose features the model keeps, if one is given."""
    images = torch.randn(scale.batch, 3, scale.pixels, scale.pixels)
    labels = torch.randint(0, CLASSES[0], (scale.batch,))
    if cached is None:
        return images, labels
    cached.feature_cache = FeatureCache([Tier(CPU, 2**33)], scale.batch)
    task = cached.feature_cache.number(TaskImages(images, torch.arange(scale.batch), labels, 0, 3))
    return task.gather(torch.arange(scale.batch))


def naive_training(scale: Scale) -> Step:
    """The AlexNet variant."""
    shape = AlexNetShape.of(3, scale.pixels, scale.pixels, scale.width)
    model = BackboneModel(alexnet(shape), shape.linear, CLASSES[:1]).train()
    return training_step(lambda x: model.forward_single_task(x, 0), list(model.parameters()), *batch(scale))


def pnn_training(scale: Scale) -> Step:
    """The last column of a progressive network."""
    model = ProgressiveNetwork(AlexNetShape.of(3, scale.pixels, scale.pixels, scale.width), CLASSES)
    for task in range(len(CLASSES)):
        model.freeze()
        model.expand(task)
    model.train()
    return _of_task(model, len(CLASSES) - 1, scale)


def seu_search(scale: Scale) -> Step:
    """A proxy network with the operations that a search draws first: one per edge, any."""
    network = ProxyNetwork(3, CLASSES[0], max(3, scale.cells - 1), scale.channels, SearchSpace()).train()
    drawn = torch.randint(0, len(OPERATIONS), (2, len(EDGES))).tolist()
    forward = network.sampled((drawn[0], drawn[1]))
    used = _used(lambda: forward(torch.randn(4, 3, scale.pixels, scale.pixels)).sum(), list(network.parameters()))
    return training_step(forward, used, *batch(scale))


def seu_creation(scale: Scale) -> Step:
    """A path whose first half is old."""
    model = super_model(scale)
    half = len(model.layers) // 2
    model.set_path(1, [0] * half + [1] * (len(model.layers) - half))
    return _of_task(model, 1, scale)


def seu_training(scale: Scale) -> Step:
    """A path that is all new."""
    model = super_model(scale)
    model.set_path(1, [1] * len(model.layers))
    return _of_task(model, 1, scale)


def ltg_search(scale: Scale) -> Step:
    """The mixture of all candidates of a second task."""
    model = _growing(scale)
    mixture = Mixture(model, 1).train()
    return training_step(lambda x: mixture(model, x), mixture.weights(), *batch(scale, model))


def ltg_training(scale: Scale) -> Step:
    """A second task that is all new."""
    model = _growing(scale)
    model.grow_anew(1)
    return _of_task(model, 1, scale)


def super_model(scale: Scale) -> SuperModel:
    """A super model that learned a task, and was expanded for another."""
    model = SuperModel(3, CLASSES, scale.cells, scale.channels, SearchSpace())
    model.expand(GENOTYPES["darts_v1"], 0)
    model.keep(0, [0] * len(model.layers))
    model.freeze()
    model.expand(GENOTYPES["darts_v1"], 1)
    return model.train()


#: By stage.
STEPS: dict[str, Callable[[Scale], Step]] = {
    "naive, training": naive_training,
    "pnn, training of the last column": pnn_training,
    "ltg, search": ltg_search,
    "ltg, training": ltg_training,
    "seu, search": seu_search,
    "seu, creation": seu_creation,
    "seu, training": seu_training,
}


def _growing(scale: Scale) -> GrowingAlexNet:
    model = GrowingAlexNet(AlexNetShape.of(3, scale.pixels, scale.pixels, scale.width), CLASSES)
    model.grow_anew(0)
    model.freeze()
    return model.train()


def _of_task(model: MultiHeadModel, task: int, scale: Scale) -> Step:
    weights = [weight for weight in model.trainable_module(task).parameters() if weight.requires_grad]
    return training_step(lambda x: model.forward_single_task(x, task), weights, *batch(scale, model))


def _used(compute: Callable[[], Tensor], weights: list[nn.Parameter]) -> list[Tensor]:
    """Select the ``weights`` that a computation depends on."""
    found = torch.autograd.grad(compute(), weights, allow_unused=True)
    return [weight for weight, gradient in zip(weights, found, strict=True) if gradient is not None]
