"""Elastic weight consolidation: penalty and Fisher information by hand, one anchor, naive fine-tuning without it."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.commands import Command
from support.tiny import (
    accuracy_of,
    all_threads,
    benchmark,
    build,
    class_stream,
    context,
    learn,
    one_thread,
    registry,
    same,
    weights,
)
from torch import Tensor, nn

import seu_bench
from seu_bench.config.protocol import ImageLimits, Schedule
from seu_bench.config.run import Request
from seu_bench.data.dataset import DatasetInfo, RawDataset, RawSplit
from seu_bench.data.images import TaskImages
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.engine.resolve import resolve
from seu_bench.errors import RunError
from seu_bench.models.multihead import BackboneModel
from seu_bench.training.stage import StageProgress
from seu_bench.training.task import TaskData
from seu_bench.training.training_stage import TrainingStage
from seu_bench_ewc import fisher
from seu_bench_ewc.fisher import FisherStage
from seu_bench_ewc.strategy import Ewc

setup_module, teardown_module = one_thread, all_threads

both = pytest.mark.parametrize("estimator", ["batch", "per_sample"])

#: A network that forgets :func:`permuted` tasks, learned in no time.
NARROW: dict[str, Any] = {"backbone": "mlp", "width": 0.04, "epochs": 6, "batch_size": 24, "learning_rate": 0.2}

#: Heads of the networks made here.
CLASSES = (3, 2)


class Gate(nn.Module):
    """A layer that torch.func cannot map over images: what it does depends on the numbers themselves."""

    def forward(self, x: Tensor) -> Tensor:
        return x if bool(x.sum() > 0) else 2 * x


def ewc(*layers: nn.Module, batch_size: int = 8, **options: Any) -> Ewc:
    """A strategy in double precision over a network of 16 pixels, five tanh units and ``layers``."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.Tanh(), *layers)
    model = BackboneModel(backbone, 5, CLASSES).double()
    return Ewc(model=model, schedule=Schedule(epochs=2, batch_size=batch_size), **options)


def images(number: int, task: int = 0) -> TaskImages:
    """Random images of a task, in double precision; no two are alike."""
    generator = torch.Generator().manual_seed(number)
    store = torch.randn(number, 1, 4, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(CLASSES[task], (number,), generator=generator)
    return TaskImages(store, torch.arange(number), labels, task, 1)


def stage(strategy: Ewc, data: TaskImages, estimator: str = "batch") -> FisherStage:
    return FisherStage(strategy, TaskData(data.task, data, None), estimator)  # type: ignore[arg-type]


def move(model: nn.Module) -> None:
    """Move every weight a little."""
    generator = torch.Generator().manual_seed(5)
    for weight in model.parameters():
        weight.data += 0.05 * torch.randn(weight.shape, generator=generator)


def seen_by(model: Any) -> list[Tensor]:
    """Every batch that goes through the model's backbone from now on."""
    batches: list[Tensor] = []
    model.backbone.register_forward_pre_hook(lambda _, inputs: batches.append(inputs[0].detach().clone()))
    return batches


def positions_of(batch: Tensor, data: TaskImages) -> list[int]:
    return [int((data.store == image).flatten(1).all(dim=1).nonzero()) for image in batch]


def squared_gradients(model: Any, data: TaskImages, positions: list[int]) -> dict[str, Tensor]:
    """The oracle: the squared gradient of the mean cross-entropy of these images, by hand and by ``backward``."""
    model.zero_grad()
    total = torch.zeros((), dtype=torch.float64)
    for position in positions:
        logits = model.heads[data.task](model.backbone(data.store[position : position + 1]))[0]
        total = total - torch.log_softmax(logits, dim=0)[data.labels[position]]
    (total / len(positions)).backward()
    found = {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad.clone() ** 2
        for name, weight in model.named_parameters()
    }
    model.zero_grad()
    return found


def close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-15)


# --- the penalty --------------------------------------------------------------------------------------------------


def test_penalty_and_gradient() -> None:
    """``lambda/2 * sum_i F_i (theta_i - theta*_i)^2`` and ``lambda F_i (theta_i - theta*_i)``, number by number."""
    strategy = ewc(ewc_lambda=300.0)
    assert strategy.penalty() is None
    importance = {name: torch.rand_like(weight) for name, weight in strategy.model.named_parameters()}
    anchor = {name: weight.detach().clone() for name, weight in strategy.model.named_parameters()}
    strategy.consolidation.add(strategy.model, importance)
    unmoved = strategy.penalty()
    assert unmoved is not None and unmoved.item() == 0
    move(strategy.model)
    penalty = strategy.penalty()
    assert penalty is not None
    penalty.backward()
    expected = 0.0
    for name, weight in strategy.model.named_parameters():
        for f, now, before, slope in zip(
            *(tensor.flatten().tolist() for tensor in (importance[name], weight, anchor[name])),
            [0.0] * weight.numel() if weight.grad is None else weight.grad.flatten().tolist(),
            strict=True,
        ):
            expected += 150 * f * (now - before) ** 2
            assert slope == pytest.approx(300 * f * (now - before), rel=1e-9)
    assert expected > 1
    assert penalty.item() == pytest.approx(expected, rel=1e-9)


def test_penalty_is_part_of_the_training_loss() -> None:
    """An epoch trains on cross-entropy and penalty: its first step is SGD's on the sum of both."""
    source = class_stream([[0, 1], [2, 3]], images=16)
    strategy = build(source, "ewc", backbone="mlp", ewc_lambda=500, epochs=1, batch_size=100, clip_norm=1e9)
    learn(source, strategy, tasks=1)
    move(strategy.model)  # away from the anchor, where the penalty has a slope
    x, y = source.tasks[1].train.gather(torch.arange(len(source.tasks[1].train)))
    before = weights(strategy.model)
    module = strategy.model.task_module(1)
    loss = nn.functional.cross_entropy(strategy.model(x, 1), y) + strategy.penalty()
    slopes = torch.autograd.grad(loss, list(module.parameters()))
    assert strategy.penalty() > 0.01
    scenario = source.avalanche()
    strategy.train(scenario.train_stream[1])
    decay, rate = strategy.schedule.weight_decay, strategy.schedule.learning_rate
    names = {id(weight): name for name, weight in strategy.model.named_parameters()}
    for weight, slope in zip(module.parameters(), slopes, strict=True):
        start = before[names[id(weight)]]
        torch.testing.assert_close(weight.detach(), start - rate * (slope + decay * start), rtol=1e-5, atol=1e-6)


def test_evaluation_is_not_penalised() -> None:
    """Avalanche's loss in evaluation is the cross-entropy alone."""
    source = class_stream([[0, 1], [2, 3]], images=16)
    losses = []
    for ewc_lambda in (0, 1e9):
        strategy = build(source, "ewc", backbone="mlp")
        learn(source, strategy, tasks=1)
        strategy.ewc_lambda = ewc_lambda
        move(strategy.model)
        strategy.eval(source.avalanche().test_stream[:1])
        losses.append(float(strategy.loss))
    assert losses[0] == losses[1]


def test_penalised_validation_loss_selects() -> None:
    """The weights kept are those of the epoch whose validation loss with penalty is lowest, not the plain one."""
    source = permuted()
    strategy = build(source, "ewc", ewc_lambda=3000, lr_schedule="constant", **{**NARROW, "learning_rate": 0.4})
    scenario = source.avalanche()
    learn(source, strategy, tasks=1)
    strategy.experience = scenario.train_stream[1]
    strategy.adapted_dataset = strategy.experience.dataset
    strategy.make_train_dataloader()
    task = TaskData(1, source.tasks[1].train, source.tasks[1].valid)
    training = TrainingStage(strategy, task)
    x, y = task.valid.gather(torch.arange(len(task.valid)))
    plain, penalised, kept = [], [], []
    while training.epoch < training.epochs:
        training.advance()
        strategy.model.eval()
        with torch.no_grad():
            loss = float(nn.functional.cross_entropy(strategy.model(x, 1), y))
        now, memory = weights(strategy.model), strategy.consolidation
        moved = sum(float((memory.fisher[name] * (now[name] - memory.anchor[name]) ** 2).sum()) for name in now)
        plain.append(loss)
        penalised.append(loss + 1500 * moved)
        kept.append(now)
    training.result()
    chosen = int(np.argmin(penalised))
    assert chosen != int(np.argmin(plain))
    assert training.best.loss == pytest.approx(penalised[chosen], rel=1e-5)
    assert same(weights(strategy.model), kept[chosen])


# --- the Fisher information ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "sizes"), [(21, [8, 8, 5]), (17, [8, 8, 1]), (16, [8, 8]), (5, [5])])
def test_fisher_by_batch(number: int, sizes: list[int]) -> None:
    """Eight times the mean over batches of the squared gradient of the batch's mean loss, whatever the last's size."""
    strategy, data = ewc(), images(number, task=1)
    batches = seen_by(strategy.model)
    found = stage(strategy, data).run()
    chosen = [positions_of(batch, data) for batch in batches]
    assert [len(batch) for batch in chosen] == sizes
    order = [position for batch in chosen for position in batch]
    assert sorted(order) == list(range(number)) != order
    squares = [squared_gradients(strategy.model, data, batch) for batch in chosen]
    close(found, {name: 8 * sum(square[name] for square in squares) / len(sizes) for name in squares[0]})
    assert not found["heads.0.weight"].any() and bool((found["heads.1.weight"] > 0).any())


@pytest.mark.parametrize("numbers", [2**27, 7 * (16 * 5 + 5 + 5 * 5 + 5 + 1), 1], ids=["whole", "parts", "single"])
def test_fisher_by_image(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean over images of the squared gradient of each image's loss, in chunks of any size."""
    monkeypatch.setattr(fisher, "GRADIENT_NUMBERS", numbers)
    strategy, data = ewc(), images(21)
    found = stage(strategy, data, "per_sample").run()
    squares = [squared_gradients(strategy.model, data, [position]) for position in range(21)]
    close(found, {name: sum(square[name] for square in squares) / 21 for name in squares[0]})


def test_estimates_meet_at_batches_of_one() -> None:
    """Batches of a single image are images: both estimates are the same."""
    strategy, data = ewc(batch_size=1), images(13)
    close(stage(strategy, data).run(), stage(strategy, data, "per_sample").run())


@pytest.mark.parametrize(("estimator", "active"), [("batch", True), ("per_sample", False)])
def test_dropout(estimator: str, active: bool) -> None:
    """Dropout is on in the published code's estimate and off in the textbook's; modes are as before afterwards."""
    strategy = ewc(nn.Dropout(0.5), nn.BatchNorm1d(5))
    dropout, norm = strategy.model.backbone[3:]
    modes: list[tuple[bool, bool]] = []
    norm.register_forward_pre_hook(lambda *_: modes.append((dropout.training, norm.training)))
    for training in (False, True):
        strategy.model.train(training)
        norm.train(not training)
        stage(strategy, images(9), estimator).run()
        assert (strategy.model.training, dropout.training, norm.training) == (training, training, not training)
    assert set(modes) == {(active, False)}


@both
def test_fisher_pass_measures_only(estimator: str) -> None:
    """Weights, batch normalisation's statistics and gradients are as before; every image is passed once."""
    source = class_stream([[0, 1], [2, 3]], images=20, channels=3)
    strategy = learn(source, build(source, "ewc", backbone="resnet18", width=0.1, fisher=estimator))
    before = weights(strategy.model)
    moved = {name for name in before if name.endswith("running_mean") and before[name].any()}
    assert len(moved) == 20
    strategy.model.zero_grad()
    passed = stage(strategy, source.tasks[1].train, estimator)
    estimate = passed.run()
    assert same(weights(strategy.model), before)
    assert all(weight.grad is None for weight in strategy.model.parameters())
    assert passed.image_passes == len(source.tasks[1].train) == 30
    assert all(bool(torch.isfinite(tensor).all()) and bool((tensor >= 0).all()) for tensor in estimate.values())
    assert sum(bool(tensor.any()) for tensor in estimate.values()) == len(estimate) - 2


def test_layer_that_cannot_be_mapped() -> None:
    """The estimate by image says what to do where a layer does not allow it; the one by batch needs nothing."""
    strategy = ewc(Gate())
    with pytest.raises(RunError, match=r"gradients of single images .*") as error:
        stage(strategy, images(9), "per_sample").run()
    assert "fisher=batch" in str(error.value.remedy)
    assert any(tensor.any() for tensor in stage(strategy, images(9)).run().values())


@both
def test_state_of_the_stage(estimator: str) -> None:
    """Saved before its pass or after it, a stage goes on bit by bit; the state has tensors and plain values only."""
    expected = stage(ewc(nn.Dropout(0.5)), images(21), estimator).run()
    for epochs in (0, 1):
        first = stage(ewc(nn.Dropout(0.5)), images(21), estimator)
        for _ in range(epochs):
            first.advance()
        file = io.BytesIO()
        torch.save(first.state_dict(), file)
        file.seek(0)
        second = stage(ewc(nn.Dropout(0.5)), images(21), estimator)
        torch.manual_seed(99)
        second.load_state_dict(torch.load(file, weights_only=True))
        assert (second.epoch, second.image_passes) == (epochs, 21 * epochs)
        assert same(second.run(), expected)


# --- over the tasks -----------------------------------------------------------------------------------------------


def test_merging_over_three_tasks() -> None:
    """``F <- (F_new + t F) / (t + 1)`` is the mean of all so far; the anchor is the latest task's weights."""
    strategy = ewc()
    estimates = [{"heads.0.bias": torch.tensor([1.0, 3.0, 6.0]) * factor} for factor in (1, 4, 10)]
    for task, (estimate, merged) in enumerate(
        zip(estimates, ([1, 3, 6], [2.5, 7.5, 15], [5, 15, 30]), strict=True), start=1
    ):
        nn.init.constant_(strategy.model.heads[0].bias, task)
        strategy.consolidation.add(strategy.model, estimate)
        assert strategy.consolidation.fisher["heads.0.bias"].tolist() == pytest.approx(merged)
        assert strategy.consolidation.anchor["heads.0.bias"].tolist() == [task] * 3
    nn.init.constant_(strategy.model.heads[0].bias, 9)
    assert strategy.consolidation.anchor["heads.0.bias"].tolist() == [3] * 3


@both
def test_anchor_and_importance_of_a_stream(estimator: str) -> None:
    """After each task the anchor is that task's restored weights, and the importance is the mean of all estimates."""
    source = class_stream([[0, 1], [2, 3, 4], [5, 6]], images=16)
    strategy = build(source, "ewc", width=0.05, fisher=estimator, epochs=3)
    scenario = source.avalanche()
    total: dict[str, Tensor] = {}
    for task, experience in enumerate(scenario.train_stream):
        strategy.train(experience, eval_streams=[scenario.streams["valid"]])
        estimate = stage(strategy, source.tasks[task].train, estimator).run()
        total = {name: total.get(name, 0) + tensor for name, tensor in estimate.items()}
        consolidation = strategy.consolidation
        assert same(consolidation.anchor, weights(strategy.model))
        assert consolidation.tasks == task + 1
        for name, tensor in total.items():
            torch.testing.assert_close(consolidation.fisher[name], tensor / (task + 1))
    assert consolidation.fisher.keys() == dict(strategy.model.named_parameters()).keys()


def test_memory_between_tasks_can_be_kept() -> None:
    """Importance and anchor go through a file of tensors, and a strategy goes on from them bit by bit."""
    source = class_stream([[0, 1], [2, 3], [4, 5]], images=16)
    whole = learn(source, build(source, "ewc", width=0.05))
    first = learn(source, build(source, "ewc", width=0.05), tasks=2)
    file = io.BytesIO()
    torch.save([first.model.state_dict(), first.consolidation.state_dict()], file)
    file.seek(0)
    second = build(source, "ewc", width=0.05)
    state, consolidation = torch.load(file, weights_only=True)
    second.model.load_state_dict(state)
    second.consolidation.load_state_dict(consolidation, second.device)
    scenario = source.avalanche()
    second.train(scenario.train_stream[2], eval_streams=[scenario.streams["valid"]])
    assert same(weights(second.model), weights(whole.model))
    assert same(second.consolidation.fisher, whole.consolidation.fisher)


def test_without_penalty_it_is_naive() -> None:
    """``ewc_lambda = 0`` is naive fine-tuning bit by bit, dropout and all; any other is not, from the second task."""
    source = class_stream([[0, 1], [2, 3], [4, 5]], images=16)
    strategies = [build(source, "naive"), *(build(source, "ewc", ewc_lambda=value) for value in (0, 1e4))]
    scenario = source.avalanche()
    for task, experience in enumerate(scenario.train_stream):
        for strategy in strategies:
            strategy.train(experience, eval_streams=[scenario.streams["valid"]])
        naive, without, penalised = (weights(strategy.model) for strategy in strategies)
        assert same(naive, without)
        assert same(naive, penalised) == (task == 0)


@cache
def permuted() -> TaskStream:
    """Three tasks of five noisy prototypes of 6x6 pixels, the pixels in another order each time."""
    generator = np.random.default_rng(0)
    prototypes = generator.integers(0, 256, (5, 1, 6, 6))

    def split(number: int) -> RawSplit:
        labels = np.arange(number) % 5
        pixels = prototypes[labels] + generator.normal(0, 90, (number, 1, 6, 6))
        return RawSplit(np.clip(pixels, 0, 255).astype(np.uint8), labels.astype(np.int64))

    info = DatasetInfo("tiny", 1, 6, 6, 5, 150, 100, (30,) * 5, (20,) * 5)
    data = RawDataset(info, split(150), split(100))
    stream = {"kind": "permutation", "dataset": "tiny", "tasks": 3, "validation": 0.2}
    spec = benchmark({**stream, "input": {"mean": [0.5], "std": [0.25]}})
    return build_stream(spec, lambda _: data, ImageLimits(), 0)


@cache
def forgotten(strategy: str, seed: int, **options: Any) -> tuple[float, float]:
    """Mean loss of accuracy since each earlier task was learned, and mean accuracy, after the last task."""
    source = permuted()
    learner = build(source, strategy, seed=seed, **NARROW, **options)
    scenario = source.avalanche()
    just_learned = []
    for task, experience in enumerate(scenario.train_stream):
        learner.train(experience, eval_streams=[scenario.streams["valid"]])
        just_learned.append(accuracy_of(learner.model, source, task))
    last = [accuracy_of(learner.model, source, task) for task in range(3)]
    return sum(before - after for before, after in zip(just_learned[:2], last[:2], strict=True)) / 2, sum(last) / 3


@both
def test_forgets_less_than_naive(estimator: str) -> None:
    """With a penalty that suits the stream less than half is forgotten, and more is known at the end."""
    for seed in (0, 1):
        forgotten_by_naive, known_by_naive = forgotten("naive", seed)
        forgotten_by_ewc, known_by_ewc = forgotten("ewc", seed, ewc_lambda=1000, fisher=estimator)
        assert forgotten_by_naive > 0.15
        assert forgotten_by_ewc < forgotten_by_naive / 2
        assert known_by_ewc > known_by_naive + 0.05


# --- costs, records and benchmarks --------------------------------------------------------------------------------


@both
def test_passes_of_a_whole_run(estimator: str) -> None:
    """The estimate says what each stage passes forward, also where a single image is left over."""
    source = class_stream([[0, 1], [2, 3]], images=22)
    assert len(source.tasks[0].train) == 33
    seen: list[StageProgress] = []
    learn(source, build(source, "ewc", on_progress=seen.append, fisher=estimator, width=0.05))
    found = {(report.stage, report.task): report.image_passes for report in seen if report.done}
    options = {"epochs": 2, "batch_size": 16, "width": 0.05, "fisher": estimator}
    cost = registry().strategies.find("ewc").factory.cost(context(source.plan, "ewc", options))
    assert found == {(s.name, s.task): s.image_passes for s in cost.stages if s.name != "evaluation"}
    assert found["fisher", 1] == 33
    assert [(s.train, s.evaluate) for s in cost.stages if s.name == "fisher"] == [(33, 0)] * 2


def test_record(command: Command, tmp_path: Path) -> None:
    """A run's record has the stages, and the image passes that ``cost`` told."""
    asked = ("--strategy", "ewc", "--protocol", "smoke", "--limit", 20, "-o", "width=0.05")
    told = json.loads(command("cost", *asked, "--format", "json").out)
    record = seu_bench.run("ewc", protocol="smoke", limit=20, options={"width": 0.05}, results=tmp_path, device="cpu")
    assert record.status == "finished"
    names = [stage.name for stage in record.stages if stage.task == 0]
    assert names == ["training", "fisher", "evaluation"]
    assert record.metrics["image_passes"] == told["image_passes"]
    passed = sum(stage.image_passes for stage in record.stages if stage.name == "fisher")
    assert passed == told["stages"]["fisher"]["train"] == 100
    assert record.options["ewc_lambda"] == 20_000


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("split_cifar10", 12_978_314),
        ("split_cifar100", 13_162_724),
        ("pmnist", 9_491_556),
        ("mixture", 13_097_156),
    ],
)
def test_parameters_of_the_paper(command: Command, name: str, parameters: int) -> None:
    """The published sizes, which are those of naive fine-tuning; the Fisher pass sees each training image once."""
    answer = command("cost", "--strategy", "ewc", "--benchmark", name, "--protocol", "paper", "--format", "json")
    assert (answer.status, answer.err) == (0, "")
    document = json.loads(answer.out)
    assert document["params_total"] == document["params_total_min"] == [parameters] * len(document["tasks"])
    stages = document["stages"]
    assert 50 * stages["fisher"]["train"] == stages["training"]["train"] and stages["fisher"]["evaluate"] == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("split_cifar10", 50_000),
        ("split_cifar100", 20_000),
        ("pmnist", 20_000),
        ("mixture", 20_000),
        ("split_digits", 20_000),
    ],
)
def test_lambda_of_the_benchmarks(name: str, value: float) -> None:
    """The paper's strength of each benchmark, in every protocol; the user's wins."""
    for protocol in ("paper", "half_day", "quick", "smoke"):
        for options, expected in (({}, value), ({"ewc_lambda": 7}, 7)):
            chosen: Any = resolve(
                registry(), Request(strategy="ewc", benchmark=name, protocol=protocol, options=options)
            ).options
            assert (chosen.ewc_lambda, chosen.fisher) == (expected, "batch")


@pytest.mark.parametrize(("option", "said"), [("ewc_lambda=-1", "ewc_lambda"), ("fisher=exact", "fisher")])
def test_options_that_do_not_fit(command: Command, option: str, said: str) -> None:
    """A negative strength and an unknown estimate are refused."""
    answer = command("cost", "--strategy", "ewc", "-o", option)
    assert answer.status == 2
    assert said in answer.err
