"""The networks: images ``[N, channels, height, width]`` to features ``[N, F]``, and ``F``; ``factor`` scales widths.

The ResNet-18 (He et al., CVPR 2016) is that of GEM (Lopez-Paz & Ranzato, NIPS 2017, section 5): a third of the width,
for small images, a 3x3 stem without pooling, 20 channels that double three times.
"""

from __future__ import annotations

from torch import Tensor, nn

from seu_bench.models.alexnet import AlexNetShape
from seu_bench.models.alexnet import alexnet as make_alexnet
from seu_bench.models.layers import Dropout

#: Width of both hidden layers (van de Ven & Tolias, "Three scenarios for continual learning", 2019, split MNIST).
HIDDEN = 400

#: Width of the hidden layer, and its dropout (Avalanche 0.6.0, ``SimpleMLP``).
SIMPLE_HIDDEN, SIMPLE_DROPOUT = 512, 0.5

#: Width of the hidden layer (continual-learning-baselines, LwF on split MNIST).
TANH_HIDDEN = 200

#: Channels of the first of the four groups.
CHANNELS = 20


def alexnet(channels: int, height: int, width: int, factor: float) -> tuple[nn.Module, int]:
    """The paper's variant of AlexNet."""
    shape = AlexNetShape.of(channels, height, width, factor)
    return make_alexnet(shape), shape.linear


def linear(channels: int, height: int, width: int, factor: float) -> tuple[nn.Module, int]:  # noqa: ARG001
    """The pixels themselves, so that a strategy's linear heads are all there is.

    No hidden layer has a width that ``factor`` could multiply; it is not refused, because the short protocols ask every
    network for a narrower one.
    """
    return nn.Flatten(), channels * height * width


def mlp(channels: int, height: int, width: int, factor: float) -> tuple[nn.Module, int]:
    """A perceptron with two hidden layers."""
    hidden = max(1, round(factor * HIDDEN))
    first = nn.Linear(channels * height * width, hidden)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()), hidden


def simple_mlp(channels: int, height: int, width: int, factor: float) -> tuple[nn.Module, int]:
    """A perceptron with one hidden layer and dropout behind it."""
    hidden = max(1, round(factor * SIMPLE_HIDDEN))
    first = nn.Linear(channels * height * width, hidden)
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), Dropout(SIMPLE_DROPOUT)), hidden


def tanh_mlp(channels: int, height: int, width: int, factor: float) -> tuple[nn.Module, int]:
    """A perceptron with one hidden layer of tanh."""
    hidden = max(1, round(factor * TANH_HIDDEN))
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width, hidden), nn.Tanh()), hidden


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, ``[N, inputs, H, W] -> [N, outputs, H/stride, W/stride]``."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return nn.functional.relu(self.residual(x) + self.shortcut(x))


def resnet18(channels: int, height: int, width: int, factor: float) -> tuple[nn.Module, int]:  # noqa: ARG001
    """The slim ResNet-18, for images of any size."""
    first = max(1, round(factor * CHANNELS))
    layers: list[nn.Module] = [
        nn.Conv2d(channels, first, 3, padding=1, bias=False),
        nn.BatchNorm2d(first),
        nn.ReLU(),
    ]
    inputs = first
    for group in range(4):
        outputs = first * 2**group
        layers += [ResidualBlock(inputs, outputs, 1 if group == 0 else 2), ResidualBlock(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), inputs
