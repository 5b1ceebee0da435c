"""Where channels stand in memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from seu_bench.models.layers import ChannelsLastConv2d
from seu_bench_kit.blocks import AlexNetShape, alexnet
from seu_bench_kit.cells import Stem
from seu_bench_ltg.network import GrowingAlexNet
from seu_bench_methods.pnn import Column


def innermost(x: Tensor) -> bool:
    """Whether the numbers of a pixel stand side by side."""
    return x.stride(1) == 1 and not x.is_contiguous()


def outputs_of(module: nn.Module, x: Tensor) -> list[Tensor]:
    """The maps that convolutions and poolings within give."""
    found: list[Tensor] = []
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.MaxPool2d):
            part.register_forward_hook(lambda _module, _inputs, output: found.append(output))
    module(x)
    return found


@pytest.mark.parametrize("channels", [1, 3])
def test_networks_compute_with_channels_innermost(channels: int) -> None:
    """From the first convolution on, also of images of one channel, which have no such layout."""
    x = torch.randn(2, channels, 16, 16)
    shape = AlexNetShape.of(channels, 16, 16, 0.125)
    column = Column(shape, 5, 1)
    earlier = Column(shape, 5, 0).layer_inputs(x, ())
    maps = outputs_of(alexnet(shape), x)
    assert len(maps) == 6
    maps += [m for m in (*earlier[1:], *column.layer_inputs(x, [earlier])[1:]) if m.dim() == 4]
    assert len(maps) == 6 + 4
    maps += outputs_of(Stem(channels, 8), x)
    growing = GrowingAlexNet(shape, (5,))
    growing.grow_anew(0)
    maps.append(growing.layers[0].body(x, growing.paths[0][0]))
    assert all(innermost(m) for m in maps)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_convolution_is_torchs(channels: int) -> None:
    """The same numbers, to rounding."""
    ours = ChannelsLastConv2d(channels, 4, 3, padding=1)
    theirs = nn.Conv2d(channels, 4, 3, padding=1)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(5, channels, 8, 8)
    torch.testing.assert_close(ours(x), theirs(x))
