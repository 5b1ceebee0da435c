"""The eight operations equal their definitions, keep shapes alike, and have the sizes of the closed forms."""

from __future__ import annotations

import pytest
import torch
from support.closed_form import operation_parameters
from support.direct import conv, norm, unsettled
from support.tiny import all_threads, one_thread
from torch import Tensor, nn
from torch.nn import functional

from seu_bench.models.sizes import count_parameters
from seu_bench_kit.cells import FactorizedReduce, State, make_operation
from seu_bench_kit.search_space import OPERATIONS

setup_module, teardown_module = one_thread, all_threads

#: Heights and widths, even and odd.
SIZES = ((8, 8), (7, 7), (8, 5), (1, 1))


def images(channels: int = 4, size: tuple[int, int] = (8, 8), seed: int = 0) -> Tensor:
    return torch.randn(3, channels, *size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("name", OPERATIONS)
def test_shapes(name: str, stride: int, size: tuple[int, int]) -> None:
    """Every operation keeps the channels; stride 2 halves sizes and rounds up, so that edges can be added."""
    for pool_norm in (False, True):
        module = make_operation(name, 4, stride, affine=False, pool_norm=pool_norm).eval()
        expected = (3, 4, *(-(-side // stride) for side in size))
        assert module(images(size=size)).shape == expected


@pytest.mark.parametrize("channels", [1, 4, 36])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("name", OPERATIONS)
def test_parameters(name: str, stride: int, channels: int) -> None:
    """Modules have as many parameters as the closed form says, and the closed form says what the specification does."""
    c = channels
    expected = {
        "sep_conv_3x3": 18 * c + 2 * c * c + 4 * c,
        "sep_conv_5x5": 50 * c + 2 * c * c + 4 * c,
        "dil_conv_3x3": 9 * c + c * c + 2 * c,
        "dil_conv_5x5": 25 * c + c * c + 2 * c,
        "skip_connect": c * c + 2 * c if stride == 2 else 0,
    }.get(name, 0)
    assert operation_parameters(name, channels, stride) == expected
    if channels > 1:
        assert count_parameters(make_operation(name, channels, stride, affine=True)) == expected


@pytest.mark.parametrize("size", [(8, 8), (6, 4)])
@pytest.mark.parametrize("apply", [True, False])
def test_factorized_reduce(apply: bool, size: tuple[int, int]) -> None:
    """Two stride-2 1x1 convolutions, the second shifted by a pixel on both axes, then the norm, unless it is off."""
    torch.manual_seed(0)
    module = FactorizedReduce(6, 4, affine=True, norm=apply)
    unsettled(module)
    x = images(6, size)
    rectified = functional.relu(x)
    even = conv(rectified, module.even, stride=2)
    odd = conv(rectified[:, :, 1:, 1:], module.odd, stride=2)
    expected = torch.cat([even, odd], dim=1)
    # Not bit by bit: the module picks pixels first and runs another kernel (see FactorizedReduce).
    torch.testing.assert_close(module(x), norm(expected, module.norm) if apply else expected)
    # Pixel by pixel, without any convolution of torch's.
    y = torch.einsum("oc,nchw->nohw", module.odd.weight[:, :, 0, 0], rectified[:, :, 1::2, 1::2])
    torch.testing.assert_close(odd, y)
    # The norm is there and counted either way.
    assert count_parameters(module) == 6 * 4 + 2 * 4


def test_factorized_reduce_of_odd_sizes() -> None:
    """The shifted half sees zeros beyond the border; the other half never does."""
    torch.manual_seed(0)
    module = FactorizedReduce(3, 4, affine=True, norm=False)
    x = images(3, (5, 7))
    y = module(x)
    assert y.shape == (3, 4, 3, 4)
    assert torch.equal(y[:, 2:, -1], torch.zeros(3, 2, 4)) and torch.equal(y[:, 2:, :, -1], torch.zeros(3, 2, 3))
    torch.testing.assert_close(y[:, :2], conv(functional.relu(x), module.even, stride=2))
    torch.testing.assert_close(y[:, 2:, :-1, :-1], conv(functional.relu(x)[:, :, 1:, 1:], module.odd, stride=2))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_of_a_shared_state(name: str, stride: int) -> None:
    """Through a state they give what they give for its features, rectified or not, and the ReLU is computed once."""
    torch.manual_seed(0)
    operation = make_operation(name, 4, stride, affine=True, pool_norm=True)
    unsettled(operation)
    x = images()
    state = State(x)
    assert torch.equal(state.through(operation), operation(x))
    rectified = state.rectified
    assert torch.equal(rectified, functional.relu(x)) and torch.equal(x, images())
    state.through(operation)
    assert state.rectified is rectified and torch.equal(rectified, functional.relu(x))


@pytest.mark.parametrize("stride", [1, 2])
def test_average_leaves_the_padding_out(stride: int) -> None:
    """A border pixel is the mean of the pixels that exist: an image of ones stays one of ones."""
    pool = make_operation("avg_pool_3x3", 2, stride, affine=True)
    assert torch.equal(pool(torch.ones(1, 2, 6, 6)), torch.ones(1, 2, 6 // stride, 6 // stride))
    x = images(2, (6, 6))
    corner, centre = pool(x)[:, :, 0, 0], pool(x)[:, :, 1, 1]
    at = stride
    torch.testing.assert_close(corner, x[:, :, :2, :2].mean(dim=(2, 3)))
    torch.testing.assert_close(centre, x[:, :, at - 1 : at + 2, at - 1 : at + 2].mean(dim=(2, 3)))


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [3, 5])
def test_separable(kernel: int, stride: int) -> None:
    """Twice ReLU, depthwise, pointwise, norm; only the first time with the stride."""
    torch.manual_seed(0)
    module = make_operation(f"sep_conv_{kernel}x{kernel}", 4, stride, affine=True)
    unsettled(module)
    assert isinstance(module, nn.Sequential)
    parts = [part for part in module if not isinstance(part, nn.ReLU)]
    x = images()
    y = conv(functional.relu(x), parts[0], stride, kernel // 2)
    y = norm(conv(y, parts[1]), parts[2])
    y = conv(functional.relu(y), parts[3], 1, kernel // 2)
    y = norm(conv(y, parts[4]), parts[5])
    assert torch.equal(module(x), y)
    assert parts[0].weight.shape == (4, 1, kernel, kernel) and parts[1].weight.shape == (4, 4, 1, 1)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kernel", [3, 5])
def test_dilated(kernel: int, stride: int) -> None:
    """Once ReLU, depthwise of dilation 2 and padding 2 or 4, pointwise, norm."""
    torch.manual_seed(0)
    module = make_operation(f"dil_conv_{kernel}x{kernel}", 4, stride, affine=True)
    unsettled(module)
    assert isinstance(module, nn.Sequential)
    parts = [part for part in module if not isinstance(part, nn.ReLU)]
    x = images()
    y = conv(functional.relu(x), parts[0], stride, {3: 2, 5: 4}[kernel], 2)
    assert torch.equal(module(x), norm(conv(y, parts[1]), parts[2]))
