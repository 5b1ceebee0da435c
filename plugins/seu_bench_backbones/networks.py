"""The networks: images ``[N, channels, height, width]`` to features ``[N, F]``, and ``F``; ``factor`` scales widths.

The ResNet-18 (He et al., CVPR 2016) is that of GEM (Lopez-Paz & Ranzato, NIPS 2017, section 5): a third of the width,
for small images, a 3x3 stem without pooling, 20 channels that double three times. The ResNet-32 is that of He et al.
for CIFAR (section 4.2): three groups of five blocks, 16 channels that double twice, shortcuts without parameters.
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

#: Channels of the first of the four groups of the ResNet-18.
CHANNELS = 20

#: Channels of the first of the three groups of the ResNet-32.
CIFAR_CHANNELS = 16


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


class ThinnedShortcut(nn.Module):
    """Every other row and column, and channels of zeros behind those that there are (He et al., option A).

    Args:
        more: channels of zeros.
    """

    def __init__(self, more: int) -> None:
        super().__init__()
        self.more = more

    def forward(self, x: Tensor) -> Tensor:
        """``[N, C, H, W] -> [N, C + more, H/2, W/2]``, sizes rounded up."""
        return nn.functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, self.more))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, ``[N, inputs, H, W] -> [N, outputs, H/stride, W/stride]``.

    Args:
        inputs, outputs: channels.
        stride: 1 or 2.
        projects: whether a shortcut between different sizes is a convolution, or has no parameters.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, *, projects: bool = True) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if not projects and stride != 1:
            self.shortcut = ThinnedShortcut(outputs - inputs)
        elif stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return nn.functional.relu(self.residual(x) + self.shortcut(x))


def resnet18(channels: int, height: int, width: int, factor: float) -> tuple[nn.Module, int]:  # noqa: ARG001
    """The slim ResNet-18, for images of any size."""
    return _residual_network(channels, max(1, round(factor * CHANNELS)), groups=4, blocks=2, projects=True)


def resnet32(channels: int, height: int, width: int, factor: float) -> tuple[nn.Module, int]:  # noqa: ARG001
    """The ResNet-32 for CIFAR, for images of any size."""
    return _residual_network(channels, max(1, round(factor * CIFAR_CHANNELS)), groups=3, blocks=5, projects=False)


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
