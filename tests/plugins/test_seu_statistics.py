"""SEU with running statistics of each task's own for the units that it reuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from support.commands import Command, folder_of_run
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

from seu_bench.config.run import Request
from seu_bench.data.images import TaskImages
from seu_bench.engine.resolve import resolve
from seu_bench.engine.saved_model import load_model, onnx_bytes
from seu_bench.engine.verification import verify
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import read_record
from seu_bench.training.interfaces import StageCost
from seu_bench.training.stage import StageProgress, TaskData
from seu_bench_kit.search_space import uniform_genotype
from seu_bench_seu.estimating import StatisticsStage
from seu_bench_seu.super_model import SuperModel

setup_module, teardown_module = one_thread, all_threads

CPU = torch.device("cpu")
SHARED = {"genotype": "darts_v1", "stem": "shared"}


def grown(path: tuple[int, ...] = (0, 1, 0, 1)) -> SuperModel:
    """Two tasks in double precision, the second on ``path`` and not frozen yet; no BatchNorm is as it was made."""
    model = super_model().double()
    model.expand(genotype(), 0)
    model.keep(0, (0, 0, 0, 0))
    model.freeze()
    model.expand(uniform_genotype("sep_conv_3x3"), 1)
    model.keep(1, path)
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


# --- what is estimated ----------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("count", "sizes"), [(24, [8, 8, 8]), (20, [8, 8, 4]), (17, [8, 9])])
def test_batches_weigh_the_same(count: int, sizes: list[int]) -> None:
    """The mean over batches of each batch's mean and variance; a single image left over joins the batch before it."""
    model = grown()
    convolution, seen = model.unit(0, 0).get_submodule("conv"), []
    convolution.register_forward_hook(lambda _module, _inputs, output: seen.append(output.transpose(0, 1).flatten(1)))
    found = stage(model, count, 8)
    own = found.run()[0].state_dict()
    assert [rows.shape[1] // 64 for rows in seen] == sizes and found.image_passes == count
    close(own["norm__running_mean"], torch.stack([rows.mean(dim=1) for rows in seen]).mean(dim=0))
    close(own["norm__running_var"], torch.stack([rows.var(dim=1) for rows in seen]).mean(dim=0))
    assert int(own["norm__num_batches_tracked"]) == len(sizes)


def test_nothing_else_changes() -> None:
    """Weights, statistics, modes and momenta of all units are as before, and the first task's logits."""
    model = grown()
    before, x = weights(model), images(5).store
    with torch.no_grad():
        logits = model.eval()(x, 0)
    found = stage(model, 20, 8).run()
    model.statistics.add(1, found)
    now = weights(model)
    assert same({name: now[name] for name in before}, before)
    assert {name.split(".")[0] for name in now.keys() - before.keys()} == {"statistics"}
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert not any(norm.training for norm in norms) and {norm.momentum for norm in norms} == {0.1}
    with torch.no_grad():
        assert torch.equal(model(x, 0), logits)


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


def test_path_that_reuses_nothing() -> None:
    """No epoch, no image, no statistics."""
    model = grown((1, 1, 1, 1))
    empty = stage(model, 20, 8)
    model.statistics.add(1, empty.run())
    assert (empty.epochs, empty.image_passes, model.statistics.architecture()) == (0, 0, {})
    assert "statistics" not in model.architecture()


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


def test_grows_to_an_architecture() -> None:
    """A new model gets the same statistics and computes the same; parameters are counted as without them."""
    model = grown()
    before = sum(weight.numel() for weight in model.parameters())
    model.statistics.add(1, stage(model, 20, 20).run())
    model.freeze()
    assert sum(weight.numel() for weight in model.parameters()) == before
    architecture = json.loads(json.dumps(model.architecture()))
    assert architecture["statistics"] == {"1": [0, 2]}
    again = super_model()
    again.load_architecture(architecture)
    again.double().load_state_dict(model.state_dict())
    assert again.architecture() == model.architecture()
    x = images(5).store
    with torch.no_grad():
        assert torch.equal(again.eval()(x, 1), model.eval()(x, 1))
    assert list(model.task_module(1))[4:6] == list(model.statistics.of(1).values())


# --- a whole stream -------------------------------------------------------------------------------------------------

STREAM = class_stream([[0, 1], [2, 3, 4], [5, 6]], images=24)


def stages_of(**options: Any) -> tuple[Any, dict[tuple[str, int], int]]:
    """A strategy that has learned the stream, and the image passes of its stages."""
    seen: list[StageProgress] = []
    strategy = learn(STREAM, build(STREAM, "seu", on_progress=seen.append, **options))
    return strategy, {(report.stage, report.task): report.image_passes for report in seen if report.done}


def costs_of(creator: str = "mdl", **options: Any) -> tuple[StageCost, ...]:
    """Images that the stages were told to pass."""
    given = {"epochs": 2, **({"creator.epochs": 2} if creator == "mdl" else {}), **options}
    made = resolve(Registry(), Request(protocol="smoke", creator=creator, options=given)).context(STREAM.plan)
    cost = Registry().strategies.find("seu").factory.cost(made)
    return tuple(stage for stage in cost.stages if stage.name != "evaluation")


@pytest.mark.long
def test_frozen_is_the_default() -> None:
    """No stage, no statistics; the same by name."""
    strategy, found = stages_of(**SHARED)
    assert {name for name, _ in found} == {"creation", "training"}
    assert "statistics" not in strategy.model.architecture()
    named, _ = stages_of(**SHARED, statistics="frozen")
    assert same(weights(named.model), weights(strategy.model))
    assert not any(name.startswith("statistics") for name in weights(named.model))


def test_earlier_tasks_keep_their_bits() -> None:
    """Logits of every task are the same as long as the stream goes on, and the reused stem has three statistics."""
    strategy = build(STREAM, "seu", **SHARED, statistics="per_task")
    scenario, logits = STREAM.avalanche(), []
    for task, experience in enumerate(scenario.train_stream):
        strategy.train(experience, eval_streams=[scenario.streams["valid"]])
        logits.append(logits_of(strategy.model, STREAM, task))
        assert all(torch.equal(logits_of(strategy.model, STREAM, earlier), logits[earlier]) for earlier in range(task))
    model = strategy.model
    means = [model.unit(0, 0).norm.running_mean, *(model.statistics.of(task)[0].norm__running_mean for task in (1, 2))]
    assert not any(torch.allclose(means[one], means[other]) for one, other in ((0, 1), (0, 2), (1, 2)))
    for task in (1, 2):
        assert list(model.statistics.of(task)) == [
            layer for layer, index in enumerate(model.paths[task]) if model.unit_tasks[layer][index] != task
        ]


def test_passes_of_a_whole_run() -> None:
    """Estimates of ``cost`` for each stage are its passes: each training image once, from the second task on."""
    _, found = stages_of(**SHARED, statistics="per_task")
    told = costs_of(**SHARED, statistics="per_task")
    assert found == {(stage.name, stage.task): stage.image_passes for stage in told}
    own = {(stage.task, stage.train, stage.evaluate) for stage in told if stage.name == "statistics"}
    assert own == {(task, 0, len(STREAM.tasks[task].train)) for task in (1, 2)}
    assert not any(stage.name == "statistics" for stage in costs_of(**SHARED))


@pytest.fixture(scope="module")
def made(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Runs of two tasks, each in the folder that it says."""
    results = tmp_path_factory.mktemp("results")
    small = ("--protocol", "smoke", "--limit", 12, "-o", "epochs=1", "-o", "benchmark.stream.classes_per_task=5")
    seu = ("-o", "channels=2", "-o", "genotype=darts_v1", "-o", "statistics=per_task")
    asked = ("--strategy", "seu", *small, *seu, "--device", "cpu", "--results", results)
    return lambda *more: folder_of_run(command, *asked, *more)


@pytest.mark.long
def test_record_file_and_export(command: Command, made: Callable[..., Path]) -> None:
    """A run's record has the stage and no forgetting; its weights come back, verify, and go out as ONNX."""
    folder = made("-o", "stem=shared", "-o", "creator.epochs=2")
    record = read_record(folder)
    assert [stage.name for stage in record.stages if stage.task == 1] == [
        *("creation", "statistics", "training", "evaluation")
    ]
    (own,) = [stage for stage in record.stages if stage.name == "statistics"]
    assert (own.epochs, own.image_passes) == (1, record.task_images[1][0])
    assert record.metrics["forgetting"] == 0 and record.options["statistics"] == "per_task"
    assert verify(Registry(), str(folder), device="cpu").passed
    model = load_model(folder)
    assert 0 in dict(model.network.architecture()["statistics"])["1"]
    content = onnx_bytes(model, 1)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    for count in (1, 7):
        shape, generator = (count, *(model.input_shape or ())), torch.Generator().manual_seed(count)
        pixels = torch.randint(256, shape, dtype=torch.uint8, generator=generator)
        found: Any = session.run(["logits"], {"images": pixels.numpy()})[0]
        assert np.abs(found - model(model.preprocess(pixels, 1), 1).numpy()).max() < 1e-4
    # The shared stem's own statistics, which are the first task's, are not in the file of the second.
    norm: Any = model.network.get_submodule("layers.0.0.norm")
    assert norm.running_mean.numpy().tobytes() not in content


@pytest.mark.long
def test_record_where_all_is_new(made: Callable[..., Path]) -> None:
    """The stage is there with nothing done; ``cost`` told what it may take at most."""
    record = read_record(made("--creator", "all_new"))
    (own,) = [stage for stage in record.stages if stage.name == "statistics"]
    assert (own.task, own.epochs, own.image_passes) == (1, 0, 0)
    told = costs_of("all_new", genotype="darts_v1", statistics="per_task")
    assert [stage.task for stage in told if stage.name == "statistics"] == [1, 2]


def test_option_that_does_not_fit(command: Command) -> None:
    """Another word is refused."""
    answer = command("cost", "--strategy", "seu", "-o", "statistics=fresh")
    assert answer.status == 2 and "statistics" in answer.err
