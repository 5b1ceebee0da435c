"""Faster gradients for training on CPUs: depthwise convolutions, and the pixels that a reduction picks.

Forward passes are torch's own, bit by bit; gradients are the same sums in another order. On CPUs torch 2.15 hands
convolutions to oneDNN 3.13, whose kernels for gradients of depthwise convolutions know kernels of at most three columns
and no dilation. Others are computed as dense convolutions of groups of 16 channels, in several to many times the time.
The routes taken here give oneDNN problems that it has kernels for, without copies where sizes are even:

- The gradient of a dilated convolution's input is a convolution of the gradient with the kernel turned by 180 degrees.
- The gradient of the weight needs products of pixels some columns apart. Channels innermost in memory, ``f``
  neighbouring columns of C channels are one column of f C channels: pixels f columns apart become neighbours. Rows need
  no such thing: a kernel may be high, and of its rows only every ``dilation``-th is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.grad import conv2d_weight

from seu_bench.models.flops import counted_as


def trains_on_cpu(x: Tensor, *weights: Tensor) -> bool:
    """Whether the routes of this module may be taken: gradients of 32-bit numbers are needed, eagerly, on a CPU, and
    channels are innermost in the memory of ``x``. Compilers, exporters, ``torch.func`` and autocast know torch's own
    operators only."""
    tensors = (x, *weights)
    return (
        torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and not torch.compiler.is_exporting()
        and not torch._C._are_functorch_transforms_active()
        and not torch.is_autocast_enabled("cpu")
        and all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors)
        and any(tensor.requires_grad for tensor in tensors)
        and x.is_contiguous(memory_format=torch.channels_last)
    )


class DepthwiseConv2d(nn.Conv2d):
    """A depthwise convolution without bias, ``[N, C, H, W] -> [N, C, ceil(H / stride), ceil(W / stride)]``, of an odd
    ``kernel``, with stride and dilation 1 or 2."""

    def __init__(self, channels: int, kernel: int, stride: int, dilation: int) -> None:
        padding = dilation * (kernel // 2)
        super().__init__(channels, channels, kernel, stride, padding, dilation=dilation, groups=channels, bias=False)
        # oneDNN is as fast as can be for three columns without dilation; for a stride of its own there is no route.
        self.has_route = (kernel > 3 or dilation > 1) and (stride == 1 or dilation in (1, stride))

    def forward(self, x: Tensor) -> Tensor:
        if self.has_route and trains_on_cpu(x, self.weight):
            y: Tensor = DepthwiseFunction.apply(x, self.weight, self.stride[0], self.dilation[0])
            return y
        return super().forward(x)


class DepthwiseFunction(torch.autograd.Function):
    """A depthwise convolution, padded as in :class:`DepthwiseConv2d`, whose gradients take the routes above.

    Of ``x`` ``[N, C, H, W]``, channels innermost, and ``weight`` ``[C, 1, k, k]``; can be differentiated once.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int, dilation: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.dilation = stride, dilation
        padding = dilation * (weight.shape[-1] // 2)
        return functional.conv2d(x, weight, None, stride, padding, dilation, len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x, weight = ctx.saved_tensors
        needs_x, needs_weight, _, _ = ctx.needs_input_grad
        # Each takes as many multiply-accumulates as the forward pass; the routes to them take more.
        flops = 2 * gradient.numel() * weight.shape[-1] ** 2 * (needs_x + needs_weight)
        with counted_as(lambda: flops):
            gradients = _gradients(gradient, x, weight, ctx.stride, ctx.dilation, (needs_x, needs_weight))
        return *gradients, None, None


def _gradients(
    gradient: Tensor, x: Tensor, weight: Tensor, stride: int, dilation: int, needs: tuple[bool, bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of ``x`` and of ``weight``, as far as they are needed."""
    needs_x, needs_weight = needs
    size = weight.shape[-1]
    gradient = gradient.contiguous(memory_format=torch.channels_last)
    # With a stride equal to the dilation only pixels of even rows and columns are read: on them it is a plain one.
    pixels, subset = x, stride == dilation == 2
    if subset:
        pixels = x[:, :, ::2, ::2].contiguous(memory_format=torch.channels_last)
        stride = dilation = 1
    of_x = _gradient_of_input(gradient, pixels, weight, stride, dilation) if needs_x else None
    if subset and of_x is not None:
        of_pixels, of_x = of_x, torch.zeros_like(x)
        of_x[:, :, ::2, ::2] = of_pixels
    of_weight = _gradient_of_weight(gradient, pixels, size, stride, dilation) if needs_weight else None
    return of_x, of_weight


def _gradient_of_input(gradient: Tensor, x: Tensor, weight: Tensor, stride: int, dilation: int) -> Tensor:
    padding, groups = dilation * (weight.shape[-1] // 2), len(weight)
    if dilation > 1:
        return functional.conv2d(gradient, weight.flip(2, 3), None, 1, padding, dilation, groups)
    # Not torch.nn.grad.conv2d_input, which does not know that channels are innermost in x: up to six times slower.
    sides, mask = (stride, stride), (True, False, False)
    of_x: Tensor = torch.ops.aten.convolution_backward(
        gradient, x, weight, None, sides, (padding, padding), (1, 1), False, (0, 0), groups, mask
    )[0]
    return of_x


def _gradient_of_weight(gradient: Tensor, x: Tensor, size: int, stride: int, dilation: int) -> Tensor:
    channels, middle = x.shape[1], size // 2
    if stride == 2:  # five columns: pairs of columns of x as one, which are as many as those of gradient
        pairs, rows = _fold(x, 2, size), _fold(gradient, 1, -(-size // 2))
        parts = _three_columns(torch.cat([rows, rows], dim=1), pairs, size, 2).view(2, channels, 1, size, 3)
        return parts.permute(1, 2, 3, 4, 0).reshape(channels, 1, size, 6)[..., :size]
    # For each distance from the middle the columns to its left and right, and the middle.
    height = dilation * (size - 1) + 1
    of_weight = x.new_empty(channels, 1, size, size)
    for distance in range(1, middle + 1):
        f = distance * dilation
        parts = _three_columns(_fold(gradient, f, height), _fold(x, f, height), height, 1)
        columns = parts.view(f, channels, 1, height, 3).sum(dim=0)
        of_weight[..., middle - distance : middle + distance + 1 : distance] = columns[:, :, ::dilation]
    return of_weight


def _fold(x: Tensor, f: int, rows: int) -> Tensor:
    """``[N, C, H, W] -> [N, f C, max(H, rows), ceil(W / f)]``, zero-padded: oneDNN needs H >= the kernel's."""
    missing_columns, missing_rows = -x.shape[3] % f, max(0, rows - x.shape[2])
    if missing_columns or missing_rows:
        x = functional.pad(x, (0, missing_columns, 0, missing_rows))
    images, channels, height, width = x.shape
    return x.permute(0, 2, 3, 1).reshape(images, height, width // f, f * channels).permute(0, 3, 1, 2)


def _three_columns(gradient: Tensor, x: Tensor, height: int, row_stride: int) -> Tensor:
    """The gradient of a depthwise kernel ``[C, 1, height, 3]``."""
    channels, stride, padding = x.shape[1], (row_stride, 1), (height // 2, 1)
    of_weight: Tensor = conv2d_weight(x, (channels, 1, height, 3), gradient, stride, padding, groups=channels)
    return of_weight


def pick_pixels(x: Tensor) -> tuple[Tensor, Tensor]:
    """Pixels of even rows and columns, and those of odd ones, ``[N, C, H, W] -> 2 x [N, C, ceil(H/2), ceil(W/2)]``.

    Where H or W is odd the second have a row or column of zeros appended.
    """
    if trains_on_cpu(x):
        even, odd = PickFunction.apply(x)
        return even, odd
    # The zeros keep the two equal in size where H or W is odd; even sizes never read them.
    shifted = functional.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
    return x[:, :, ::2, ::2], shifted[:, :, ::2, ::2]


class PickFunction(torch.autograd.Function):
    """:func:`pick_pixels` with one tensor of zeros in the backward pass, in place of one for every slice and sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.size = x.shape
        odd = functional.pad(x[:, :, 1::2, 1::2], (0, x.shape[3] % 2, 0, x.shape[2] % 2))
        even = x[:, :, ::2, ::2].contiguous(memory_format=torch.channels_last)
        return even, odd.contiguous(memory_format=torch.channels_last)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, even: Tensor, odd: Tensor) -> Tensor:
        _, _, height, width = ctx.size
        of_x = torch.empty(ctx.size, memory_format=torch.channels_last, dtype=even.dtype, device=even.device).zero_()
        of_x[:, :, ::2, ::2] = even
        of_x[:, :, 1::2, 1::2] = odd[:, :, : height // 2, : width // 2]
        return of_x


def concatenate(parts: Sequence[Tensor]) -> Tensor:
    """Tensors ``[N, C_i, H, W]`` side by side, ``[N, sum of C_i, H, W]``."""
    if trains_on_cpu(*parts):
        y: Tensor = ConcatenateFunction.apply(*parts)
        return y
    return torch.cat(list(parts), dim=1)


class ConcatenateFunction(torch.autograd.Function):
    """:func:`concatenate` whose gradients are dense: BatchNorm is far slower for a slice of a tensor."""

    @staticmethod
    def forward(ctx: Any, *parts: Tensor) -> Tensor:
        ctx.channels = [part.shape[1] for part in parts]
        return torch.cat(parts, dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        slices = gradient.split(ctx.channels, dim=1)
        return tuple(
            part.contiguous(memory_format=torch.channels_last) if needed else None
            for part, needed in zip(slices, ctx.needs_input_grad, strict=True)
        )
