"""What counts as trained in evaluation mode."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from seu_bench.testing.modes import asleep, steps_watched


def network() -> nn.Sequential:
    """A part with dropout that can be frozen, and a part with batch normalisation behind it."""
    body = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5))
    return nn.Sequential(body, nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2))


@pytest.mark.parametrize(
    ("sleeping", "moved", "found"),
    [
        ([], ["0", "1", "2", "4"], []),
        (["2"], ["0", "1", "2", "4"], ["2"]),
        (["3"], ["0", "1", "2", "4"], ["3"]),
        (["0.1"], ["0", "1", "2", "4"], ["0.1"]),
        (["0", "0.0", "0.1"], ["1", "2", "4"], []),  # frozen, and rightly in evaluation mode
        (["2"], ["1", "4"], []),  # its parameters do not move
        (["0", "0.0", "0.1", "1", "2"], ["1", "2"], ["1", "2"]),
    ],
)
def test_asleep(sleeping: list[str], moved: list[str], found: list[str]) -> None:
    """Parts that move, and dropout among them; frozen parts may sleep."""
    model = network().train()
    for name in sleeping:
        model.get_submodule(name).training = False
    parameters = {parameter for name in moved for parameter in model.get_submodule(name).parameters()}
    assert sorted(asleep(model, parameters)) == found


def test_only_steps_on_the_model_are_watched() -> None:
    """Another network's steps do not count, nor do parameters without a gradient, nor steps after the block."""
    model, other = network().eval(), network().eval()
    with steps_watched(SimpleNamespace(model=model)) as steps:
        for trained in (other, model):
            optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
            optimizer.step()
            if trained is other:
                trained(torch.rand(5, 3)).sum().backward()
                optimizer.step()
        assert (steps.count, list(steps.asleep)) == (0, [])
        model[4](torch.rand(5, 4)).sum().backward()
        optimizer.step()
    optimizer.step()
    assert (steps.count, list(steps.asleep)) == (1, ["3", "4"])
