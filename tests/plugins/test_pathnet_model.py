"""PathNet's network: what a path computes, what is frozen, what is drawn anew, masks and architectures."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from support.plugins.pathnet import FIRST, SECOND, images, network, perceptron
from support.tiny import all_threads, one_thread, same, weights
from torch import Tensor, nn
from torch.nn import functional

from seu_bench.errors import RunError
from seu_bench.models import count_parameters, is_frozen
from seu_bench_kit import chain_of, unpack_bits
from seu_bench_pathnet.network import ModularNetwork, Path

setup_module, teardown_module = one_thread, all_threads

EVERYWHERE = [(layer, index) for layer in range(5) for index in range(4)]


def learned(*paths: Path) -> ModularNetwork:
    """A network that kept these paths."""
    model = network()
    for task, path in enumerate(paths):
        model.try_path(task, path)
        model.keep(task)
    return model


def on(*paths: Path) -> set[tuple[int, int]]:
    """The places of modules on any of the paths."""
    return {(layer, index) for path in paths for layer, used in enumerate(path) for index in used}


def by_hand(model: Any, x: Tensor, path: Path, task: int) -> Tensor:
    """Logits by the formula, each layer written out."""
    for layer, used in enumerate(path):
        x = x.flatten(1) if layer == 3 else x
        outputs = []
        for index in sorted(set(used)):
            module = model.layers[layer][index]
            if layer < 3:
                out = functional.relu(functional.conv2d(x, module.weight, module.bias, padding=1))
                outputs.append(functional.max_pool2d(out, 2))
            else:
                outputs.append(functional.relu(functional.linear(x, module.weight, module.bias)))
        x = torch.stack(outputs).sum(dim=0)
    return functional.linear(x, model.heads[task].weight, model.heads[task].bias)


@pytest.mark.parametrize("path", [FIRST, SECOND])
def test_logits_are_those_of_the_formula(path: Path) -> None:
    """Sums of what each module of the path computes behind its activation, one that is named twice once."""
    model, x = network().double(), images().store.double()
    model.try_path(1, path)
    torch.testing.assert_close(model(x, 1), by_hand(model, x, path, 1))


def test_a_sum_by_hand() -> None:
    """One number, two modules: relu(2x + 1) + relu(-x), then a head of 3."""
    model = ModularNetwork(chain_of(nn.Sequential(nn.Linear(1, 1), nn.ReLU()), "pathnet"), (1,), 2).double()
    values = {"weight": (2.0, -1.0), "bias": (1.0, 0.0)}
    with torch.no_grad():
        for index in (0, 1):
            for name, parameter in model.module_at(0, index).named_parameters():
                parameter.fill_(values[name][index])
        model.heads[0].weight.fill_(3.0)  # type: ignore[union-attr,operator]
        model.heads[0].bias.fill_(0.5)  # type: ignore[union-attr,operator]
    x = torch.tensor([[2.0], [-3.0], [-0.25]], dtype=torch.float64)
    for path, sums in ((((0, 1),), (5.0, 3.0, 0.75)), (((1, 1),), (0.0, 3.0, 0.25)), (((0, 0),), (5.0, 0.0, 0.5))):
        model.try_path(0, path)
        assert model(x, 0).flatten().tolist() == [3 * value + 0.5 for value in sums]


def test_what_trains() -> None:
    """The modules of the path that no task kept, and the head; any free module may be on a path of the next task."""
    model = learned(FIRST)
    model.try_path(1, SECOND)
    assert {place for place in EVERYWHERE if is_frozen(model.module_at(*place))} == on(FIRST)
    assert is_frozen(model.heads[0]) and not is_frozen(model.heads[1])
    new = [model.module_at(*place) for place in sorted(on(SECOND) - on(FIRST))]
    assert {*model.trainable_module(1).parameters()} == {*nn.ModuleList([*new, model.heads[1]]).parameters()}
    free = [model.module_at(*place) for place in EVERYWHERE if place not in on(FIRST)]
    assert {*model.free_module(1).parameters()} == {*nn.ModuleList([*free, model.heads[1]]).parameters()}
    path = [model.module_at(*place) for place in sorted(on(SECOND))]
    assert count_parameters(model.task_module(1)) == count_parameters(*path, model.heads[1])


def test_renewal_skips_what_is_frozen() -> None:
    """Every other module gets weights that the seed decides; heads stay."""
    model, other = learned(FIRST), learned(FIRST)
    before, heads = [weights(model.module_at(*place)) for place in EVERYWHERE], weights(model.heads)
    for each in (model, other):
        torch.manual_seed(7)
        each.renew()
    assert same(weights(model), weights(other))
    for place, old in zip(EVERYWHERE, before, strict=True):
        now = weights(model.module_at(*place))
        if place in on(FIRST):
            assert same(now, old)
        else:
            assert not any(torch.equal(now[name], old[name]) for name in old), place
    assert same(weights(model.heads), heads)


def test_a_learned_task_keeps_its_path() -> None:
    """Another one is refused, and one that was not learned has none."""
    model = learned(FIRST)
    with pytest.raises(RunError, match="task 0 was learned already"):
        model.try_path(0, SECOND)
    with pytest.raises(RunError, match="task 2 has no path yet"):
        model(images().store, 2)


def test_masks() -> None:
    """A bit for each module of each layer and each task, of which those on the path are set."""
    model = learned(FIRST, SECOND)
    assert model.mask_bits == 2 * 5 * 4 and model.masks.shape == (2, 3) and model.masks.dtype == torch.uint8
    for task, path in enumerate((FIRST, SECOND)):
        bits = unpack_bits(model.masks[task], (5, 4))
        assert {(int(layer), int(index)) for layer, index in bits.nonzero()} == on(path)
    assert network().mask_bits == 0 and network().masks.shape == (0, 3)


def test_made_again_from_its_architecture() -> None:
    """Paths, masks, weights, and what is frozen."""
    model, again = learned(FIRST, SECOND), network(seed=1)
    again.load_architecture(json.loads(json.dumps(model.architecture())))
    again.load_state_dict(model.state_dict())
    assert again.paths == model.paths == {0: FIRST, 1: ((0, 2), (2,), (1, 2), (0, 3), (0, 1))}
    assert again.mask_bits == model.mask_bits and again.architecture() == model.architecture()
    frozen, others = ({name for name, each in of.named_parameters() if not each.requires_grad} for of in (model, again))
    assert frozen == others
    assert torch.equal(model(images().store, 1), again(images().store, 1))


@pytest.mark.parametrize(
    "paths",
    [
        {"0": []},
        {"0": [[0]] * 4},
        {"0": [[0]] * 4 + [[]]},
        {"0": [[0]] * 4 + [[4]]},
        {"0": [[-1]] * 5},
        {"3": [[0]] * 5},
    ],
)
def test_another_architecture_is_refused(paths: dict[str, Any]) -> None:
    """Other layers, no module, a module or a task that is not there."""
    with pytest.raises(ValueError, match="does not fit 5 layers of 4 modules and 3 tasks"):
        network().load_architecture({"paths": paths})


def test_an_architecture_is_loaded_once() -> None:
    with pytest.raises(ValueError, match="has paths already"):
        learned(FIRST).load_architecture(learned(FIRST).architecture())


def test_dropout_acts_on_each_module_and_in_training_only() -> None:
    """The masks of two modules of equal weights differ; in evaluation nothing is random."""
    backbone = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Dropout(0.5))
    model = ModularNetwork(chain_of(backbone, "pathnet"), (64,), 2)
    model.module_at(0, 1).load_state_dict(model.module_at(0, 0).state_dict())
    model.heads[0] = nn.Identity()
    model.try_path(0, ((0, 1),))
    x = torch.ones(200, 4)
    torch.manual_seed(0)
    once = torch.relu(model.module_at(0, 0)(x)).detach()
    with torch.no_grad():
        shares = (model.train()(x, 0) / once)[once > 0]
        assert {round(float(share)) for share in shares.unique()} == {0, 2, 4}
        torch.testing.assert_close(model.eval()(x, 0), 2 * once)


def test_perceptron_has_two_layers() -> None:
    model = ModularNetwork(chain_of(perceptron(16, 20), "pathnet"), (2,), 3)
    assert len(model.layers) == 2 and model.path_bits == 6
