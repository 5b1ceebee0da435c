"""The networks: batches of samples to features ``[N, F]``, and ``F``; ``factor`` scales widths.

The ResNet-18 (He et al., CVPR 2016) is that of GEM (Lopez-Paz & Ranzato, NIPS 2017, section 5): a third of the width,
for small images, a 3x3 stem without pooling, 20 channels that double three times. The ResNet-32 is that of He et al.
for CIFAR (section 4.2): three groups of five blocks, 16 channels that double twice, shortcuts without parameters. The
even ResNet-18 is that of MNTDP (Veniat, Denoyer & Ranzato, ICLR 2021): 64 channels throughout. ``hat_mlp`` and
``den_mlp`` are the networks that HAT (Serra et al., ICML 2018) and DEN (Yoon et al., ICLR 2018, published code) learn
permuted MNIST with. ``conv4`` is that of matching networks (Vinyals et al., NIPS 2016, section 4.1). ``cells`` is a
path of SEU whose units are all new, of a cell that was drawn once: what a method without a search does with it.
"""

from __future__ import annotations

import math
import random

from torch import Tensor, nn

from seu_bench.data import InputShape
from seu_bench.models.layers import Dropout
from seu_bench_kit import AlexNetShape, ResidualBlock, even_resnet_parts
from seu_bench_kit.blocks import alexnet as make_alexnet
from seu_bench_kit.cells import CellSpace
from seu_bench_kit.networks import GenotypeNetwork

#: Width of both hidden layers (van de Ven & Tolias, "Three scenarios for continual learning", 2019, split MNIST).
HIDDEN = 400

#: Width of the hidden layer, and its dropout (Avalanche 0.6.0, ``SimpleMLP``).
SIMPLE_HIDDEN, SIMPLE_DROPOUT = 512, 0.5

#: Width of the hidden layer (continual-learning-baselines, LwF on split MNIST).
TANH_HIDDEN = 200

#: Width of both hidden layers of HAT's perceptron, and the dropout of the pixels and of each layer.
HAT_HIDDEN, HAT_PIXEL_DROPOUT, HAT_DROPOUT = 2000, 0.2, 0.5

#: Widths of the hidden layers of DEN's perceptron.
DEN_HIDDEN = (312, 128)

#: Width of the embedding of a token, and of the hidden layer behind the mean.
EMBEDDING, EMBEDDING_HIDDEN = 64, 128

#: Channels of the ResNet-18's first of four groups, of all groups of the even one, of the ResNet-32's first of three.
CHANNELS, EVEN_CHANNELS, CIFAR_CHANNELS = 20, 64, 16

#: Channels that the first of the cells has a multiple of (the SEU paper).
CELL_CHANNELS = 36

#: Blocks of ``conv4``, and the channels of each.
CONV_BLOCKS, CONV_CHANNELS = 4, 64


def alexnet(sample: InputShape, factor: float) -> tuple[nn.Module, int]:
    """The paper's variant of AlexNet."""
    shape = AlexNetShape.of(*sample.sides, factor)
    return make_alexnet(shape), shape.linear


def cells(sample: InputShape, factor: float, count: int) -> tuple[nn.Module, int]:
    """So many cells of one genotype, the same in every run."""
    space, channels = CellSpace(), max(1, round(factor * CELL_CHANNELS))
    network = GenotypeNetwork(space.random_genotype(random.Random(0).randrange), sample, 1, count, channels, space)
    features, network.head = network.head.in_features, nn.Identity()  # type: ignore[assignment]
    return network, features


def conv4(sample: InputShape, factor: float) -> tuple[nn.Module, int]:
    """Four blocks of a 3x3 convolution, batch normalisation, ReLU and pooling by 2, which stops at a width of 1."""
    (inputs, *sides), channels = sample.sides, max(1, round(factor * CONV_CHANNELS))
    layers: list[nn.Module] = []
    for _ in range(CONV_BLOCKS):
        layers += [nn.Conv2d(inputs, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
        if min(sides) > 1:
            layers.append(nn.MaxPool2d(2))
            sides = [side // 2 for side in sides]
        inputs = channels
    return nn.Sequential(*layers, nn.Flatten()), channels * math.prod(sides)


def linear(sample: InputShape, factor: float) -> tuple[nn.Module, int]:  # noqa: ARG001
    """The pixels or features themselves, so that a strategy's linear heads are all there is.

    No hidden layer has a width that ``factor`` could multiply; it is not refused, because the short protocols ask every
    network for a narrower one.
    """
    return nn.Flatten(), math.prod(sample.shape)


def mlp(sample: InputShape, factor: float) -> tuple[nn.Module, int]:
    """A perceptron with two hidden layers."""
    hidden = max(1, round(factor * HIDDEN))
    first = nn.Linear(math.prod(sample.shape), hidden)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()), hidden


def simple_mlp(sample: InputShape, factor: float) -> tuple[nn.Module, int]:
    """A perceptron with one hidden layer and dropout behind it."""
    hidden = max(1, round(factor * SIMPLE_HIDDEN))
    first = nn.Linear(math.prod(sample.shape), hidden)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), Dropout(SIMPLE_DROPOUT)), hidden


def tanh_mlp(sample: InputShape, factor: float) -> tuple[nn.Module, int]:
    """A perceptron with one hidden layer of tanh."""
    hidden = max(1, round(factor * TANH_HIDDEN))
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(sample.shape), hidden), nn.Tanh()), hidden


def hat_mlp(sample: InputShape, factor: float) -> tuple[nn.Module, int]:
    """A perceptron with two hidden layers and dropout, of the pixels too."""
    hidden = max(1, round(factor * HAT_HIDDEN))
    layers: list[nn.Module] = [nn.Flatten(), Dropout(HAT_PIXEL_DROPOUT)]
    for inputs in (math.prod(sample.shape), hidden):
        layers += [nn.Linear(inputs, hidden), nn.ReLU(), Dropout(HAT_DROPOUT)]
    return nn.Sequential(*layers), hidden


def den_mlp(sample: InputShape, factor: float) -> tuple[nn.Module, int]:
    """A perceptron with two hidden layers, the second one narrower."""
    first, second = (max(1, round(factor * units)) for units in DEN_HIDDEN)
    pixels = math.prod(sample.shape)
    layers = (nn.Flatten(), nn.Linear(pixels, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU())
    return nn.Sequential(*layers), second


class _MeanOfTokens(nn.Module):
    def forward(self, tokens: Tensor) -> Tensor:
        return tokens.mean(dim=1)


def embedding(sample: InputShape, factor: float) -> tuple[nn.Module, int]:
    """The mean of the tokens' embeddings, and a hidden layer."""
    width, hidden = (max(1, round(factor * units)) for units in (EMBEDDING, EMBEDDING_HIDDEN))
    first = nn.Embedding(sample.vocabulary or 1, width)
    return nn.Sequential(first, _MeanOfTokens(), nn.Linear(width, hidden), nn.ReLU()), hidden


def resnet18(sample: InputShape, factor: float) -> tuple[nn.Module, int]:
    """The slim ResNet-18, for images of any size."""
    return _residual_network(sample.sides[0], max(1, round(factor * CHANNELS)), groups=4, blocks=2, projects=True)


def resnet18_even(sample: InputShape, factor: float) -> tuple[nn.Module, int]:
    """The even ResNet-18, whose parts are the modules of ``mntdp``, for images of any size."""
    hidden = max(1, round(factor * EVEN_CHANNELS))
    parts = [make() for make in even_resnet_parts(sample.sides[0], hidden)]
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten()), hidden


def resnet32(sample: InputShape, factor: float) -> tuple[nn.Module, int]:
    """The ResNet-32 for CIFAR, for images of any size."""
    first = max(1, round(factor * CIFAR_CHANNELS))
    return _residual_network(sample.sides[0], first, groups=3, blocks=5, projects=False)


def _residual_network(channels: int, first: int, *, groups: int, blocks: int, projects: bool) -> tuple[nn.Module, int]:
    """A stem of ``first`` channels and groups of blocks, whose channels double and whose images halve from each to the
    next."""
    layers: list[nn.Module] = [
        nn.Conv2d(channels, first, 3, padding=1, bias=False),
        nn.BatchNorm2d(first),
        nn.ReLU(),
    ]
    inputs = first
    for group in range(groups):
        outputs = first * 2**group
        layers.append(ResidualBlock(inputs, outputs, 1 if group == 0 else 2, projects=projects))
        layers += [ResidualBlock(outputs, outputs, 1) for _ in range(blocks - 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), inputs
