"""Deep generative replay learns: what is replayed, by whom it is labelled, with which weight, and what it costs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from support.tiny import accuracy_of, all_threads, benchmark, build, learn, logits_of, one_thread, raw_dataset, same
from torch import Tensor
from torch.nn.functional import cross_entropy

from seu_bench.config.protocol import ImageLimits
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.models import count_parameters, state_bytes
from seu_bench.testing import Trial
from seu_bench.testing.streams import class_split, poison
from seu_bench.testing.trial import from_file
from seu_bench.training import memory_of
from seu_bench_methods.dgr import Dgr

setup_module, teardown_module = one_thread, all_threads

QUICK: dict[str, Any] = {
    "backbone": "mlp",
    "width": 0.05,
    "generator_width": 400,
    "latent": 6,
    "epochs": 2,
    "batch_size": 16,
    "generator_iterations": 8,
}


def stream(scenario: str = "class", tasks: int = 3, images: int = 32) -> TaskStream:
    groups = [[2 * task, 2 * task + 1] for task in range(tasks)]
    data = raw_dataset([images] * 2 * tasks, [12] * 2 * tasks)
    spec = benchmark({**class_split(groups), "scenario": scenario})
    return build_stream(spec, lambda _: data, ImageLimits(), 0)


def dgr(source: TaskStream, strategy: str = "dgr", **options: Any) -> Any:
    return build(source, strategy, **{**QUICK, "benchmark__stream__scenario": source.plan.scenario, **options})


def learn_task(source: TaskStream, strategy: Any, task: int) -> None:
    scenario = source.avalanche()
    strategy.train(scenario.train_stream[task], eval_streams=[scenario.streams["valid"]])


def in_double(model: Any, images: Tensor) -> Tensor:
    """Logits in float64."""
    logits: Tensor = copy.deepcopy(model).double().forward_single_task(images.double(), 0).detach()
    return logits


# --- the solver --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["class", "domain"])
@pytest.mark.parametrize(("targets", "replay_batch"), [("hard", None), ("soft", 5)])
def test_loss_of_every_batch(scenario: str, targets: str, replay_batch: int | None) -> None:
    """``r L + (1 - r) L'`` with r = 1, 1/2, 1/3, in float64; labels are those of the solver that the task found."""
    source = stream(scenario)
    more = {} if replay_batch is None else {"replay_batch": replay_batch}
    strategy: Dgr = dgr(source, targets=targets, **more)
    loss_of_batch, batches = strategy.criterion, [0, 0, 0]

    def watched() -> Tensor:
        if not strategy.is_training:
            return loss_of_batch()
        task = strategy.learned
        batches[task] += 1
        before = torch.get_rng_state()
        found = loss_of_batch()
        after = torch.get_rng_state()
        expected = cross_entropy(in_double(strategy.model, strategy.mb_x), strategy.mb_y)
        if task:
            torch.set_rng_state(before)
            with torch.no_grad():
                images = strategy.model.generator.images(replay_batch or len(strategy.mb_y))
            torch.set_rng_state(after)
            known = in_double(solvers[task], images)
            assert known.shape[1] == (2 * task if scenario == "class" else 2)
            answers = in_double(strategy.model, images).log_softmax(dim=1)
            if targets == "hard":
                each = [-answer[label] for answer, label in zip(answers, known.argmax(dim=1), strict=True)]
            else:
                each = list(-(known.softmax(dim=1) * answers[:, : known.shape[1]]).sum(dim=1))
            expected = expected / (task + 1) + task / (task + 1) * torch.stack(each).mean()
        assert found.item() == pytest.approx(expected.item(), rel=1e-4)
        return found

    strategy.criterion = watched  # type: ignore[method-assign]
    solvers: dict[int, Any] = {}
    for task in range(3):
        solvers[task] = copy.deepcopy(strategy.model.alone(task))
        learn_task(source, strategy, task)
    assert batches == [2 * 3] * 3  # 48 images


def test_labels_are_the_old_solvers() -> None:
    """Throughout the training the labelling solver is the one that the task found, and knows no class of the task."""
    source = stream()
    strategy: Dgr = dgr(source, epochs=6, learning_rate=0.3)
    learn(source, strategy, tasks=1)
    before = copy.deepcopy(strategy.model.alone(0).state_dict())
    found: list[Any] = []
    strategy.pause = lambda _: found.append(copy.deepcopy(strategy.solver))
    learn_task(source, strategy, 1)
    assert len([old for old in found if old is not None]) == 6
    for old in found[:6]:
        assert same(old.state_dict(), before) and not old.training
        assert not any(parameter.requires_grad for parameter in old.parameters())
        assert old.forward_single_task(torch.rand(3, 1, 8, 8), 0).shape == (3, 2)
    assert not same(strategy.model.alone(1).state_dict(), before)
    assert strategy.solver is None


def test_first_task_is_naive() -> None:
    """The same weights, bit by bit, as plain fine-tuning that keeps the last ones."""
    source = stream()
    mine = learn(source, dgr(source), tasks=1).model.alone(0)
    plain = {key: QUICK[key] for key in ("backbone", "width", "epochs", "batch_size")}
    scenario = {"benchmark__stream__scenario": "class"}
    theirs = learn(source, build(source, "naive", **plain, **scenario, restore="last"), tasks=1).model
    assert same(mine.state_dict(), theirs.state_dict())


# --- the generator -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("generator", ["vae", "wgan_gp"])
def test_sources_of_every_step(generator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task's images and those of the generator that the task found, which stays as it was; by the tasks' shares."""
    source = stream()
    strategy: Dgr = dgr(source, generator=generator, critic_steps=1, replay_batch=5)
    steps: list[tuple[int, float, Any]] = []
    taken = strategy.model.generator.step

    def watched(optimizers: Any, real: Any, replayed: Any, share: float) -> tuple[Tensor, int]:
        batch, state = real(), torch.get_rng_state()
        assert batch.shape == (16, 1, 8, 8) and float(batch.min()) >= 0 and float(batch.max()) <= 1
        pixels = None
        if replayed is not None:
            pixels = replayed(len(batch))
            torch.set_rng_state(state)
            assert torch.equal(pixels, old[0].pixels(5)) and not pixels.requires_grad
        steps.append((strategy.learned, share, pixels))
        return taken(optimizers, real, replayed, share)

    monkeypatch.setattr(strategy.model.generator, "step", watched)
    old: list[Any] = []
    for task in range(3):
        old[:] = [copy.deepcopy(strategy.model.generator)]
        learn_task(source, strategy, task)
        assert not same(old[0].state_dict(), strategy.model.generator.state_dict())
    assert [(task, share) for task, share, _ in steps] == [
        (task, 1 / (task + 1)) for task in range(3) for _ in range(8)
    ]
    assert [pixels is None for *_, pixels in steps] == [True] * 8 + [False] * 16


def test_range_is_the_first_tasks() -> None:
    """Read once; later tasks, which are brighter here, leave it."""
    source = stream()
    strategy: Dgr = learn(source, dgr(source), tasks=1)
    images = source.tasks[0].train.gather(torch.arange(48))[0]
    ends = [float(strategy.model.generator.low), float(strategy.model.generator.high)]
    assert ends == [float(images.min()), float(images.max())]
    learn_task(source, strategy, 1)
    assert ends == [float(strategy.model.generator.low), float(strategy.model.generator.high)]


# --- what is kept, and what is not -------------------------------------------------------------------------------


def test_no_image_of_an_earlier_task_is_read() -> None:
    """They may be NaN as soon as their task is over: not a bit changes."""
    found = []
    for poisoned in (False, True):
        source = stream()
        strategy: Dgr = dgr(source)
        for task in range(3):
            learn_task(source, strategy, task)
            for images in (source.tasks[task].train, source.tasks[task].valid) if poisoned else ():
                poison(images)
        found.append({name: tensor.clone() for name, tensor in strategy.model.state_dict().items()})
        assert strategy.get_extra_state() == {"solver": None}
    assert same(*found)


@pytest.mark.parametrize("generator", ["vae", "wgan_gp"])
def test_memory_is_solver_and_generator(generator: str) -> None:
    """Four bytes for each parameter, encoder and critic among them, and for the ends of each channel's range."""
    source = stream()
    strategy: Dgr = learn(source, dgr(source, generator=generator, critic_steps=1), tasks=1)
    solver, numbers = strategy.model.alone(0), count_parameters(strategy.model.generator)
    taken = memory_of(strategy)
    assert taken is not None
    assert sum(taken.values()) == state_bytes(solver) + 4 * (numbers + 2)
    assert count_parameters(strategy.model) == count_parameters(solver) + numbers
    assert count_parameters(strategy.model.task_module(0)) == count_parameters(solver)


def test_alone_is_the_solver() -> None:
    """What is exported answers alike and has no part of the generator."""
    source = stream()
    strategy: Dgr = learn(source, dgr(source))
    solver = strategy.model.alone(1)
    assert torch.equal(logits_of(solver, source, 1), logits_of(strategy.model, source, 1))
    assert not any("generator" in name for name in solver.state_dict())
    assert solver.task_module(0) is not None and len(solver.heads) == 1


# --- resuming and cost -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("generator", ["vae", "wgan_gp"])
@pytest.mark.long
def test_resumes_between_any_two_epochs(generator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From each state in the second task, of both stages, to the same weights, bit by bit."""
    monkeypatch.setattr("seu_bench_methods.dgr.STEPS", 3)
    source = stream(tasks=2)
    options = {"generator": generator, "critic_steps": 2, "targets": "soft"}
    whole: Dgr = learn(source, dgr(source, **options), tasks=1)
    places: list[tuple[str, Any]] = []
    whole.pause = lambda stage: places.append((stage.name, from_file(whole.state_dict())))
    learn_task(source, whole, 1)
    assert [name for name, _ in places] == ["training"] * 2 + ["generator"] * 3
    for name, state in places:
        again: Dgr = dgr(source, **options)
        again.load_state_dict(state)
        learn_task(source, again, 1)
        assert same(whole.model.state_dict(), again.model.state_dict()), name


@pytest.mark.parametrize(
    "options",
    [
        {"generator": "wgan_gp", "critic_steps": 2, "generator_width": 32},
        {"generator": "wgan_gp", "critic_steps": 1, "replay_batch": 3, "generator_width": 16},
        {"replay_batch": 5, "targets": "soft", "generator_width": 80, "backbone": "alexnet"},
    ],
    ids=["wgan", "wgan few", "vae few"],
)
@pytest.mark.long
def test_cost_is_what_it_takes(options: dict[str, Any], tmp_path: Any) -> None:
    """Image passes and operations of each stage, with batches that are not full."""
    trial = Trial("dgr", {**QUICK, **options, "batch_size": 8}, scenario="class")
    learner = trial.learner("tiny_three")
    forecast = [(it.name, it.task, it.image_passes, it.flops) for it in learner.cost.stages if it.name != "evaluation"]
    record = trial.record("tiny_three", tmp_path)
    took = [(it.name, it.task, it.image_passes, it.flops) for it in record.stages if it.name != "evaluation"]
    assert took == forecast and len(took) == 6
    assert record.memory_bytes[-1] == learner.cost.memory_bytes[-1]


@pytest.mark.long
def test_forgets_less_than_naive() -> None:
    """Textures of two tasks, of which plain fine-tuning knows only the last."""
    source = stream(tasks=2, images=48)
    options = {"epochs": 8, "learning_rate": 0.1, "width": 0.1}
    mine = learn(source, dgr(source, **options, generator_iterations=400, generator_learning_rate=0.003))
    naive = learn(source, build(source, "naive", backbone="mlp", benchmark__stream__scenario="class", **options))
    assert accuracy_of(naive.model, source, 0) <= 0.5
    assert accuracy_of(mine.model, source, 0) >= 0.8
    assert accuracy_of(mine.model, source, 1) >= 0.8
