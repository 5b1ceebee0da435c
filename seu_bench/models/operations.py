"""The eight operations as modules (paper, section II-D; their exact forms are the published code's).

All convolutions are bias-free. ``affine`` is false inside the proxy network of a search and true in the super model.
Images are ``[N, C, H, W]``; stride 2 maps H to ceil(H / 2) for every operation, odd sizes included. Operations that
begin with a ReLU can share it: where several read one :class:`State`, it is computed once.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from seu_bench.models.kernels import DepthwiseConv2d, pick_pixels


class State:
    """Input that several operations of a cell share, ``[N, C, H, W]``, and its ReLU, computed on first use.

    Without gradients every operation computes its own: there it hardly counts, and hooks on the calls of ReLU,
    which scores of untrained networks use, see all of them.
    """

    def __init__(self, features: Tensor) -> None:
        self.features = features
        self._rectified: Tensor | None = None

    @property
    def rectified(self) -> Tensor:
        """The ReLU of the features."""
        if self._rectified is not None:
            return self._rectified
        rectified = functional.relu(self.features)
        if torch.is_grad_enabled():
            self._rectified = rectified
        return rectified

    def through(self, operation: nn.Module) -> Tensor:
        """The output of an operation that :func:`make_operation` built."""
        first = operation[0] if isinstance(operation, nn.Sequential) else operation
        y: Tensor = operation(self if isinstance(first, LeadingReLU | FactorizedReduce) else self.features)
        return y


class LeadingReLU(nn.ReLU):
    """The ReLU that an operation begins with: of images, or that of a :class:`State`."""

    def forward(self, x: Tensor | State) -> Tensor:
        return x.rectified if isinstance(x, State) else functional.relu(x)


class Zero(nn.Module):
    """``none``: zeros, at half resolution where the stride is 2."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x[:, :, :: self.stride, :: self.stride])


class FactorizedReduce(nn.Module):
    """Halve the resolution: two stride-2 1x1 convolutions, one of them shifted by a pixel, side by side."""

    def __init__(self, inputs: int, outputs: int, *, affine: bool, norm: bool = True) -> None:
        super().__init__()
        self.relu = LeadingReLU()
        self.even = nn.Conv2d(inputs, outputs // 2, 1, bias=False)
        self.odd = nn.Conv2d(inputs, outputs - outputs // 2, 1, bias=False)
        # The published code builds this BatchNorm, counts it and does not call it (docs/explanation/seu.md).
        self.norm = nn.BatchNorm2d(outputs, affine=affine)
        self.apply_norm = norm

    def forward(self, x: Tensor | State) -> Tensor:
        """``[N, C_in, H, W]`` -> ``[N, C_out, ceil(H/2), ceil(W/2)]``."""
        # Pixels are picked before the convolutions rather than by their stride: in torch 2.15 on CPUs the backward pass
        # of a 1x1 convolution with stride 2 writes past its memory for 2 to 7 channels in channels-last layout.
        even, odd = pick_pixels(self.relu(x))
        y = torch.cat([self.even(even), self.odd(odd)], dim=1)
        return self.norm(y) if self.apply_norm else y


def relu_conv_norm(inputs: int, outputs: int, *, affine: bool) -> nn.Module:
    """ReLU, 1x1 convolution, BatchNorm."""
    return nn.Sequential(
        LeadingReLU(), nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs, affine=affine)
    )


def separable(
    channels: int, kernel: int, stride: int, dilation: int, relu: nn.ReLU, *, affine: bool
) -> list[nn.Module]:
    """``relu``, depthwise convolution, pointwise convolution, BatchNorm."""
    return [
        relu,
        DepthwiseConv2d(channels, kernel, stride, dilation),
        nn.Conv2d(channels, channels, 1, bias=False),
        nn.BatchNorm2d(channels, affine=affine),
    ]


def make_operation(
    name: str, channels: int, stride: int, *, affine: bool, pool_norm: bool = False, reduce_norm: bool = True
) -> nn.Module:
    """Build an operation of :data:`~seu_bench.search_space.OPERATIONS`.

    Args:
        pool_norm: put a BatchNorm without affine parameters behind pooling (the proxy network does).
        reduce_norm: whether FactorizedReduce applies its BatchNorm.

    Raises:
        ValueError: there is no such operation.
    """
    if name == "none":
        return Zero(stride)
    if name == "skip_connect":
        if stride == 1:
            return nn.Identity()
        return FactorizedReduce(channels, channels, affine=affine, norm=reduce_norm)
    if name in ("max_pool_3x3", "avg_pool_3x3"):
        average = nn.AvgPool2d(3, stride, padding=1, count_include_pad=False)
        pool = nn.MaxPool2d(3, stride, padding=1) if name == "max_pool_3x3" else average
        return nn.Sequential(pool, nn.BatchNorm2d(channels, affine=False)) if pool_norm else pool
    if name.startswith("sep_conv"):
        kernel = int(name[-1])
        # The second ReLU may write over its input: BatchNorm does not need its output for gradients.
        return nn.Sequential(
            *separable(channels, kernel, stride, 1, LeadingReLU(), affine=affine),
            *separable(channels, kernel, 1, 1, nn.ReLU(inplace=True), affine=affine),
        )
    if name.startswith("dil_conv"):
        return nn.Sequential(*separable(channels, int(name[-1]), stride, 2, LeadingReLU(), affine=affine))
    raise ValueError(f"no operation is called {name!r}")
