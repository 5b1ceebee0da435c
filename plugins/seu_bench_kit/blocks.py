"""Parts of fixed backbones: the AlexNet variant of the paper, residual blocks, the equally wide ResNet-18."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from seu_bench.errors import RequestError
from seu_bench.models.layers import ChannelsLastConv2d, Dropout, channels_last

#: Strides of the four groups of the even ResNet-18.
EVEN_STRIDES = (1, 2, 2, 2)


@dataclass(frozen=True)
class AlexNetShape:
    """Sizes of the AlexNet variant: three convolutions, each halving the image, then two linear layers.

    Attributes:
        image_channels, height, width: of the input.
        convolutions: channels of the three convolutions.
        linear: width of both linear layers, and so of the features.
        dropout: of the five layers.
    """

    image_channels: int
    height: int
    width: int
    convolutions: tuple[int, int, int] = (64, 128, 256)
    linear: int = 2048
    dropout: tuple[float, ...] = (0.2, 0.2, 0.5, 0.5, 0.5)

    @classmethod
    def of(
        cls, image_channels: int, height: int, width: int, factor: float = 1.0, dropout: float = 1.0
    ) -> AlexNetShape:
        """The shape for a stream's images, widths times ``factor``, at least 1, dropout rates times ``dropout``.

        Raises:
            RequestError: images below 8x8 have nothing left after three poolings.
        """
        if min(height, width) < 8:
            raise RequestError(
                f"the AlexNet variant needs images of at least 8x8 pixels, not {height}x{width}",
                remedy="pad the images (stream.input.pad), or choose another backbone or strategy",
            )
        first, second, third = (max(1, round(factor * channels)) for channels in cls.convolutions)
        linear, rates = max(1, round(factor * cls.linear)), tuple(dropout * rate for rate in cls.dropout)
        return cls(image_channels, height, width, (first, second, third), linear, rates)

    @property
    def flat(self) -> int:
        """Numbers per image after the last pooling."""
        return self.convolutions[-1] * (self.height // 8) * (self.width // 8)


def alexnet(shape: AlexNetShape) -> nn.Sequential:
    """Three 3x3 convolutions with pooling, two linear layers: ``[N, C, H, W] -> [N, shape.linear]``."""
    layers: list[nn.Module] = []
    inputs = shape.image_channels
    for outputs, dropout in zip(shape.convolutions, shape.dropout[:3], strict=True):
        layers += [ChannelsLastConv2d(inputs, outputs, 3, padding=1), nn.ReLU(), Dropout(dropout), nn.MaxPool2d(2)]
        inputs = outputs
    layers.append(nn.Flatten())
    inputs = shape.flat
    for dropout in shape.dropout[3:]:
        layers += [nn.Linear(inputs, shape.linear), nn.ReLU(), Dropout(dropout)]
        inputs = shape.linear
    return nn.Sequential(*layers)


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


class ResidualStem(nn.Module):
    """A 3x3 convolution, BatchNorm and ReLU, ``[N, inputs, H, W] -> [N, outputs, H, W]``.

    Args:
        inputs, outputs: channels.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        """The stem's output, channels innermost in memory: on a CPU all that follows is faster so."""
        output: Tensor = self.layers(channels_last(x))
        return output


def even_resnet_parts(image_channels: int, channels: int, *, split_last: bool = False) -> list[Callable[[], nn.Module]]:
    """A ResNet-18 that is equally wide throughout, in parts that stand one behind another: a stem and four groups of
    two blocks, at a half, a quarter and an eighth of the resolution from the second group on.

    Source: the network of MNTDP (T. Veniat, L. Denoyer, M. Ranzato, ICLR 2021, arXiv:2012.12631), with 64 channels, and
    with a linear head for ten classes 607,050 parameters.

    Args:
        image_channels: of the images.
        channels: of every part's output.
        split_last: whether the last group is two parts of one block each.

    Returns:
        What makes each part, ``[N, image_channels or channels, H, W] -> [N, channels, H', W']``.
    """
    makers: list[Callable[[], nn.Module]] = [partial(ResidualStem, image_channels, channels)]
    for place, stride in enumerate(EVEN_STRIDES):
        blocks = [partial(ResidualBlock, channels, channels, stride), partial(ResidualBlock, channels, channels, 1)]
        if split_last and place == len(EVEN_STRIDES) - 1:
            makers += blocks
        else:
            makers.append(partial(_sequence, blocks))
    return makers


def _sequence(makers: list[partial[ResidualBlock]]) -> nn.Module:
    return nn.Sequential(*(make() for make in makers))
