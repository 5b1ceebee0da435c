"""SEU with BatchNorms that a task trains for itself in the units that it reuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.commands import Command, folder_of_run
from support.tiny import (
    all_threads,
    genotype,
    one_thread,
    same,
    super_model,
    weights,
)
from torch import nn

from seu_bench.engine.verification import verify
from seu_bench.models import count_parameters, state_bytes
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import read_record
from seu_bench.testing import Trial
from seu_bench.testing.sizes import check_sizes
from seu_bench_kit.search_space import uniform_genotype
from seu_bench_seu.statistics import UnitNorms
from seu_bench_seu.super_model import SuperModel

setup_module, teardown_module = one_thread, all_threads

#: Stem and third cell are reused, the cells between and behind are new.
PATH = (0, 1, 0, 1)


def grown() -> SuperModel:
    """Two tasks in double precision, the second with BatchNorms of its own; no BatchNorm is as it was made."""
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
    model.adapt(1)
    return model


def images(count: int = 9) -> torch.Tensor:
    return torch.randn(count, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_begin_as_those_of_the_units() -> None:
    """Before training the task is computed as if it had none, bit by bit."""
    model, x = grown(), images()
    with torch.no_grad():
        model.eval()
        assert torch.equal(model.features(x, PATH, 1), model.features(x, PATH))
    assert list(model.statistics.training_layers(1)) == [0, 2]


def test_training_normalises_by_the_batch() -> None:
    """As the same network whose reused units are thawed, in output, gradients and running statistics; the units
    themselves keep every bit."""
    model, x = grown(), images()
    plain = grown()
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
    model = grown()
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


# --- a whole stream -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stem", [pytest.param("selectable", marks=pytest.mark.long), "shared"])
def test_sizes_are_within_the_forecast(stem: str) -> None:
    """A task has norms of its own for what it reuses: for a shared stem at least, for its whole path at most."""
    options = {"genotype": "darts_v1", "adaptation": "norms", "stem": stem}
    learner = Trial("seu", options, creator="all_new").learner("tiny_three").learn_all()
    check_sizes(learner, 2)
    assert tuple(learner.sizes.memory_bytes) == learner.cost.memory_bytes
    assert tuple(learner.sizes.params_total) == learner.cost.params_total

    reusing = Trial("seu", options).learner("tiny_three")
    reusing.learn(0)
    model = reusing.model
    model.statistics.add(1, {layer: UnitNorms(model.unit(layer, 0)) for layer in range(len(model.layers))})
    assert state_bytes(model) == reusing.cost.memory_bytes_min[1]
    assert count_parameters(model) == reusing.cost.params_total_min[1]


@pytest.mark.long
def test_record_and_file(command: Command, tmp_path: Path) -> None:
    """A run forgets nothing, and its weights come back and verify."""
    small = ("--protocol", "smoke", "--limit", 12, "-o", "epochs=1", "-o", "benchmark.stream.classes_per_task=5")
    seu = ("-o", "channels=2", "-o", "genotype=darts_v1", "-o", "stem=shared", "-o", "adaptation=norms")
    asked = ("--strategy", "seu", "--creator", "frugal", *small, *seu, "--device", "cpu")
    folder = folder_of_run(command, *asked, "--results", tmp_path)
    record = read_record(folder)
    assert record.metrics["forgetting"] == 0 and record.options["adaptation"] == "norms"
    assert verify(Registry(), str(folder), device="cpu").passed
