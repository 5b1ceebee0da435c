"""PathNet learns: what the search keeps, what stays as it was in bits, tiny epochs, resuming."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from scipy.stats import binom
from support.commands import Command
from support.tiny import build, class_stream, context, registry, same, weights
from torch import Tensor, nn
from torch.nn import functional

from seu_bench.data.images import TaskImages
from seu_bench.data.streams import TaskStream
from seu_bench.training.stage import EpochReport, TaskData
from seu_bench_kit import AlexNetShape, ChainLayer, chain_of, unpack_bits
from seu_bench_kit.blocks import alexnet
from seu_bench_pathnet import method
from seu_bench_pathnet.method import PathSearch
from seu_bench_pathnet.network import ModularNetwork, Path, Tournament, Turn, distinct, module_factor, mutate, turns

#: One channel, 8x8, without dropout: what is computed has one answer.
SHAPE = AlexNetShape(1, 8, 8, (16, 24, 32), 40, dropout=(0.0,) * 5)

#: Paths through the five layers of four modules of :func:`network`.
FIRST: Path = ((0, 1), (2, 3), (0, 3), (1, 2), (0, 1))
SECOND: Path = ((0, 2), (2, 2), (1, 2), (3, 0), (1, 0))


def network(classes: tuple[int, ...] = (2, 3, 2), modules: int = 4, seed: int = 0, **more: Any) -> ModularNetwork:
    """An AlexNet variant of modules, without paths, its weights from a seed."""
    torch.manual_seed(seed)
    return ModularNetwork(chain_of(alexnet(more.get("shape", SHAPE)), "pathnet"), classes, modules)


def images(count: int = 12, task: int = 0, seed: int = 0) -> TaskImages:
    """Noise with two labels."""
    store = torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))
    return TaskImages(store, torch.arange(count), torch.arange(count) % 2, task, 1)


def stream() -> TaskStream:
    """Three tasks of two or three classes."""
    return class_stream([[0, 1], [2, 3, 4], [5, 6]], images=16)


#: A network and a search that learn :func:`stream` in a moment.
QUICK: dict[str, Any] = {"backbone": "mlp", "width": 0.2, "modules": 5, "active": 2, "epochs": 3, "batch_size": 8}


def searching(restore: str = "best_valid", **options: Any) -> tuple[Any, PathSearch]:
    """A strategy, and the search of its first task."""
    source = stream()
    strategy = build(source, "pathnet", **{**QUICK, "restore": restore, **options})
    strategy.experience = source.avalanche().train_stream[0]
    strategy.adapted_dataset = strategy.experience.dataset
    strategy.make_train_dataloader()
    task = source.tasks[0]
    (phase,) = strategy.phases(TaskData(0, task.train, task.valid))
    return strategy, phase.make()


def watched(stage: PathSearch, after_epoch: Callable[[], None]) -> None:
    """Run a stage; call back after each epoch's training, before anything is judged or restored."""
    train_epoch = stage.train_epoch

    def trained() -> EpochReport:
        report = train_epoch()
        after_epoch()
        return report

    stage.train_epoch = trained  # type: ignore[method-assign]
    stage.run()


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        ([3, 2, 4, 5], 1),
        ([1, 2, 3, 4], 0),
        ([4, 3, 2, 1], 3),
        ([4, 3, math.nan, 2], 3),
        ([4, 3, 2.5, 3], 2),
        ([2, 2, 2, 2], 0),
    ],
)
def test_the_best_validation_loss_decides(monkeypatch: pytest.MonkeyPatch, losses: list[float], best: int) -> None:
    """Of two generations of an epoch for each path: the path of the lowest loss is kept with the weights that had it,
    and each generation begins with the best weights so far."""
    strategy, stage = searching(epochs=2, generations=2)
    given, passed = iter(losses), []

    def judged(forward: Any, images: Any, batch_size: int, on_batch: Any) -> tuple[float, float]:
        passed.append(images)
        return 0.5, next(given)

    monkeypatch.setattr(method, "evaluate", judged)
    snapshots: list[dict[str, Tensor]] = []
    paths: list[Path] = []

    def noted() -> None:
        snapshots.append(weights(stage.module))
        paths.append(strategy.model.tried[0])

    starts: list[dict[str, Tensor]] = []
    begin = stage._begin

    def begun(turn: Turn) -> None:
        starts.append(weights(stage.module))
        begin(turn)

    monkeypatch.setattr(stage, "_begin", begun)
    watched(stage, noted)
    assert all(images is stage.data.valid for images in passed) and len(passed) == 4
    assert not any(same(snapshots[one], snapshots[other]) for one in range(4) for other in range(one))
    assert same(weights(stage.module), snapshots[best])
    assert strategy.model.tried[0] == paths[best]
    assert same(starts[1], snapshots[0])  # paths share their weights
    assert same(starts[2], snapshots[0 if losses[0] <= losses[1] else 1])


def test_only_the_path_moves() -> None:
    """In a turn the modules of the contender's path and the head train; all others keep their bits."""
    strategy, stage = searching(epochs=2, generations=2)
    model = strategy.model
    before = [weights(model)]

    def noted() -> None:
        path, now = model.tried[0], weights(model)
        assert path == distinct(stage.tournament.paths[stage.turns[stage.epoch].contender])
        on_path = {f"layers.{layer}.{index}." for layer, used in enumerate(path) for index in used} | {"heads.0."}
        for name, tensor in now.items():
            moved = not torch.equal(tensor, before[-1][name])
            assert moved == any(name.startswith(start) for start in on_path), name
        before.append(now)

    begin = stage._begin

    def begun(turn: Turn) -> None:
        before.append(weights(model))
        begin(turn)

    stage._begin = begun  # type: ignore[method-assign]
    watched(stage, noted)
    assert len(before) == 9


def on(*paths: Path) -> set[tuple[int, int]]:
    """The places of modules on any of the paths."""
    return {(layer, index) for path in paths for layer, used in enumerate(path) for index in used}


def by_hand(model: Any, x: Tensor, path: Path, task: int) -> Tensor:
    """Logits by the formula, each layer written out."""
    for layer, used in enumerate(path):
        x = x.flatten(1) if layer == 3 else x
        outputs = []
        for index in sorted(set(used)):
            module = model.layers[layer][index]
            if layer < 3:
                out = functional.relu(functional.conv2d(x, module.weight, module.bias, padding=1))
                outputs.append(functional.max_pool2d(out, 2))
            else:
                outputs.append(functional.relu(functional.linear(x, module.weight, module.bias)))
        x = torch.stack(outputs).sum(dim=0)
    return functional.linear(x, model.heads[task].weight, model.heads[task].bias)


@pytest.mark.parametrize("path", [FIRST, SECOND])
def test_logits_are_those_of_the_formula(path: Path) -> None:
    """Sums of what each module of the path computes behind its activation, one that is named twice once."""
    model, x = network().double(), images().store.double()
    model.try_path(1, path)
    torch.testing.assert_close(model(x, 1), by_hand(model, x, path, 1))


#: Probability that a count lies outside the bounds of a test.
RARE = 1e-6


def within(count: int, trials: int, probability: float) -> bool:
    """Whether a binomial count is no rare one."""
    return bool(binom.ppf(RARE, trials, probability) <= count <= binom.isf(RARE, trials, probability))


def loss_of(path: Path, best: Path, modules: int) -> int:
    """Steps around the circle of modules from a path to the best one, index by index."""
    pairs = [(a, b) for layer, other in zip(path, best, strict=True) for a, b in zip(layer, other, strict=True)]
    return sum(min((a - b) % modules, (b - a) % modules) for a, b in pairs)


def evolved(seed: int, generations: int, best: Path, modules: int = 8) -> list[tuple[list[Path], int, float]]:
    """Paths, champion and its loss as of each generation of a tournament whose fitness is known."""
    torch.manual_seed(seed)
    tournament = Tournament.drawn(len(best), modules, len(best[0]))
    history = []
    for _ in range(generations):
        for contender in (0, 1):
            tournament.offer(contender, loss_of(tournament.paths[contender], best, modules))
        history.append((list(tournament.paths), tournament.champion, tournament.loss))
        tournament.breed(modules)
    return history


@pytest.mark.parametrize("seed", range(6))
def test_finds_the_known_best_path(seed: int) -> None:
    """Losses never rise, the champion is the path that has them, and in the end it is the best path there is."""
    best: Path = ((1, 6), (3, 0), (5, 5))
    history = evolved(seed, 600, best)
    assert history[-1][2] == 0 and history[-1][0][history[-1][1]] == best
    for (_, _, before), (paths, champion, loss) in pairwise(history):
        assert loss <= before
        assert loss == loss_of(paths[champion], best, 8)
        assert loss == min(before, *(loss_of(path, best, 8) for path in paths))


def test_mutation_statistics() -> None:
    """Of 15 indices each is drawn with probability 1/15 and then moved by each of five steps with 1/5."""
    path: Path = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11), (12, 13, 15))
    torch.manual_seed(0)
    copies = 4000
    children = torch.tensor([mutate(path, 16) for _ in range(copies)])
    moves = (children - torch.tensor(path) + 8) % 16 - 8
    found = {step: int((moves == step).sum()) for step in (-2, -1, 1, 2)}
    assert sum(found.values()) + int((moves == 0).sum()) == copies * 15
    assert all(within(count, copies * 15, 1 / 75) for count in found.values()), found
    changed = (moves != 0).flatten(1)
    assert all(within(int(column.sum()), copies, 4 / 75) for column in changed.T)
    # Independently of each other: none moves in (71/75)^15 of all paths.
    assert within(int((~changed.any(dim=1)).sum()), copies, (71 / 75) ** 15)


@pytest.mark.parametrize(("epochs", "generations"), [(1, 20), (8, 20), (20, 20), (50, 20), (8, 3), (7, 1), (200, 20)])
def test_epochs_are_divided(epochs: int, generations: int) -> None:
    """Each path is trained for all epochs, in generations that differ by one epoch at most, one after the other."""
    found = turns(epochs, generations)
    assert len(found) == 2 * epochs
    for contender in (0, 1):
        own = [turn for turn in found if turn.contender == contender]
        assert [turn.epoch for turn in own] == list(range(epochs))
        starts = [turn.epoch for turn in own if turn.begins]
        ends = [turn.epoch for turn in own if turn.ends]
        assert len(starts) == len(ends) == min(epochs, generations)
        lengths = {end + 1 - start for start, end in zip(starts, ends, strict=True)}
        assert max(lengths) - min(lengths) <= 1
    assert [turn.contender for turn in found if turn.begins] == [0, 1] * min(epochs, generations)
    assert all(before.ends == after.begins for before, after in pairwise(found))


def published_chain() -> tuple[ChainLayer, ...]:
    """The network of the published code for images of 32x32 pixels, with its own kernels."""
    convolutions = [nn.Conv2d(3, 64, 4), nn.Conv2d(64, 128, 3), nn.Conv2d(128, 256, 2)]
    linear = [nn.Linear(256 * 2 * 2, 2048), nn.Linear(2048, 2048)]
    return chain_of(nn.Sequential(*convolutions, nn.Flatten(), *linear), "pathnet")


@pytest.mark.parametrize(("modules", "published"), [(16, 0.258), (10, 0.325), (20, 0.231)])
def test_factors_of_the_published_code(modules: int, published: float) -> None:
    """It states them to three places, cut or rounded, as matching the parameters of its network with heads for eight
    data sets."""
    with torch.device("meta"):
        factor = module_factor(published_chain(), modules, (10, 100, 10, 10, 10, 43, 100, 10))
    assert factor == pytest.approx(published, abs=0.6e-3)


#: Parameters as sums of 16 modules of each layer and the heads, written out; and of the network that is replaced.
PUBLISHED: dict[tuple[str, str], tuple[int, int]] = {
    ("split_cifar100", "alexnet"): (
        515 * 100 + 16 * ((27 * 16 + 16) + (144 * 32 + 32) + (288 * 64 + 64) + (1024 * 514 + 514) + (514 * 514 + 514)),
        13_162_724,
    ),
    ("pmnist", "mlp"): (
        39 * 100 + 16 * ((784 * 38 + 38) + (38 * 38 + 38)),
        (784 * 400 + 400) + (400 * 400 + 400) + 401 * 100,
    ),
}


@pytest.mark.parametrize(("benchmark", "backbone"), PUBLISHED)
def test_published_sizes(command: Command, benchmark: str, backbone: str) -> None:
    """At full width: as many parameters as by hand, at most those of the network that is replaced, with every task the
    same; bits for each module and task; both paths trained for all of the 50 epochs."""
    asked = ("--strategy", "pathnet", "--benchmark", benchmark, "--protocol", "paper", "-o", f"backbone={backbone}")
    answer = command("cost", "--no-time", "--format", "json", *asked)
    document = json.loads(answer.out)
    params, replaced = PUBLISHED[benchmark, backbone]
    tasks = len(document["tasks"])
    assert document["params_total"] == document["params_total_min"] == [params] * tasks
    assert 0.93 * replaced < params <= replaced
    layers = {"alexnet": 5, "mlp": 2}[backbone]
    assert document["mask_bits"] == [(task + 1) * layers * 16 for task in range(tasks)]
    assert document["memory_bytes"] == [4 * params + (task + 1) * layers * 2 for task in range(tasks)]
    train, valid = (54_000, 6_000) if benchmark == "pmnist" else (9_000, 1_000)
    found = document["stages"]["search"]
    assert (found["train"], found["evaluate"]) == (tasks * 2 * 50 * train, tasks * 2 * 50 * valid)


def test_a_path_of_all_and_one_of_the_fewest_modules_are_the_bounds() -> None:
    """Multiply-accumulates of one module a layer to ``active``: those of the perceptron's layers, written out."""
    cost = registry().strategies.find("pathnet").factory.cost(context(stream().plan, "pathnet", QUICK))
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 80), nn.ReLU(), nn.Linear(80, 80), nn.ReLU())
    width = ModularNetwork(chain_of(backbone, "pathnet"), (2, 3, 2), 5).widths[0]
    for bound, modules in ((cost.macs, 2), (cost.macs_min, 1)):
        assert bound == tuple(modules * (64 * width + width * width) + width * classes for classes in (2, 3, 2))


def learned(*paths: Path) -> ModularNetwork:
    """A network that kept these paths."""
    model = network()
    for task, path in enumerate(paths):
        model.try_path(task, path)
        model.keep(task)
    return model


def test_masks() -> None:
    """A bit for each module of each layer and each task, of which those on the path are set."""
    model = learned(FIRST, SECOND)
    assert model.mask_bits == 2 * 5 * 4 and model.masks.shape == (2, 3) and model.masks.dtype == torch.uint8
    for task, path in enumerate((FIRST, SECOND)):
        bits = unpack_bits(model.masks[task], (5, 4))
        assert {(int(layer), int(index)) for layer, index in bits.nonzero()} == on(path)
    assert network().mask_bits == 0 and network().masks.shape == (0, 3)
