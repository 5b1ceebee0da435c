"""One loop over a model's modules finds what torch's own walks find."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from seu_bench.models.modes import modes_kept
from seu_bench.models.walk import lies_on, make_ledger, named_state, names_of, parameters_of, parts_of
from seu_bench_kit import Unit


class Told(nn.Linear):
    """A layer with something of its own in its state."""

    def get_extra_state(self) -> Any:
        return {"seen": 3}

    def set_extra_state(self, state: Any) -> None:
        pass


class Branches(Unit):
    """Modules in places of their own and in two, buffers that are kept and that are not, and what is left out."""

    def __init__(self, last: nn.Module) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 1, bias=False), nn.BatchNorm2d(4))
        self.again = self.first
        self.register_buffer("kept", torch.zeros(2))
        self.register_buffer("lost", torch.zeros(2), persistent=False)
        self.nothing: nn.Module | None = None
        self.last = last


@pytest.fixture(params=[False, True], ids=["training", "frozen"])
def model(request: pytest.FixtureRequest) -> nn.Module:
    units = [Branches(nn.Linear(4, 2)), Branches(nn.Linear(4, 2))]
    if request.param:
        units[0].freeze()
    return nn.Sequential(nn.ModuleList(units), nn.Linear(2, 2))


def same(model: nn.Module) -> None:
    """Compare with torch, by identity and in order."""
    expected = model.state_dict(keep_vars=True)
    found = named_state(model)
    assert list(found) == list(expected)
    assert all(found[name] is it for name, it in expected.items() if isinstance(it, torch.Tensor))
    assert [*map(id, parameters_of(model))] == [*map(id, model.parameters())]
    assert [*map(id, parts_of(model))] == [id(part) for _, part in model.named_modules(remove_duplicate=False)]


def test_walk_finds_what_torch_does(model: nn.Module) -> None:
    same(model)
    same(copy.deepcopy(model))
    same(model.double().to("meta"))  # which replaces buffers, and parameters as well


def test_walk_has_state_of_its_own(model: nn.Module) -> None:
    told = Branches(Told(2, 2))
    model.append(told)  # type: ignore[operator]
    assert "2.last._extra_state" in named_state(model)
    same(model)
    told.freeze()
    same(model)


def test_names_and_devices(model: nn.Module) -> None:
    """What a frozen unit is called is remembered by its place, and nothing of what still trains."""
    for root in (model, nn.Sequential(model), model):
        expected = root.state_dict(keep_vars=True)
        frozen = [name for name, it in expected.items() if isinstance(it, nn.Parameter) and not it.requires_grad]
        found = names_of(root)
        assert [*found] == [*expected] and [name for name, is_frozen in found.items() if is_frozen] == frozen
        assert lies_on(root, torch.device("cpu")) and not lies_on(root, torch.device("meta"))
    model.get_submodule("1").requires_grad_(False).to("meta")
    assert names_of(model)["1.weight"]
    assert not lies_on(model, torch.device("cpu")) and lies_on(model.to("meta"), torch.device("meta"))


def test_walk_sees_a_tensor_that_was_replaced_or_removed(model: nn.Module) -> None:
    unit = model.get_submodule("0.0")
    unit.kept = torch.ones(2)
    same(model)
    del unit._buffers["kept"]
    same(model)


def test_ledger_is_of_what_was_frozen(model: nn.Module) -> None:
    """A module that comes to it later is not walked to: the guard of creators looks at modules themselves."""
    unit = model.get_submodule("0.1")
    unit._ledger = make_ledger(unit)  # type: ignore[assignment]
    unit.later = nn.Linear(1, 1)
    assert not [name for name in named_state(model) if "later" in name]


def test_modes_are_restored(model: nn.Module) -> None:
    before = [module.training for module in model.modules()]
    model.get_submodule("1").training = False
    with modes_kept(model):
        model.train()
        model.eval()
    assert [module.training for module in model.modules()] == [*before[:-1], False]
