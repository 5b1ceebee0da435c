"""Residual networks in parts: the block (He et al., CVPR 2016), and the parts of a network that is equally wide."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from seu_bench.models.layers import channels_last

#: Strides of the four groups of the even ResNet-18.
EVEN_STRIDES = (1, 2, 2, 2)


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

    Example:
        ``network = nn.Sequential(*(make() for make in even_resnet_parts(3, 64)))``
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
