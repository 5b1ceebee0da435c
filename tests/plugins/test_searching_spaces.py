"""Searchers on spaces other than the paper's: what they find, what they cannot search, and what they do without."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from support.components import SCHEDULE, search_task
from support.tiny import all_threads, one_thread, registry
from torch import Tensor, nn

from seu_bench.config.options import build_options
from seu_bench.data import InputShape
from seu_bench.errors import RequestError, RunError
from seu_bench.testing.streams import stream_of
from seu_bench_kit.contracts import component_trial, stage_of
from seu_bench_kit.contracts import search_task as task_of
from seu_bench_kit.dense import DenseSpace
from seu_bench_kit.mbconv import MBConvSpace
from seu_bench_kit.networks import GenotypeNetwork
from seu_bench_kit.search_space import ChoiceSpace, SearchSpace
from seu_bench_zero_cost.searcher import naswot, synflow

setup_module, teardown_module = one_thread, all_threads
SEARCHERS = ("mdl", "darts", "blockwise", "evolution", "inherit", "random", "zero_cost")
SPACES: tuple[ChoiceSpace, ...] = (MBConvSpace(), DenseSpace())


class NoProxy(DenseSpace):
    """Units alone."""

    def proxy(self, place: Any) -> nn.Module:
        return SearchSpace.proxy(self, place)


@pytest.mark.parametrize("searcher", SEARCHERS)
def test_space_without_a_proxy(searcher: str) -> None:
    """Those that train shared weights refuse it and name those that do not, which find a genotype."""
    trial = component_trial("searcher", searcher, {})
    task = task_of(stream_of("tiny_features"), space=NoProxy())
    if searcher in ("inherit", "random", "zero_cost"):
        assert task.space.fault(stage_of(trial, task).run()) is None
        return
    with pytest.raises(RunError, match="NoProxy has no proxy network") as raised:
        stage_of(trial, task)
    assert raised.value.remedy == "choose a searcher that needs none: --searcher random, or --searcher zero_cost"


def test_all_searchers_are_tried() -> None:
    """On the space without a proxy."""
    assert set(SEARCHERS) == set(registry().searchers)


def right_choices(searcher: str, space: ChoiceSpace, seed: int, epochs: int = 60) -> float:
    """The share of a planted architecture's choices that a search finds whose scores are the shares of each epoch's,
    with noise; no network is trained."""
    factory, drawing = registry().searchers.find(searcher).factory, random.Random(seed)
    planted = [drawing.randrange(size) for size in space.choices]

    def share(choices: Any) -> float:
        return sum(map(int.__eq__, choices, planted)) / len(planted)

    stage: Any = factory.build(build_options(factory.options, searcher, {"epochs": epochs}), search_task(seed, space))
    with stage.randomness.active():
        for stage.epoch in range(epochs):
            sampled = stage.sample()
            stage.learn(sampled, 0.3 + 0.5 * share(sampled) + drawing.gauss(0, 0.02), 0.0)
        return share(space.encode(stage.result()))


@pytest.mark.parametrize("space", SPACES, ids=["mbconv", "dense"])
@pytest.mark.parametrize(("searcher", "most"), [("mdl", 0), ("blockwise", 6), ("evolution", 11)])
def test_finds_what_is_planted(searcher: str, most: int, space: ChoiceSpace) -> None:
    """More of it than a random draw has, on average, and the whole of it ``most`` times of 12 at least, which a random
    draw finds once in 144 or in 9."""
    shares = [right_choices(searcher, space, seed) for seed in range(12)]
    at_random = sum(1 / size for size in space.choices) / len(space.choices)
    assert sum(shares) / 12 > at_random + 0.05
    assert shares.count(1.0) >= most


# --- scores without training ------------------------------------------------------------------------------------------


def network(space: ChoiceSpace, input: InputShape, **chosen: Any) -> GenotypeNetwork:
    torch.manual_seed(0)
    return GenotypeNetwork(
        space.from_dict(space.decode([0] * len(space.decisions)).to_dict() | chosen), input, 3, 3, 2, space
    )


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
def test_naswot_reads_every_activation(activation: str) -> None:
    """The determinant of agreements, counted in a loop over the signs of what each linear layer gives."""
    made, images = (
        network(DenseSpace(), InputShape("features", (6,)), activation=activation, width=1.0),
        torch.randn(5, 6),
    )
    values: list[Tensor] = []
    for unit in made.cells:
        unit.norm.register_forward_hook(lambda _module, _inputs, output: values.append(output.detach()))
    score = naswot(made, images)
    codes = [[bool(value > 0) for layer in values for value in layer[at]] for at in range(5)]
    kernel = torch.tensor([[sum(map(bool.__eq__, one, other)) for other in codes] for one in codes]).double()
    assert math.isfinite(score) and score == pytest.approx(float(torch.linalg.slogdet(kernel)[1]), rel=1e-12)


def test_naswot_refuses_what_it_cannot_see() -> None:
    """A network without such modules would give each genotype the same score."""
    with pytest.raises(RequestError, match="NASWOT sees no unit"):
        naswot(nn.Linear(3, 2), torch.randn(4, 3))


def test_synflow_does_not_saturate() -> None:
    """On positive signals ReLU is the identity, and so are the others: all have one score, and no hook stays."""
    features, space = InputShape("features", (64,)), DenseSpace()
    made = [network(space, features, activation=name) for name in ("relu", "tanh", "gelu")]
    scores = [synflow(it, (64,)) for it in made]
    assert scores[0] == scores[1] == scores[2]
    assert not any(module._forward_hooks for it in made for module in it.modules())


@pytest.mark.parametrize("score", ["both", "synflow"])
def test_synflow_refuses_tokens(score: str) -> None:
    """By name of the option that helps."""
    trial = component_trial("searcher", "zero_cost", {"score": score})
    with pytest.raises(RunError, match="no token is one") as raised:
        stage_of(trial, task_of(stream_of("tiny_tokens"), space=DenseSpace()))
    assert raised.value.remedy == "give -o searcher.score=naswot"


# --- statistics -------------------------------------------------------------------------------------------------------


class Unnormalised(DenseSpace):
    """Linear layers without BatchNorm."""

    def proxy(self, place: Any) -> Any:
        made = super().proxy(place)
        made.norm = nn.Identity()
        return made


@pytest.mark.parametrize("searcher", ["mdl", "darts", "blockwise", "evolution"])
@pytest.mark.parametrize(("stream", "space"), [("tiny_two", MBConvSpace()), ("tiny_features", Unnormalised())])
def test_recalibrates_where_there_is_batch_norm(searcher: str, stream: str, space: ChoiceSpace) -> None:
    """No image is passed for statistics that a network has not."""
    passes = {}
    for images in (0, 1024):
        trial = component_trial("searcher", searcher, {"recalibration_images": images})
        task = replace(task_of(stream_of(stream), space=space), schedule=SCHEDULE)
        stage = stage_of(trial, task)
        stage.run()
        passes[images] = stage.image_passes
    first = len(task.images) // 2
    assert passes[1024] - passes[0] == (SCHEDULE.epochs * first if isinstance(space, MBConvSpace) else 0)
