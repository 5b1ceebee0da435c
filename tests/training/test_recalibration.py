"""BatchNorm's statistics of a sample: estimated anew, of its own layers alone, with the passes that are announced."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.tiny import CPU, all_threads, one_thread, same, weights
from torch import Tensor, nn

from seu_bench.config.common_options import ScoringOptions
from seu_bench.config.protocol import Schedule, SearchSchedule
from seu_bench.data.images import TaskImages
from seu_bench.training.loops import Forward
from seu_bench_kit import recalibration_passes, schedule_passes
from seu_bench_kit.sampling import SampledStage, recalibrate

setup_module, teardown_module = one_thread, all_threads

SCHEDULE = Schedule(epochs=3, batch_size=10, learning_rate=1e-6, clip_norm=None)


def task_images(count: int = 80) -> TaskImages:
    """One pixel, whose value is 100 or 102: the classes are told apart by what is left without the mean."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (count,), generator=generator)
    store = (100 + 2.0 * labels).reshape(count, 1, 1, 1)
    return TaskImages(store=store, rows=torch.arange(count), labels=labels, task=0, channels=1)


class Branches(nn.Module):
    """Two branches, of which a sample uses one: BatchNorm, then a head whose weights solve the task exactly."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(1, affine=False) for _ in range(2))
        self.head = nn.Linear(1, 2)
        with torch.no_grad():
            self.head.weight.copy_(torch.tensor([[-1.0], [1.0]]))
            self.head.bias.zero_()

    def forward(self, x: Tensor, branch: int) -> Tensor:
        logits: Tensor = self.head(self.norms[branch](x).flatten(1))
        return logits


class Known(SampledStage[int, list[float]]):
    """Samples branch 0 alone, and keeps the rewards."""

    def __init__(self, recalibration_images: int, images: TaskImages | None = None) -> None:
        super().__init__("search", 0, SCHEDULE, images or task_images(), 3, CPU, recalibration_images)
        self.network = Branches()
        self.rewards: list[float] = []
        self.prepare(self.network)

    def sample(self) -> int:
        return 0

    def forward_of(self, sampled: int) -> Forward:
        return lambda x: self.network(x, sampled)

    def set_mode(self, training: bool) -> None:
        self.network.train(training)

    def learn(self, sampled: int, accuracy: float, loss: float) -> None:
        self.rewards.append(accuracy)

    def result(self) -> list[float]:
        return self.rewards

    def get_extra_state(self) -> dict[str, Any]:
        return {**super().get_extra_state(), "rewards": list(self.rewards)}

    def set_extra_state(self, state: Any) -> None:
        super().set_extra_state(state)
        self.rewards = list(state["rewards"])


def test_a_network_that_knows_is_scored_as_one_that_knows() -> None:
    """Its weights are perfect. With the statistics of four batches everything looks as if it were of one class, and
    the reward is that class's share; with its own it makes no mistake."""
    guesses, found = Known(0).run(), Known(1024).run()
    share = float((task_images().halves()[1].labels == 1).double().mean())
    assert guesses[0] == share < 0.6
    assert found == [1.0] * 3


def test_statistics_are_the_means_over_whole_batches() -> None:
    """Mean and unbiased variance of each batch have the same weight; momentum, mode and the weights are as before."""
    network, images, seen = Branches().eval(), task_images(37), list[int]()
    before = {name: value for name, value in weights(network).items() if name.startswith("head")}
    with torch.no_grad():
        for norm in network.norms:
            norm.running_mean.fill_(7.0)
            norm.running_var.fill_(9.0)
    left = weights(network.norms[1])
    recalibrate(network, lambda x: network(x, 0), images, 1024, 10, seen.append)
    assert seen == [10, 10, 10]
    batches = images.gather(torch.arange(30))[0].reshape(3, 10)
    assert network.norms[0].running_mean.item() == pytest.approx(batches.mean(dim=1).mean().item(), rel=1e-6)
    assert network.norms[0].running_var.item() == pytest.approx(batches.var(dim=1).mean().item(), rel=1e-5)
    # The branch that the sample does not use is as it was.
    assert same(weights(network.norms[1]), left)
    assert all(not norm.training and norm.momentum == 0.1 for norm in network.norms)
    assert same({name: value for name, value in weights(network).items() if name.startswith("head")}, before)


@pytest.mark.parametrize(
    ("limit", "images", "batch", "expected"),
    [(1024, 0, 8, 0), (1024, 1, 8, 1), (1024, 8, 8, 8), (1024, 15, 8, 8), (1024, 5000, 96, 960), (0, 50, 8, 0)],
)
def test_passes(limit: int, images: int, batch: int, expected: int) -> None:
    """Whole batches, or all images where they are fewer; a component announces them once per epoch."""
    assert recalibration_passes(limit, images, batch) == expected
    schedule = SearchSchedule(epochs=7, batch_size=batch)
    options = ScoringOptions(recalibration_images=limit)
    assert schedule_passes(options, schedule, 2 * images) == (7 * images, 7 * (images + expected))
