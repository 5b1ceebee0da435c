"""Deep generative replay learns: what is replayed, by whom it is labelled, with which weight, and what it costs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from support.tiny import (
    all_threads,
    benchmark,
    build,
    class_stream,
    learn,
    one_thread,
    raw_dataset,
    task_of,
)
from torch import Tensor
from torch.nn.functional import cross_entropy

from seu_bench.config.protocol import ImageLimits
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.models import count_parameters, state_bytes
from seu_bench.testing.streams import class_split
from seu_bench.training import memory_of
from seu_bench.training.stage import TaskData
from seu_bench_methods.dgr import Dgr, GeneratorStage, ImageGenerator

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
def test_loss_of_every_batch(scenario: str) -> None:
    """``r L + (1 - r) L'`` with r = 1, 1/2, 1/3, in float64; labels are those of the solver that the task found."""
    source = stream(scenario)
    strategy: Dgr = dgr(source)
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
                images = strategy.model.generator.images(len(strategy.mb_y))
            torch.set_rng_state(after)
            known = in_double(solvers[task], images)
            assert known.shape[1] == (2 * task if scenario == "class" else 2)
            answers = in_double(strategy.model, images).log_softmax(dim=1)
            each = [-answer[label] for answer, label in zip(answers, known.argmax(dim=1), strict=True)]
            expected = expected / (task + 1) + task / (task + 1) * torch.stack(each).mean()
        assert found.item() == pytest.approx(expected.item(), rel=1e-4)
        return found

    strategy.criterion = watched  # type: ignore[method-assign]
    solvers: dict[int, Any] = {}
    for task in range(3):
        solvers[task] = copy.deepcopy(strategy.model.alone(task))
        learn_task(source, strategy, task)
    assert batches == [2 * 3] * 3  # 48 images


def test_memory_is_solver_and_generator() -> None:
    """Four bytes for each parameter, the encoder's among them, and for the ends of each channel's range."""
    source = stream()
    strategy: Dgr = learn(source, dgr(source), tasks=1)
    solver, numbers = strategy.model.alone(0), count_parameters(strategy.model.generator)
    taken = memory_of(strategy)
    assert taken is not None
    assert sum(taken.values()) == state_bytes(solver) + 4 * (numbers + 2)
    assert count_parameters(strategy.model) == count_parameters(solver) + numbers
    assert count_parameters(strategy.model.task_module(0)) == count_parameters(solver)


def made(shape: tuple[int, int, int] = (1, 8, 8)) -> ImageGenerator:
    torch.manual_seed(0)
    return ImageGenerator(shape, 5, 16)


# --- the autoencoder's loss --------------------------------------------------------------------------------------


def test_loss_against_distributions() -> None:
    """Bernoulli likelihood of each pixel and normal latents, as torch's own distributions have them."""
    model = ImageGenerator((1, 3, 4), 5, 7).double()
    pixels = torch.rand(6, 1, 3, 4, dtype=torch.float64)
    torch.manual_seed(1)
    losses = model.losses(pixels)
    torch.manual_seed(1)
    with torch.no_grad():
        features = model.encoder(pixels)
        latents = torch.distributions.Normal(model.mean(features), (model.log_variance(features) / 2).exp())
        standard = torch.distributions.Normal(torch.zeros((), dtype=torch.float64), 1.0)
        drawn = latents.mean + latents.stddev * torch.randn_like(latents.mean)
        chance = model.logits(drawn).sigmoid()
        likelihood = (pixels * chance.log() + (1 - pixels) * (1 - chance).log()).flatten(1).sum(dim=1)
        expected = torch.distributions.kl_divergence(latents, standard).sum(dim=1) - likelihood
    assert torch.allclose(losses, expected, rtol=1e-12)


@pytest.mark.parametrize("task", [0, 1, 2])
def test_shares_of_a_step(task: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """r times the loss of the task's images plus (1 - r) times that of as many replayed ones, r = 1, 1/2, 1/3."""
    source = stream()
    stage = GeneratorStage(dgr(source), TaskData(task, source.tasks[task].train, None))
    free = next(stage.generator.parameters())
    monkeypatch.setattr(stage.generator, "losses", lambda x: x.double().flatten(1).mean(dim=1) + 0.0 * free.sum())
    if stage.old is not None:
        monkeypatch.setattr(stage.old, "pixels", lambda count: torch.full((count, 1, 8, 8), 0.75))
    found, passes = stage.step(torch.full((4, 1, 8, 8), 0.25))
    share = 1 / (task + 1)
    assert float(found) == pytest.approx(0.25 * share + 0.75 * (1 - share), rel=1e-12)
    assert passes == (12 if task else 4)  # made, and passed with the task's own


# --- images ------------------------------------------------------------------------------------------------------


def test_range_of_images() -> None:
    """Each channel has that of the training images, whatever the random numbers; 0 and 1 are its ends."""
    images = task_of(class_stream([[0, 1]], channels=3))
    images.store[:, 1] = 7.0  # of no range
    model = made((3, 8, 8))
    model.fit_range(images)
    pixels = images.gather(torch.arange(len(images)))[0]
    low, high = pixels.amin(dim=(0, 2, 3)), pixels.amax(dim=(0, 2, 3))
    assert torch.equal(model.low.flatten(), low) and torch.equal(model.high.flatten(), high)
    scaled = model.to_unit_range(pixels)
    assert scaled.amin(dim=(0, 2, 3)).tolist() == [0.0] * 3
    assert scaled.amax(dim=(0, 2, 3)).tolist() == pytest.approx([1.0, 0.0, 1.0])
    assert (
        float(model.to_unit_range(pixels + 100).max()) == 1.0 and float(model.to_unit_range(pixels - 100).min()) == 0.0
    )
    drawn = model.images(50).detach()
    assert bool((drawn >= low[:, None, None] - 1e-5).all()) and bool((drawn <= high[:, None, None] + 1e-5).all())


def test_size_of_the_autoencoder() -> None:
    """By closed form, for pixels p, hidden units h and z latents."""
    pixels, hidden, latent = 3 * 9 * 7, 16, 5
    encoder = pixels * hidden + hidden + hidden * hidden + hidden + 2 * (hidden * latent + latent)
    decoder = latent * hidden + hidden + hidden * hidden + hidden + hidden * pixels + pixels
    assert count_parameters(made((3, 9, 7))) == encoder + decoder
