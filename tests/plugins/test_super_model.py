"""The super model grows, keeps what was chosen, freezes it, and computes earlier tasks by the same bits for ever."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from support.tiny import (
    all_threads,
    build,
    class_stream,
    genotype,
    learn,
    logits_of,
    one_thread,
    same,
    super_model,
    weights,
)
from torch import Tensor, nn
from torch.nn import functional

from seu_bench.models.sizes import count_parameters
from seu_bench_kit.search_space import SearchSpace, uniform_genotype
from seu_bench_seu.super_model import SuperModel

setup_module, teardown_module = one_thread, all_threads

DARTS, MIXTURE, POOLS = genotype(), genotype("mdenas_mixture"), uniform_genotype("max_pool_3x3")


def images(count: int = 4, channels: int = 1) -> Tensor:
    return torch.randn(count, channels, 8, 8, generator=torch.Generator().manual_seed(0))


def grown() -> SuperModel:
    """Two tasks learned by name: the second took new units at layers 1 and 3, old ones elsewhere."""
    model = super_model()
    model.expand(DARTS, 0)
    model.keep(0, [0, 0, 0, 0])
    model.freeze()
    model.expand(MIXTURE, 1)
    model.keep(1, [0, 1, 0, 1])
    model.freeze()
    return model


def test_empty() -> None:
    """There are heads of every task's width and no unit before the first task."""
    model = super_model((2, 3, 5))
    assert model.candidates == [0, 0, 0, 0]
    assert [(head.in_features, head.out_features) for head in model.heads] == [(32, 2), (32, 3), (32, 5)]
    assert count_parameters(model) == 33 * 10


def test_expand_adds_one_unit_per_layer() -> None:
    """Every layer gets one new, trainable unit, which remembers its task and its genotype."""
    model = super_model()
    model.expand(DARTS, 0)
    assert model.candidates == [1, 1, 1, 1] and model.has_new == [True] * 4
    model.keep(0, [0, 0, 0, 0])
    assert model.has_new == [True] * 4
    model.freeze()
    assert model.has_new == [False] * 4
    model.expand(MIXTURE, 1)
    assert model.candidates == [2, 2, 2, 2] and model.has_new == [True] * 4
    assert model.unit_tasks == [[0, 1]] * 4
    assert model.unit_genotypes == [[DARTS, MIXTURE]] * 4
    assert [layer[1].edges for layer in model.layers[1:]] == [MIXTURE.normal, MIXTURE.reduction, MIXTURE.reduction]


def test_keep_deletes_what_was_not_chosen() -> None:
    """New units off the path go; every other unit keeps its index and its weights."""
    model = super_model()
    model.expand(DARTS, 0)
    model.keep(0, [0, 0, 0, 0])
    model.freeze()
    model.expand(MIXTURE, 1)
    units = [list(layer) for layer in model.layers]
    model.keep(1, [0, 1, 0, 1])
    assert model.candidates == [1, 2, 1, 2]
    assert model.unit_tasks == [[0], [0, 1], [0], [0, 1]]
    assert model.unit_genotypes == [[DARTS], [DARTS, MIXTURE], [DARTS], [DARTS, MIXTURE]]
    for layer, before in zip(model.layers, units, strict=True):
        assert list(layer) == before[: len(layer)]
    assert model.paths == {0: (0, 0, 0, 0), 1: (0, 1, 0, 1)}
    assert model.has_new == [False, True, False, True]


def test_indices_stay_over_many_tasks() -> None:
    """Later tasks neither move nor change units of earlier ones, and may choose any of them."""
    model = grown()
    before = {(layer, index): unit for layer, units in enumerate(model.layers) for index, unit in enumerate(units)}
    state = weights(model)
    model.expand(POOLS, 2)
    model.keep(2, [1, 0, 0, 2])
    assert model.candidates == [2, 2, 1, 3]
    for (layer, index), unit in before.items():
        assert model.layers[layer][index] is unit
    assert same({name: tensor for name, tensor in weights(model).items() if name in state}, state)
    assert model.unit_tasks == [[0, 2], [0, 1], [0], [0, 1, 2]]


@pytest.mark.parametrize("path", [[0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 2], [0, -1, 0, 0], []])
def test_paths_must_fit(path: list[int]) -> None:
    """A path of the wrong length or to a unit that is not there is refused and changes nothing."""
    model = grown()
    with pytest.raises(ValueError, match="does not fit layers"):
        model.set_path(1, path)
    with pytest.raises(ValueError, match="does not fit layers"):
        model.keep(1, path)
    assert model.paths[1] == (0, 1, 0, 1) and model.candidates == [1, 2, 1, 2]


def test_forward_is_the_units_on_the_path() -> None:
    """Stem, cells fed by the two layers before, mean over the image, the task's head."""
    model = grown().eval()
    x = images()
    for task in (0, 1):
        units = [layer[index] for layer, index in zip(model.layers, model.paths[task], strict=True)]
        with torch.no_grad():
            stem = units[0](x.contiguous(memory_format=torch.channels_last))
            first = units[1](stem, stem)
            second = units[2](stem, first)
            third = units[3](first, second)
            head = model.heads[task]
            expected = functional.linear(third.mean(dim=(2, 3)), head.weight, head.bias)
            assert torch.equal(model.forward_single_task(x, task), expected)
    assert model(x, 0).shape == (4, 2) and model(x, 1).shape == (4, 3)


def test_freeze_and_what_trains() -> None:
    """New units on the path and the task's head train; frozen units and other heads do not."""
    model = grown()
    model.expand(POOLS, 2)
    model.set_path(2, [1, 0, 0, 2])
    expected = {id(p) for layer, index in ((0, 1), (3, 2)) for p in model.layers[layer][index].parameters()}
    expected |= {id(p) for p in model.heads[2].parameters()}
    assert {id(p) for p in model.trainable_module(2).parameters()} == expected
    assert all(p.requires_grad for p in model.trainable_module(2).parameters())
    everything_new = {id(p) for layer in model.layers for p in layer[-1].parameters()}
    everything_new |= {id(p) for p in model.heads[2].parameters()}
    assert {id(p) for p in model.new_units(2).parameters()} == everything_new
    model.train()(images(), 2).square().sum().backward()
    touched = {id(p) for p in model.parameters() if p.grad is not None}
    assert touched == expected
    frozen = [unit for layer in model.layers for unit in layer if unit.frozen]
    assert len(frozen) == 6 and not any(module.training for unit in frozen for module in unit.modules())


def test_task_module_is_the_path_and_its_head() -> None:
    """Parameters on a task's path are its active ones."""
    model = grown()
    expected = [model.layers[0][0], model.layers[1][1], model.layers[2][0], model.layers[3][1], model.heads[1]]
    assert list(model.task_module(1)) == expected


def test_shared_units_are_counted_once() -> None:
    """The whole is smaller than the sum of the paths by the units that tasks share."""
    model = grown()
    paths = [count_parameters(model.task_module(task)) for task in (0, 1)]
    shared = count_parameters(model.layers[0][0], model.layers[2][0])
    third_head = count_parameters(model.heads[2])
    assert shared > 0
    assert count_parameters(model) == sum(paths) - shared + third_head
    assert count_parameters(model.task_module(0), model.task_module(0)) == paths[0]


def test_shared_stem() -> None:
    """With a shared stem the first layer never grows; the others do."""
    model = super_model(stem="shared")
    model.expand(DARTS, 0)
    model.keep(0, [0, 0, 0, 0])
    model.freeze()
    stem = model.layers[0][0]
    model.expand(MIXTURE, 1)
    assert model.candidates == [1, 2, 2, 2] and model.has_new == [False, True, True, True]
    model.keep(1, [0, 1, 1, 1])
    assert model.layers[0][0] is stem and model.unit_tasks == [[0], [0, 1], [0, 1], [0, 1]]


def test_renew() -> None:
    """New units on the path get fresh weights of the same genotype; frozen units and others keep theirs."""
    model = grown()
    model.expand(POOLS, 2)
    model.keep(2, [1, 0, 0, 2])
    before = weights(model)
    torch.manual_seed(7)
    model.renew(2)
    after = weights(model)
    assert before.keys() == after.keys()
    renewed = {name for name in before if not torch.equal(before[name], after[name])}
    assert {tuple(name.split(".")[1:3]) for name in renewed} == {("0", "1"), ("3", "2")}
    assert model.layers[3][2].edges == POOLS.reduction and model.unit_tasks[3] == [0, 1, 2]
    torch.manual_seed(7)
    model.renew(2)
    assert same(weights(model), after)
    assert model.has_new == [True, False, False, True]


def test_architecture_is_plain() -> None:
    """Tasks, genotypes and paths as values that JSON takes."""
    assert grown().architecture() == {
        "unit_tasks": [[0], [0, 1], [0], [0, 1]],
        "unit_genotypes": [
            [DARTS.to_dict()],
            [DARTS.to_dict(), MIXTURE.to_dict()],
            [DARTS.to_dict()],
            [DARTS.to_dict(), MIXTURE.to_dict()],
        ],
        "frozen": [[True], [True, True], [True], [True, True]],
        "paths": {"0": [0, 0, 0, 0], "1": [0, 1, 0, 1]},
    }


def test_grows_to_an_architecture() -> None:
    """A new super model gets units, paths and frozen units; with the weights it computes the same."""
    model = grown()
    model.expand(DARTS, 2)
    again = super_model()
    again.load_architecture(json.loads(json.dumps(model.architecture())))
    again.load_state_dict(model.state_dict())
    assert again.architecture() == model.architecture()
    assert again.unit(1, 1).frozen and not again.unit(1, 2).frozen
    frozen = [name for name, weight in again.named_parameters() if not weight.requires_grad]
    assert frozen == [name for name, weight in model.named_parameters() if not weight.requires_grad] != []
    x = torch.randn(3, 1, 8, 8)
    for task in (0, 1):
        assert torch.equal(again.eval().forward_single_task(x, task), model.eval().forward_single_task(x, task))
    with pytest.raises(ValueError, match="empty"):
        again.load_architecture(model.architecture())
    with pytest.raises(ValueError, match="layers"):
        super_model(cells=4).load_architecture(model.architecture())


def test_space_reaches_the_units() -> None:
    """Units are built as the space says."""
    model = super_model(space=SearchSpace(factorized_reduce_norm=False))
    model.expand(uniform_genotype("skip_connect"), 0)
    flags = [module.apply_norm for module in model.modules() if hasattr(module, "apply_norm")]
    assert flags and not any(flags)


# --- learned by the real strategy ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.long),
        {"genotype": "mdenas_mixture"},
        pytest.param({"stem": "shared"}, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_earlier_tasks_keep_their_bits(options: dict[str, Any]) -> None:
    """Learning two more tasks leaves the first one's logits, units and head as they were, bit by bit."""
    stream = class_stream([[0, 1], [2, 3, 4], [5, 6]], images=24)
    strategy = build(stream, "seu", creator__old_unit_epochs=0, **options)
    scenario = stream.avalanche()
    kept: list[dict[str, Tensor]] = []
    logits: list[Tensor] = []
    heads = weights(strategy.model.heads)
    for task, experience in enumerate(scenario.train_stream):
        strategy.train(experience, eval_streams=[scenario.streams["valid"]])
        kept.append(weights(strategy.model.task_module(task)))
        logits.append(logits_of(strategy.model, stream, task))
        for earlier in range(task + 1):
            assert same(weights(strategy.model.task_module(earlier)), kept[earlier])
            assert torch.equal(logits_of(strategy.model, stream, earlier), logits[earlier])
        changed = {
            int(name.split(".")[0])
            for name, tensor in strategy.model.heads.state_dict().items()
            if not torch.equal(tensor, heads[name])
        }
        assert changed == set(range(task + 1))


def test_steps_on_the_whole_model_do_not_harm() -> None:
    """Even a foreign optimiser over all parameters, with momentum and weight decay, leaves frozen tasks alone."""
    stream = class_stream([[0, 1], [2, 3]], images=24)
    strategy = learn(stream, build(stream, "seu"), tasks=1)
    model: SuperModel = strategy.model
    logits = logits_of(model, stream, 0)
    model.expand(DARTS, 1)
    model.set_path(1, [0, 1, 0, 1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    for _ in range(3):
        model.train()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images(8), 1), torch.zeros(8, dtype=torch.int64)).backward()
        optimizer.step()
    assert torch.equal(logits_of(model, stream, 0), logits)
