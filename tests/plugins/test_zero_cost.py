"""Scores at initialisation are what their formulas say, computed anew, and the best of those drawn is taken."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny import CPU, all_threads, class_stream, one_thread, same, weights
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from seu_bench.config.protocol import SearchSchedule
from seu_bench.errors import RunError
from seu_bench.models.cells import GenotypeNetwork
from seu_bench.search_space import GENOTYPES, Genotype, SearchSpace, uniform_genotype
from seu_bench.training.interfaces import SearchTask
from seu_bench.training.sampling import genotype_network
from seu_bench_zero_cost import ZeroCostOptions, estimate_passes, searcher
from seu_bench_zero_cost.scores import naswot, synflow
from seu_bench_zero_cost.searcher import ZeroCostSearch, ranked
from tests.training.test_stage import disturb

setup_module, teardown_module = one_thread, all_threads

STREAM = class_stream([[0, 1], [2, 3]], images=11)
IMAGES = STREAM.tasks[1].train
SCHEDULE = SearchSchedule(epochs=2, batch_size=8, cells=3, channels=2)
SHAPE = (1, 8, 8)


def search(seed: int = 3, space: SearchSpace | None = None, **options: Any) -> ZeroCostSearch:
    given = ZeroCostOptions(**{"candidates": 5, "images": 6, **options})
    task = SearchTask(IMAGES, 1, 2, space or SearchSpace(), SCHEDULE, seed, CPU)
    stage = ZeroCostSearch(given, task)
    assert isinstance(stage, ZeroCostSearch)
    return stage


def batch(count: int = 4, seed: int = 1) -> Tensor:
    return torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(seed))


def sequential(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 3))


def unit_network(name: str, seed: int = 0) -> GenotypeNetwork:
    torch.manual_seed(seed)
    return GenotypeNetwork(GENOTYPES[name], 1, 3, 3, 2, SearchSpace())


class Outputs(TorchFunctionMode):
    """Keeps what every call of ReLU gives, wherever it is made: no hooks, no list of modules."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = func(*args, **(kwargs or {}))
        if func is nn.functional.relu:
            self.kept.append(given.detach().clone())
        return given


def determinant(matrix: list[list[int]]) -> int:
    """Of whole numbers, exactly (Bareiss)."""
    rows, sign, before = [list(row) for row in matrix], 1, 1
    for at in range(len(rows) - 1):
        pivot = next((row for row in range(at, len(rows)) if rows[row][at]), None)
        if pivot is None:
            return 0
        if pivot != at:
            rows[at], rows[pivot], sign = rows[pivot], rows[at], -sign
        for row in range(at + 1, len(rows)):
            for column in range(at + 1, len(rows)):
                product = rows[row][column] * rows[at][at] - rows[row][at] * rows[at][column]
                rows[row][column] = product // before
        before = rows[at][at]
    return sign * rows[-1][-1]


def naswot_directly(outputs: Iterable[Tensor]) -> float:
    """By explicit loops over pairs of images, the determinant in whole numbers."""
    parts = [output.reshape(len(output), -1).tolist() for output in outputs]
    codes = [[value > 0 for part in parts for value in part[image]] for image in range(len(parts[0]))]
    kernel = [[sum(a == b for a, b in zip(one, other, strict=True)) for other in codes] for one in codes]
    value = determinant(kernel)
    return math.log(value) if value > 0 else -math.inf


def synflow_directly(network: nn.Module) -> float:
    """On a copy whose parameters are made positive in place, by plain autograd."""
    copied = copy.deepcopy(network).double().eval()
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.abs_()
    copied(torch.ones(1, *SHAPE, dtype=torch.float64)).sum().backward()
    return math.log(
        sum(float((p.detach() * p.grad).sum()) for p in copied.parameters() if p.grad is not None),
    )


# --- NASWOT -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 4])
def test_naswot_of_a_sequential(count: int) -> None:
    """The score of a plain network, its ReLUs' outputs collected layer by layer."""
    network = sequential()
    images = batch(count)
    outputs, x = [], images
    for layer in copy.deepcopy(network):
        x = layer(x)
        if isinstance(layer, nn.ReLU):
            outputs.append(x)
    assert len(outputs) == 2
    expected = naswot_directly(outputs)
    assert math.isfinite(expected)
    assert naswot(network, images) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["darts_v2", "mdenas_mixture"])
def test_naswot_of_a_unit_network(name: str) -> None:
    """The score of a genotype's network counts every ReLU that is computed: preprocessing, operations, reductions."""
    network = unit_network(name)
    images = batch()
    with Outputs() as seen, torch.no_grad():
        copy.deepcopy(network)(images)
    relus = [module for module in network.modules() if isinstance(module, nn.ReLU)]
    assert len(seen.kept) == len(relus) > 10
    expected = naswot_directly(seen.kept)
    assert naswot(network, images) == pytest.approx(expected, rel=1e-12)
    # One layer less, and the score is another: the comparison would notice.
    assert naswot_directly(seen.kept[1:]) != pytest.approx(expected, rel=1e-6)


def test_naswot_leaves_no_hooks() -> None:
    """The network computes afterwards as before, and no parameter has changed."""
    network = unit_network("darts_v1")
    before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    first = naswot(network, batch())
    assert naswot(network, batch()) == first
    assert not any(module._forward_hooks for module in network.modules())
    assert same(dict(network.named_parameters()), before)


def test_naswot_grows_with_difference() -> None:
    """Images that switch more ReLUs differently score higher than nearly equal ones."""
    network = sequential()
    apart = batch(4)
    near = apart[:1] + 0.05 * batch(4, seed=2)
    assert naswot(network, near) < naswot(network, apart)


@pytest.mark.parametrize("count", [2, 4, 8, 16, 33, 64])
def test_naswot_of_equal_codes(count: int) -> None:
    """Two images with one code make the determinant zero, whatever rounding makes of it."""
    for seed in range(20):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Flatten(), nn.Linear(64, 300), nn.ReLU())
        images = batch(count, seed=seed)
        if count > 2:
            assert math.isfinite(naswot(network, images))
        one, other = torch.randperm(count)[:2].tolist()
        images[one] = images[other]
        assert naswot(network, images) == -math.inf


# --- SynFlow ------------------------------------------------------------------------------------------------------


def test_synflow_of_a_sequential() -> None:
    """The score of a plain network, biases and norms among its parameters."""
    network = sequential()
    assert synflow(network, SHAPE) == pytest.approx(synflow_directly(network), rel=1e-12)


@pytest.mark.parametrize("name", GENOTYPES)
def test_synflow_of_a_unit_network(name: str) -> None:
    """The score of a genotype's network is that of a copy in double precision with positive weights."""
    network = unit_network(name)
    assert synflow(network, SHAPE) == pytest.approx(synflow_directly(network), rel=1e-12)


def test_synflow_by_hand() -> None:
    """Two weights in a row: the output is |2| |-3| 1, and each weight's share is the whole of it."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))
    for layer, value in ((network[1], 2.0), (network[2], -3.0)):
        nn.init.constant_(layer.weight, value)
    assert synflow(network, (1, 1, 1)) == pytest.approx(math.log(6 + 6), rel=1e-15)


def test_synflow_of_large_numbers() -> None:
    """Scores beyond single precision stay finite."""
    layers = [nn.Linear(8, 8, bias=False) for _ in range(10)]
    for layer in layers:
        nn.init.constant_(layer.weight, 1e5)
    # Each layer multiplies by 8e5, the first adds up 8 ones, the sum has 8 outputs; every layer has the same share.
    expected = math.log(10) + 10 * math.log(8e5) + math.log(8)
    assert expected > math.log(torch.finfo(torch.float32).max)
    assert synflow(nn.Sequential(nn.Flatten(), *layers), (8, 1, 1)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("training", [True, False])
def test_synflow_changes_nothing(training: bool) -> None:
    """The network is bit by bit what it was: weights, statistics, types, mode, gradients."""
    network = unit_network("mdenas_pmnist").train(training)
    before = weights(network)
    kept = [(parameter, parameter.data_ptr()) for parameter in network.parameters()]
    first = synflow(network, SHAPE)
    assert same(weights(network), before)
    assert all(parameter.data_ptr() == place and parameter.requires_grad for parameter, place in kept)
    assert all(parameter.grad is None and parameter.dtype == torch.float32 for parameter in network.parameters())
    assert all(module.training == training for module in network.modules())
    assert synflow(network, SHAPE) == first


def test_synflow_without_a_path() -> None:
    """Where nothing reaches the output the score is minus infinity; a bias at the end is a path of its own."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False), nn.Linear(2, 2))
    nn.init.zeros_(network[1].weight)
    assert synflow(network, (1, 2, 2)) == pytest.approx(math.log(float(network[2].bias.detach().double().abs().sum())))
    nn.init.zeros_(network[2].bias)
    assert synflow(network, (1, 2, 2)) == -math.inf


def test_synflow_of_nan() -> None:
    """A weight that is NaN makes the score NaN, not the worst of all."""
    network = sequential()
    with torch.no_grad():
        next(network.parameters())[0] = math.nan
    assert math.isnan(synflow(network, SHAPE))


# --- choosing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "ranks"),
    [
        ([3.0, 1.0, 3.0, 2.0], [2, 0, 2, 1]),
        ([-math.inf, 0.0, -math.inf], [0, 2, 0]),
        ([5.0], [0]),
        ([1.0, 1.0], [0, 0]),
        ([], []),
    ],
)
def test_ranked(scores: list[float], ranks: list[int]) -> None:
    """A rank is the number of scores below; equal scores have equal ranks."""
    assert ranked(scores) == ranks


def chosen(score: str, **scores: list[float]) -> int:
    """Which of the genotypes is taken, by position, if these are their scores."""
    stage = search(score=score, candidates=len(next(iter(scores.values()))))
    stage.run()
    assert set(stage.scores) == set(scores)
    stage.scores = scores
    return stage.genotypes.index(stage.result())


def test_best_is_chosen_and_of_equal_ones_the_first() -> None:
    """By one score the highest is taken, by both the highest sum of ranks; ties go to the first drawn."""
    assert chosen("naswot", naswot=[1.0, 3.0, 2.0, 3.0]) == 1
    assert chosen("synflow", synflow=[-math.inf, -5.0, -7.0]) == 1
    assert chosen("naswot", naswot=[-math.inf, -math.inf]) == 0
    # Ranks 0 2 1 and 2 0 1: all sum to two. The scores themselves would say otherwise.
    assert chosen("both", naswot=[0.0, 900.0, 1.0], synflow=[9.0, 7.0, 8.0]) == 0
    # Ranks 0 1 2 and 1 2 0.
    assert chosen("both", naswot=[0.0, 1.0, 100.0], synflow=[2.0, 3.0, 1.0]) == 1
    # Equal scores share a rank: 0 0 2 and 2 1 0; 2, 1, 2.
    assert chosen("both", naswot=[0.0, 0.0, 1.0], synflow=[9.0, 8.0, 7.0]) == 0


@pytest.mark.parametrize(
    "score", [*(pytest.param(name, marks=pytest.mark.long) for name in ("naswot", "synflow")), "both"]
)
def test_search_scores_each_and_takes_the_best(score: str) -> None:
    """Every genotype drawn is scored at the protocol's size, on one batch, and the best by the scores is the result."""
    stage = search(score=score, candidates=8)
    networks: list[nn.Module] = []
    expected: dict[str, list[float]] = {name: [] for name in ("naswot", "synflow") if score in (name, "both")}
    # The stage's own draws, again: its network is made right after its genotype.
    twin = search(score=score, candidates=8)
    with twin.randomness.active():
        for _ in range(8):
            found = twin.search_task.space.random_genotype()
            networks.append(genotype_network(twin.search_task, SCHEDULE, found))
            if "synflow" in expected:
                expected["synflow"].append(synflow_directly(networks[-1]))
            if "naswot" in expected:
                with Outputs() as seen, torch.no_grad():
                    networks[-1](stage.images)
                expected["naswot"].append(naswot_directly(seen.kept))
            twin.genotypes.append(found)
    best = stage.run()
    assert stage.genotypes == twin.genotypes and len(set(stage.genotypes)) == 8
    for name, values in expected.items():
        assert stage.scores[name] == pytest.approx(values, rel=1e-9)
    sums = [sum(sum(b < a for b in values) for values in expected.values() for a in [values[at]]) for at in range(8)]
    assert best == stage.genotypes[int(np.argmax(sums))]
    assert len(set(sums)) > 1


@pytest.mark.parametrize("images", [2, 6, 17, 500])
def test_the_batch(images: int) -> None:
    """The batch is of different training images of the task, as many as asked for or as there are."""
    stage = search(images=images)
    rows = {tuple(image.flatten().tolist()) for image in IMAGES.gather(torch.arange(len(IMAGES)))[0]}
    batch_rows = {tuple(image.flatten().tolist()) for image in stage.images}
    assert len(rows) == len(IMAGES) == 17
    assert len(stage.images) == len(batch_rows) == min(images, 17)
    assert batch_rows <= rows


@pytest.mark.parametrize("name", ["naswot", "synflow"])
def test_a_score_that_is_nan_ends_the_search(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A NaN score is no score: the search stops and says which."""
    stage = search()
    stage.advance()
    monkeypatch.setattr(searcher, name, lambda *_: math.nan)
    with pytest.raises(RunError, match=f"the score {name} of genotype 2 is NaN"):
        stage.run()


def test_weights_that_are_nan_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the network itself is lost the search stops too."""

    def lost(*arguments: Any) -> GenotypeNetwork:
        network = genotype_network(*arguments)
        nn.init.constant_(network.head.weight, math.nan)
        return network

    stage = search(score="synflow")
    monkeypatch.setattr(searcher, "genotype_network", lost)
    with pytest.raises(RunError, match="the score synflow of genotype 1 is NaN"):
        stage.run()


# --- as a stage ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("images", [6, 500])
@pytest.mark.parametrize("score", ["naswot", "synflow", "both"])
def test_passes(score: str, images: int) -> None:
    """The factory predicts exactly what the stage passes: a batch per genotype for NASWOT, one image for SynFlow."""
    options = ZeroCostOptions(candidates=3, images=images, score=score)
    train, evaluate = estimate_passes(options, SCHEDULE, len(IMAGES))
    assert train == (0 if score == "naswot" else 3)
    assert evaluate == (0 if score == "synflow" else 3 * min(images, 17))
    stage = search(candidates=3, images=images, score=score)
    stage.run()
    assert stage.image_passes == train + evaluate


def ending(stage: ZeroCostSearch, result: Genotype) -> list[Any]:
    state = stage.state_dict()
    own = state["own"]
    counts = [state["epoch"], state["image_passes"], state["report"]]
    return [result.to_dict(), own["genotypes"], own["scores"], own["images"].tolist(), counts]


@pytest.mark.parametrize(
    "score", [*(pytest.param(name, marks=pytest.mark.long) for name in ("naswot", "synflow")), "both"]
)
@pytest.mark.parametrize("epochs", [0, 2, 5])
def test_resumes_bit_by_bit(epochs: int, score: str) -> None:
    """A new stage that loads the state after k genotypes ends as the uninterrupted one does."""
    whole = search(score=score)
    expected = ending(whole, whole.run())
    first = search(score=score)
    for _ in range(epochs):
        first.advance()
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = search(seed=4, score=score)
    disturb()
    second.load_state_dict(torch.load(file, weights_only=True))
    assert ending(second, second.run()) == expected


def test_depends_on_the_seed_alone() -> None:
    """What others draw changes nothing; another seed draws other genotypes and another batch."""
    quiet = search()
    expected = ending(quiet, quiet.run())
    disturb()
    stage = search()
    while stage.epoch < stage.epochs:
        disturb()
        stage.advance()
    disturb()
    assert ending(stage, stage.run()) == expected
    other = search(seed=4)
    mixed = ending(other, other.run())
    assert all(one != another for one, another in zip(mixed[1:4], expected[1:4], strict=True))


@pytest.mark.parametrize("space", [SearchSpace("all14", 1), SearchSpace(cell_types=1)])
def test_other_spaces(space: SearchSpace) -> None:
    """The result is of the space that was asked for."""
    assert space.fault(search(space=space, candidates=3).run()) is None


def test_sizes_are_options() -> None:
    """Cells and channels of the networks that are scored replace the protocol's."""
    assert search(cells=4, channels=3).schedule == SCHEDULE.model_copy(update={"cells": 4, "channels": 3})
    small, large = search(candidates=2, score="synflow"), search(candidates=2, score="synflow", channels=4)
    small.run()
    large.run()
    assert small.genotypes[0] == large.genotypes[0] and small.scores != large.scores


def test_nothing_but_none() -> None:
    """The emptiest genotype of all is scored too, by its preprocessing and its head."""
    network = GenotypeNetwork(uniform_genotype("none", "all14"), 1, 3, 3, 2, SearchSpace("all14"))
    assert math.isfinite(synflow(network, SHAPE))
    assert math.isfinite(naswot(network, batch()))
