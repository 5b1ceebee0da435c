"""Elastic weight consolidation: the penalty, tasks in turn, costs, records and options."""

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
from support.plugins.ewc import both, ewc, stage
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
from seu_bench.config.protocol import ImageLimits
from seu_bench.config.run import Request
from seu_bench.data.dataset import DatasetInfo, RawDataset, RawSplit
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.engine.resolve import resolve
from seu_bench.training.stage import StageProgress, TaskData
from seu_bench.training.strategy import TrainingStage

setup_module, teardown_module = one_thread, all_threads


#: A network that forgets :func:`permuted` tasks, learned in no time.
NARROW: dict[str, Any] = {"backbone": "mlp", "width": 0.04, "epochs": 6, "batch_size": 24, "learning_rate": 0.2}


def move(model: nn.Module) -> None:
    """Move every weight a little."""
    generator = torch.Generator().manual_seed(5)
    for weight in model.parameters():
        weight.data += 0.05 * torch.randn(weight.shape, generator=generator)


# --- the penalty ------------------------------------------------------------------------------------------------------


def test_penalty_and_gradient() -> None:
    """``lambda/2 * sum_i F_i (theta_i - theta*_i)^2`` and ``lambda F_i (theta_i - theta*_i)``, number by number."""
    strategy = ewc(ewc_lambda=300.0)
    assert strategy.penalty() is None
    importance = {name: torch.rand_like(weight) for name, weight in strategy.model.named_parameters()}
    anchor = {name: weight.detach().clone() for name, weight in strategy.model.named_parameters()}
    strategy.fisher, strategy.anchor = importance, anchor
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
        strategy.options = strategy.options.model_copy(update={"ewc_lambda": ewc_lambda})
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
        now, held, anchor = weights(strategy.model), strategy.fisher, strategy.anchor
        moved = sum(float((held[name] * (now[name] - anchor[name]) ** 2).sum()) for name in now)
        plain.append(loss)
        penalised.append(loss + 1500 * moved)
        kept.append(now)
    training.result()
    chosen = int(np.argmin(penalised))
    assert chosen != int(np.argmin(plain))
    assert training.best.loss == pytest.approx(penalised[chosen], rel=1e-5)
    assert same(weights(strategy.model), kept[chosen])


# --- over the tasks ---------------------------------------------------------------------------------------------------


def test_merging_over_three_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """``F <- (F_new + t F) / (t + 1)`` is the mean of all so far; the anchor is the latest task's weights."""
    strategy = ewc()
    bias = strategy.model.heads[0].bias
    for task, (factor, merged) in enumerate(zip((1, 4, 10), ([1, 3, 6], [2.5, 7.5, 15], [5, 15, 30]), strict=True)):
        nn.init.constant_(bias, task)
        estimate = {"heads.0.bias": torch.tensor([1.0, 3.0, 6.0]) * factor}
        monkeypatch.setattr(strategy, "by_batch", lambda *_, found=estimate: found)
        strategy.after_task(TaskData(task, None, None))  # type: ignore[arg-type]
        assert strategy.fisher["heads.0.bias"].tolist() == merged
        assert strategy.anchor["heads.0.bias"].tolist() == [task] * 3
    nn.init.constant_(bias, 9)
    assert strategy.anchor["heads.0.bias"].tolist() == [2] * 3


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
        assert same(strategy.anchor, weights(strategy.model))
        for name, tensor in total.items():
            torch.testing.assert_close(strategy.fisher[name], tensor / (task + 1))
    assert strategy.fisher.keys() == dict(strategy.model.named_parameters()).keys()


def test_memory_between_tasks_can_be_kept() -> None:
    """Importance and anchor go through a file of tensors, and a strategy goes on from them bit by bit."""
    source = class_stream([[0, 1], [2, 3], [4, 5]], images=16)
    whole = learn(source, build(source, "ewc", width=0.05))
    first = learn(source, build(source, "ewc", width=0.05), tasks=2)
    file = io.BytesIO()
    torch.save([first.model.state_dict(), first.get_extra_state()], file)
    file.seek(0)
    second = build(source, "ewc", width=0.05)
    state, own = torch.load(file, weights_only=True)
    second.model.load_state_dict(state)
    second.set_extra_state(own)
    scenario = source.avalanche()
    second.train(scenario.train_stream[2], eval_streams=[scenario.streams["valid"]])
    assert same(weights(second.model), weights(whole.model))
    assert same(second.fisher, whole.fisher)


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


# --- costs, records and benchmarks ------------------------------------------------------------------------------------


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
    """The paper's strength of each benchmark where nothing was tuned for a protocol, which for `half_day` is that of
    `quick` where there is one; the user's wins."""
    quick = resolve(registry(), Request(strategy="ewc", benchmark=name, protocol="quick")).tuned
    for protocol in ("paper", "half_day", "quick", "smoke"):
        for options in ({}, {"ewc_lambda": 7}):
            run = resolve(registry(), Request(strategy="ewc", benchmark=name, protocol=protocol, options=options))
            chosen: Any = run.options
            source = quick if protocol == "half_day" else run.tuned
            tuned = value if source is None else source.options["ewc_lambda"]
            assert (chosen.ewc_lambda, chosen.fisher) == (options.get("ewc_lambda", tuned), "batch")
            assert run.tuned is None or protocol != "paper"


@pytest.mark.parametrize(("option", "said"), [("ewc_lambda=-1", "ewc_lambda"), ("fisher=exact", "fisher")])
def test_options_that_do_not_fit(command: Command, option: str, said: str) -> None:
    """A negative strength and an unknown estimate are refused."""
    answer = command("cost", "--strategy", "ewc", "-o", option)
    assert answer.status == 2
    assert said in answer.err
