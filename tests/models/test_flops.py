"""Operations: by hand for each kind of layer, reckoned for batches that repeat, the same by any route."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from seu_bench.models.flops import FlopCounter, RepeatedBatches, active_counter, counted_as
from seu_bench.models.kernels import DepthwiseConv2d
from seu_bench.models.sizes import count_macs

CPU = torch.device("cpu")
#: Layers, an input, and multiply-accumulates of the forward pass by hand: places times what is summed in each.
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "linear": (lambda: nn.Linear(5, 3), (4, 5), 4 * 3 * 5),
    "linear without bias": (lambda: nn.Linear(5, 3, bias=False), (4, 5), 4 * 3 * 5),
    "convolution": (lambda: nn.Conv2d(6, 4, 3, padding=1), (2, 6, 7, 7), 2 * 4 * 49 * 6 * 9),
    "stride": (lambda: nn.Conv2d(6, 4, 3, 2, 1), (2, 6, 7, 7), 2 * 4 * 16 * 6 * 9),
    "groups": (lambda: nn.Conv2d(6, 4, 3, padding=1, groups=2), (2, 6, 7, 7), 2 * 4 * 49 * 3 * 9),
    "transposed": (lambda: nn.ConvTranspose2d(6, 4, 3, 2, groups=2), (2, 6, 5, 5), 2 * 6 * 25 * 2 * 9),
    **{
        f"depthwise {kernel}, {stride}, {dilation}": (
            lambda kernel=kernel, stride=stride, dilation=dilation: DepthwiseConv2d(8, kernel, stride, dilation),
            (2, 8, 7, 7),
            2 * 8 * (-(-7 // stride)) ** 2 * kernel**2,
        )
        for kernel, stride, dilation in ((3, 1, 1), (5, 1, 1), (5, 2, 1), (3, 2, 2), (5, 1, 2))
    },
}


def layer_and_input(name: str, *, input_grad: bool) -> tuple[nn.Module, Tensor, int]:
    make, shape, macs = LAYERS[name]
    x = torch.zeros(shape)
    if x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    return make(), x.requires_grad_(input_grad), macs


@pytest.mark.parametrize("name", LAYERS)
def test_each_pass_of_a_layer(name: str) -> None:
    """Forward, the gradient of the weight and the gradient of the input take the same; each counts where it is asked
    for."""
    layer, x, macs = layer_and_input(name, input_grad=True)
    with FlopCounter() as forward:
        layer(x)
    with FlopCounter() as whole:
        layer(x).sum().backward()
    frozen, y, _ = layer_and_input(name, input_grad=True)
    with FlopCounter() as of_input:
        frozen.requires_grad_(False)(y).sum().backward()
    first, y, _ = layer_and_input(name, input_grad=False)
    with FlopCounter() as of_weight:
        first(y).sum().backward()
    found = [counter.flops for counter in (forward, whole, of_input, of_weight)]
    assert found == [2 * macs * passes for passes in (1, 3, 2, 2)]


def test_as_torch_where_there_are_no_groups() -> None:
    """And matrix products of any other kind count, too."""
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(1), nn.Linear(36, 8))
    attention = nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.zeros(6, 3, 5, 5)
    with FlopCounterMode(display=False) as torchs, FlopCounter() as ours:
        y = network(x).unsqueeze(0)
        attention(y, y, y)[0].sum().backward()
    assert ours.flops == torchs.get_total_flops() > 0


def test_repeated_batches_are_reckoned() -> None:
    """The first batch of each network is counted, and nothing but the network's name is looked at afterwards."""
    layers = {"small": nn.Linear(5, 3), "large": nn.Linear(5, 30)}
    batches = [("small", 4), ("large", 2), ("small", 3), ("large", 7), ("small", 1)]
    with FlopCounter() as plain:
        for network, images in batches:
            layers[network](torch.zeros(images, 5)).sum().backward()
    seen = []
    with FlopCounter() as counter, RepeatedBatches() as repeated:
        for network, images in batches:
            repeated.begin(network)
            seen.append(active_counter() is counter)
            layers[network](torch.zeros(images, 5)).sum().backward()
            repeated.end(images)
        layers["small"](torch.zeros(1, 5))  # what is between batches is counted as it comes
    assert counter.flops == plain.flops + 2 * 15
    assert seen == [True, True, False, False, False]


def test_a_failing_batch_leaves_no_mode_behind() -> None:
    for known in ({}, {None: (30, 1)}):
        with FlopCounter() as counter:
            with pytest.raises(ZeroDivisionError), RepeatedBatches(known) as repeated:
                repeated.begin()
                raise ZeroDivisionError
            nn.Linear(5, 3)(torch.zeros(1, 5))
        assert counter.flops == 30
        assert active_counter() is None


def test_beneath_another_mode_it_counts_everything() -> None:
    """A mode that somebody else put on top cannot be lifted, and need not be."""
    layer = nn.Linear(5, 3)
    with FlopCounter() as counter, FlopCounterMode(display=False) as other, RepeatedBatches() as repeated:
        for _ in range(3):
            repeated.begin()
            layer(torch.zeros(1, 5))
            repeated.end(1)
    assert counter.flops == other.get_total_flops() == 3 * 30


def test_counted_as() -> None:
    layer, x = nn.Linear(5, 3), torch.zeros(1, 5)
    with FlopCounter() as counter:
        with counted_as(lambda: 7):
            layer(x)
        count_macs(layer, (5,), CPU)  # what is measured is not learned with
    assert counter.flops == 7
    with counted_as(lambda: 7):
        assert active_counter() is None


def test_counting_changes_no_bit() -> None:
    def trained(*, counts: bool) -> list[Tensor]:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Conv2d(8, 8, 1), DepthwiseConv2d(8, 5, 2, 1), nn.BatchNorm2d(8), nn.Dropout())
        x = torch.randn(4, 8, 9, 9).contiguous(memory_format=torch.channels_last)
        if counts:
            with FlopCounter():
                network(x).square().sum().backward()
        else:
            network(x).square().sum().backward()
        return [parameter.grad for parameter in network.parameters() if parameter.grad is not None]

    assert all(map(torch.equal, trained(counts=True), trained(counts=False)))
