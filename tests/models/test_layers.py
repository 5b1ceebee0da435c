"""Where channels stand in memory."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from support.tiny import all_threads, one_thread
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.utils.flop_counter import FlopCounterMode

from seu_bench.models.layers import Dropout
from seu_bench_kit.kernels import (
    DepthwiseConv2d,
    DepthwiseFunction,
    concatenate,
    pick_pixels,
    trains_on_cpu,
)


@pytest.mark.parametrize("p", [0.2, 0.5, 0.9])
def test_rate_and_scale(p: float) -> None:
    """The share that is dropped is p within five standard errors; the rest is scaled so that the mean stays."""
    count = 400_003  # no multiple of four
    out = Dropout(p)(torch.ones(count))
    dropped = int((out == 0).sum()) / count
    assert abs(dropped - p) < 5 * math.sqrt(p * (1 - p) / count)
    (kept,) = out[out != 0].unique().tolist()
    assert kept == pytest.approx(1 / (1 - p), rel=2**-16 / (1 - p))


setup_module, teardown_module = one_thread, all_threads

LAYOUTS = (torch.contiguous_format, torch.channels_last)
#: Heights and widths: even and odd, smaller and larger than a kernel's reach.
SIZES = ((8, 8), (7, 7), (12, 9), (5, 14), (4, 4), (3, 2), (1, 1), (16, 18))
#: Kernel, stride, dilation of every depthwise convolution of the search space.
CONVOLUTIONS = [(kernel, stride, dilation) for kernel in (3, 5) for stride in (1, 2) for dilation in (1, 2)]
#: Those that are not left to torch.
ROUTED = [shape for shape in CONVOLUTIONS if shape not in ((3, 1, 1), (3, 2, 1))]


def random(*shape: int, seed: int = 0, layout: torch.memory_format = torch.channels_last) -> Tensor:
    """Normally distributed numbers."""
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return made.contiguous(memory_format=layout)


def made(channels: int, kernel: int, stride: int, dilation: int) -> tuple[DepthwiseConv2d, nn.Conv2d]:
    """The convolution and torch's own, initialised from the same seed."""
    torch.manual_seed(0)
    ours = DepthwiseConv2d(channels, kernel, stride, dilation)
    torch.manual_seed(0)
    padding = dilation * (kernel // 2)
    return ours, nn.Conv2d(channels, channels, kernel, stride, padding, dilation, channels, bias=False)


def gradients(module: Callable[[Tensor], Tensor], x: Tensor, weight: nn.Parameter) -> tuple[Tensor, Tensor, Tensor]:
    """Output, gradient of the input, gradient of the weight, of a loss that weighs every output differently."""
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    weight.grad = None
    y = module(x)
    y.backward(random(*y.shape, seed=1, layout=torch.contiguous_format))
    assert x.grad is not None and weight.grad is not None
    return y.detach(), x.grad, weight.grad


def close(found: Tensor, expected: Tensor) -> bool:
    """To 1e-5 of the whole: single entries of a sum that cancels are rounding."""
    return found.shape == expected.shape and float((found - expected).norm()) <= 1e-5 * float(expected.norm())


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_depthwise_is_torchs(shape: tuple[int, int, int], size: tuple[int, int], layout: torch.memory_format) -> None:
    """Outputs bit by bit, gradients up to rounding, for few and many channels and a single image."""
    for images, channels in ((1, 1), (3, 2), (2, 16), (1, 24), (2, 40)):
        ours, torchs = made(channels, *shape)
        x = random(images, channels, *size, layout=layout)
        y, of_x, of_weight = gradients(ours, x, ours.weight)
        expected_y, expected_of_x, expected_of_weight = gradients(torchs, x, torchs.weight)
        assert torch.equal(y, expected_y)
        assert close(of_x, expected_of_x) and close(of_weight, expected_of_weight), (images, channels)


@pytest.mark.parametrize("size", [(6, 6), (5, 7), (3, 10)], ids=str)
@pytest.mark.parametrize("shape", ROUTED, ids=str)
def test_depthwise_gradients_are_numerical(shape: tuple[int, int, int], size: tuple[int, int]) -> None:
    """In double precision they are what differences of outputs say."""
    kernel, stride, dilation = shape
    x = random(2, 3, *size).double().requires_grad_()
    weight = random(3, 1, kernel, kernel, seed=1, layout=torch.contiguous_format).double().requires_grad_()
    assert gradcheck(lambda x, weight: DepthwiseFunction.apply(x, weight, stride, dilation), (x, weight))


def routed(y: Tensor) -> bool:
    """Whether an output was computed by a function of ours."""
    return type(y.grad_fn).__name__ in ("DepthwiseFunctionBackward", "PickFunctionBackward")


def test_routes_are_for_training_on_cpus_only() -> None:
    """Not without gradients, in other precisions, other layouts, under autocast, on the meta device."""
    x = random(2, 4, 8, 8)
    wanting = x.clone().requires_grad_()
    module = DepthwiseConv2d(4, 5, 1, 2)
    assert routed(module(x)) and routed(pick_pixels(wanting)[0])
    assert not trains_on_cpu(x) and trains_on_cpu(x, module.weight)
    # Three columns without dilation are left to torch, and so is a convolution that is no part of any gradient.
    assert not routed(DepthwiseConv2d(4, 3, 1, 1)(x))
    assert not routed(DepthwiseConv2d(4, 5, 1, 2).requires_grad_(False)(x))
    with torch.no_grad():
        assert not trains_on_cpu(wanting, module.weight) and module(wanting).grad_fn is None
    assert not routed(module(x.contiguous())) and not routed(pick_pixels(wanting.contiguous())[0])
    with torch.autocast("cpu", torch.bfloat16):
        assert not routed(module(x)) and module(x).dtype == torch.bfloat16
    assert not routed(module.double()(x.double()))
    meta = DepthwiseConv2d(4, 5, 1, 2).to("meta")
    assert not routed(meta(x.to("meta"))) and meta(x.to("meta")).shape == (2, 4, 8, 8)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_picked_pixels(size: tuple[int, int], layout: torch.memory_format) -> None:
    """Those of even rows and columns, and those of odd ones with zeros beyond the border; so are their gradients."""
    height, width = size
    half = (-(-height // 2), -(-width // 2))
    x = random(2, 3, *size, layout=layout).requires_grad_()
    even, odd = pick_pixels(x)
    assert even.shape == odd.shape == (2, 3, *half)
    expected = torch.zeros(2, 3, *half)
    expected[:, :, : height // 2, : width // 2] = x.detach()[:, :, 1::2, 1::2]
    assert torch.equal(even, x[:, :, ::2, ::2]) and torch.equal(odd, expected)
    of_even, of_odd = random(*even.shape, seed=1), random(*odd.shape, seed=2)
    torch.autograd.backward([even, odd], [of_even, of_odd])
    gradient = torch.zeros(2, 3, *size)
    gradient[:, :, ::2, ::2] = of_even
    gradient[:, :, 1::2, 1::2] = of_odd[:, :, : height // 2, : width // 2]
    assert x.grad is not None and torch.equal(x.grad, gradient)
    with torch.no_grad():
        assert all(torch.equal(*pair) for pair in zip(pick_pixels(x), (even, odd), strict=True))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_concatenated_channels(layout: torch.memory_format) -> None:
    """Like torch's, and the gradients of parts lie as densely in memory as the parts do."""
    parts = [random(2, channels, 4, 5, seed=channels, layout=layout) for channels in (3, 1, 4)]
    for index in (0, 2):
        parts[index].requires_grad_()
    y = concatenate(parts)
    assert torch.equal(y, torch.cat(parts, dim=1))
    gradient = random(*y.shape, seed=9)
    y.backward(gradient)
    assert parts[1].grad is None
    for part, expected in zip(parts, gradient.split([3, 1, 4], dim=1), strict=True):
        assert part.grad is None or torch.equal(part.grad, expected)
    # The gradient of a mean is in PyTorch's default layout, and a slice of it is not dense.
    seen: list[bool] = []
    inner = [random(2, 3, 4, 4, seed=seed).requires_grad_() * 1 for seed in range(2)]
    for part in inner:
        part.register_hook(lambda grad: seen.append(grad.is_contiguous(memory_format=torch.channels_last)))
    concatenate(inner).mean(dim=(2, 3)).square().sum().backward()
    assert seen == [True, True]


@pytest.mark.parametrize("shape", CONVOLUTIONS, ids=str)
def test_operations_counted_are_torchs(shape: tuple[int, int, int]) -> None:
    """Multiply-accumulates are what they are for torch's convolution, with and without gradients."""
    ours, torchs = made(4, *shape)
    counts = []
    for module in (ours, torchs):
        for enabled in (True, False):
            with torch.set_grad_enabled(enabled), FlopCounterMode(display=False) as counter:
                module(random(1, 4, 8, 8))
            counts.append(counter.get_total_flops())
    assert len(set(counts)) == 1 and counts[0] > 0


def test_gradient_follows_the_mask() -> None:
    """Dropped values get no gradient, the rest the same factor."""
    torch.manual_seed(2)
    x = torch.randn(5, 7, requires_grad=True)
    out = Dropout(0.5)(x)
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(out.detach(), x.detach() * x.grad)
    assert set(x.grad.unique().tolist()) == {0.0, 2.0}
