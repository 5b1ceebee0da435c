"""SEU with running statistics of each task's own for the units that it reuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.tiny import (
    genotype,
    same,
    super_model,
    weights,
)
from torch import Tensor, nn

from seu_bench.data.images import TaskImages
from seu_bench.models import count_parameters, state_bytes
from seu_bench.testing import Trial
from seu_bench.testing.trial import check_sizes
from seu_bench.training.stage import TaskData
from seu_bench_kit.search_space import uniform_genotype
from seu_bench_seu.statistics import UnitNorms, UnitStatistics
from seu_bench_seu.strategy import StatisticsStage
from seu_bench_seu.super_model import SuperModel

CPU = torch.device("cpu")


#: Stem and third cell are reused, the cells between and behind are new.
PATH = (0, 1, 0, 1)


def grown() -> SuperModel:
    """Two tasks in double precision, the second not frozen yet; no BatchNorm is as it was made."""
    model = super_model().double()
    model.expand(genotype(), 0)
    model.keep(0, (0, 0, 0, 0))
    model.freeze()
    model.expand(uniform_genotype("sep_conv_3x3"), 1)
    model.keep(1, PATH)
    model.double()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
                assert tensor is not None
                nn.init.uniform_(tensor, 0.5, 1.5)
    return model


def images(count: int) -> TaskImages:
    """Random images of the second task in double precision."""
    store = 3 * torch.randn(count, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 2
    return TaskImages(store, torch.arange(count), torch.arange(count) % 2, 1, 1)


def stage(model: SuperModel, count: int, batch_size: int) -> StatisticsStage:
    """The stage of the second task."""
    return StatisticsStage(model, TaskData(1, images(count), None), batch_size, 7, CPU)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_one_batch_by_hand() -> None:
    """Mean and unbiased variance of what each BatchNorm of a reused unit sees, those before it giving the batch's."""
    model = grown()
    found = stage(model, 20, 20).run()
    assert list(found) == [0, 2]
    x = images(20).store
    stem, first, second = model.unit(0, 0), model.unit(1, 1), model.unit(2, 0)
    with torch.no_grad():
        maps = stem.conv(x)  # type: ignore[operator]
        rows = maps.transpose(0, 1).flatten(1)
        own = found[0].state_dict()
        assert set(own) == {"norm__running_mean", "norm__running_var", "norm__num_batches_tracked"}
        close(own["norm__running_mean"], rows.sum(dim=1) / rows.shape[1])
        close(own["norm__running_var"], (rows - rows.mean(dim=1, keepdim=True)).square().sum(dim=1) / (20 * 64 - 1))
        assert int(own["norm__num_batches_tracked"]) == 1
        # By hand to the next reused unit: its inputs are a stem of the batch's mean and variance, and a new unit in
        # evaluation mode.
        norm: Any = stem.norm
        spread = rows.var(dim=1, unbiased=False)
        scaled = (maps - rows.mean(dim=1)[:, None, None]) / (spread + norm.eps).sqrt()[:, None, None]
        older = scaled * norm.weight[:, None, None] + norm.bias[:, None, None]
        newer = first.eval()(older, older)
        for side, features in (("older", older), ("newer", newer)):
            convolution = second.get_submodule(f"inputs.{side}.1")
            seen = convolution(features.relu()).transpose(0, 1).flatten(1)
            own = found[2].state_dict()
            close(own[f"inputs__{side}__2__running_mean"], seen.mean(dim=1))
            close(own[f"inputs__{side}__2__running_var"], seen.var(dim=1))


def test_whose_statistics_are_used() -> None:
    """The task's own on its path, in training too; elsewhere those of the units."""
    model = grown()
    x, path = images(9).store, model.paths[1]
    with torch.no_grad():
        frozen = model.eval().features(x, path)
        found = stage(model, 20, 20).run()
        model.statistics.add(1, found)
        own = model.eval().features(x, path, 1)
        assert torch.equal(model.features(x, path), frozen) and torch.equal(model.features(x, path, 0), frozen)
        assert not torch.allclose(own, frozen)
        # By hand: the estimates written into the units themselves.
        for layer, estimate in found.items():
            unit = model.unit(layer, path[layer])
            for name, buffer in unit.named_buffers():
                buffer.copy_(estimate.get_buffer(name.replace(".", "__")))
        assert torch.equal(model.features(x, path), own)
        # New units train and move theirs; what was estimated stays.
        before, moving = weights(model.statistics), weights(model.unit(1, 1))
        model.train().forward_single_task(x, 1)
        assert same(weights(model.statistics), before) and not same(weights(model.unit(1, 1)), moving)


def test_frozen_state_has_the_statistics() -> None:
    """A creator that changed an earlier task's would be caught."""
    model = grown()
    model.statistics.add(1, stage(model, 20, 20).run())
    model.freeze()
    before = model.frozen_state()
    assert model.frozen_fault(before) is None
    model.statistics.of(1)[2].get_buffer("inputs__newer__2__running_var")[0].add_(1e-9)
    fault = "it changed the statistics of task 1 for layer 2 (inputs__newer__2__running_var), which earlier tasks"
    assert (model.frozen_fault(before) or "").startswith(fault)


def grown_norms() -> SuperModel:
    """The second task has BatchNorms of its own."""
    model = grown()
    model.adapt(1)
    return model


def test_training_normalises_by_the_batch() -> None:
    """As the same network whose reused units are thawed, in output, gradients and running statistics; the units
    themselves keep every bit."""
    model, x = grown_norms(), images(9).store
    plain = grown_norms()
    for layer in (0, 2):
        unit = plain.unit(layer, 0)
        unit.frozen = False
        for norm in unit.modules():
            if isinstance(norm, nn.BatchNorm2d):
                norm.requires_grad_(True)
    del plain.statistics.tasks["1"]
    before = weights(model.unit(0, 0)) | weights(model.unit(2, 0))
    outputs = [each.train().forward_single_task(x, 1) for each in (model, plain)]
    torch.testing.assert_close(*outputs, rtol=1e-12, atol=1e-12)
    for output in outputs:
        output.square().sum().backward()
    assert same(weights(model.unit(0, 0)) | weights(model.unit(2, 0)), before)
    for layer, own in model.statistics.training_layers(1).items():
        unit = plain.unit(layer, 0)
        for name, buffer in own.named_buffers():
            torch.testing.assert_close(buffer, unit.get_buffer(name.replace("__", ".")), rtol=1e-12, atol=1e-12)
        for name, parameter in own.named_parameters():
            expected = unit.get_parameter(name.replace("__", "."))
            torch.testing.assert_close(parameter.grad, expected.grad, rtol=1e-9, atol=1e-12)
    assert all(weight.grad is None for layer in (0, 2) for weight in model.unit(layer, 0).parameters())
    assert not any(module.training for layer in (0, 2) for module in model.unit(layer, 0).modules())


def test_what_trains_and_what_is_counted() -> None:
    """New units, the task's norms and head train; the task's path has its norms in place of the units'."""
    model = grown_norms()
    own = model.statistics.of(1)
    trained = {*model.trainable_module(1).parameters()}
    parts = [model.unit(1, 1), model.unit(3, 1), *own.values(), model.heads[1]]
    assert trained == {weight for part in parts for weight in part.parameters()}
    path = [model.unit(layer, index) for layer, index in enumerate(PATH)]
    # As many as without: each replaced weight counts once, as the task's.
    assert count_parameters(model.task_module(1)) == count_parameters(*path, model.heads[1])
    norms = [norm for unit in (path[0], path[2]) for norm in unit.modules() if isinstance(norm, nn.BatchNorm2d)]
    assert count_parameters(*own.values()) == sum(2 * norm.num_features for norm in norms)
    model.freeze()
    model.train()
    assert not model.statistics.training_layers(1) and not any(norms.training for norms in own.values())
    assert not any(weight.requires_grad for norms in own.values() for weight in norms.parameters())


@pytest.mark.parametrize("stem", [pytest.param("selectable", marks=pytest.mark.long), "shared"])
@pytest.mark.parametrize(
    ("option", "own"), [({"statistics": "per_task"}, UnitStatistics), ({"adaptation": "norms"}, UnitNorms)]
)
def test_sizes_are_within_the_forecast(option: dict[str, str], own: Any, stem: str) -> None:
    """A task has its own of what it reuses: of a shared stem at least, of its whole path at most."""
    options = {"genotype": "darts_v1", "stem": stem, **option}
    learner = Trial("seu", options, creator="all_new").learner("tiny_three").learn_all()
    check_sizes(learner, 2)
    assert tuple(learner.sizes.memory_bytes) == learner.cost.memory_bytes
    assert tuple(learner.sizes.params_total) == learner.cost.params_total
    reusing = Trial("seu", options).learner("tiny_three")
    reusing.learn(0)
    model = reusing.model
    model.statistics.add(1, {layer: own(model.unit(layer, 0)) for layer in range(len(model.layers))})
    assert state_bytes(model) == reusing.cost.memory_bytes_min[1]
    assert count_parameters(model) == reusing.cost.params_total_min[1]
