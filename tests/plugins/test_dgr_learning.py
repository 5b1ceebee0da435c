"""Deep generative replay learns: what is replayed, by whom it is labelled, with which weight, and what it costs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from support.tiny import all_threads, benchmark, build, learn, one_thread, raw_dataset, same
from torch import Tensor
from torch.nn.functional import cross_entropy

from seu_bench.config.protocol import ImageLimits
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.models import count_parameters, state_bytes
from seu_bench.testing.streams import class_split
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


# --- what is kept, and what is not -------------------------------------------------------------------------------


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


# --- resuming and cost -------------------------------------------------------------------------------------------
