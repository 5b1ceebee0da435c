"""Dropout with cheap masks drops what torch's does: as often, independently, without a bias."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from seu_bench.models.layers import Dropout


@pytest.mark.parametrize("p", [0.2, 0.5, 0.9])
def test_rate_and_scale(p: float) -> None:
    """The share that is dropped is p within five standard errors; the rest is scaled so that the mean stays."""
    torch.manual_seed(0)
    count = 400_003  # no multiple of four
    out = Dropout(p)(torch.ones(count))
    dropped = int((out == 0).sum()) / count
    assert abs(dropped - p) < 5 * math.sqrt(p * (1 - p) / count)
    (kept,) = out[out != 0].unique().tolist()
    assert kept == pytest.approx(1 / (1 - p), rel=2**-16 / (1 - p))


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_neighbours_are_independent(p: float) -> None:
    """Elements that share a draw, and elements of two calls, are dropped together as often as chance says."""
    torch.manual_seed(1)
    layer, count = Dropout(p), 400_000
    first, second = (layer(torch.ones(count)) == 0 for _ in range(2))
    error = 5 * math.sqrt(p**2 * (1 - p**2) / (count / 4))
    for lag in range(1, 4):
        together = (first.view(-1, 4)[:, :-lag] & first.view(-1, 4)[:, lag:])[:, 0]
        assert abs(float(together.float().mean()) - p**2) < error
    assert abs(float((first & second).float().mean()) - p**2) < error


def test_gradient_follows_the_mask() -> None:
    """Dropped values get no gradient, the rest the same factor."""
    torch.manual_seed(2)
    x = torch.randn(5, 7, requires_grad=True)
    out = Dropout(0.5)(x)
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(out.detach(), x.detach() * x.grad)
    assert set(x.grad.unique().tolist()) == {0.0, 2.0}


def test_evaluation_and_edges() -> None:
    """Nothing is dropped in evaluation or with p = 0, everything with p = 1; the layout of memory does not matter."""
    x = torch.randn(2, 4, 3, 3).contiguous(memory_format=torch.channels_last)
    assert Dropout(0.5).eval()(x) is x
    assert torch.equal(Dropout(0.0)(x), x)
    assert torch.equal(Dropout(1.0)(x), torch.zeros_like(x))
    out = Dropout(0.5)(x)
    assert bool(((out == 0) | (out == 2 * x)).all())
    assert isinstance(Dropout(0.5), nn.Dropout)
