"""Methods that keep images of earlier tasks: their losses and projections against direct computations, what they pass
and what they keep."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from avalanche.training.plugins import EvaluationPlugin
from scipy.optimize import minimize
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from support.tiny import (
    benchmark,
    class_stream,
    context,
    learn,
    raw_dataset,
    registry,
    same,
    weights,
)
from torch import Tensor
from torch.nn.functional import cross_entropy

from seu_bench.config.protocol import ImageLimits
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.testing import Trial
from seu_bench.testing.streams import class_split
from seu_bench.training.monitoring import ModelSizes, SilentLogger
from seu_bench.training.stage import StageProgress
from seu_bench_methods.slda import Discriminant

METHODS = ("agem", "cumulative", "er_ace", "gdumb", "gem", "joint", "mir", "replay")
SMALL: dict[str, Any] = {"backbone": "mlp", "width": 0.05, "epochs": 2, "batch_size": 8}
#: Memories with few images, which are full after the first task.
FEW: dict[str, dict[str, Any]] = {
    "gem": {"patterns_per_experience": 5},
    "agem": {"memory": 24, "sample_size": 8},
    "replay": {"memory": 16, "batch_size_mem": 6},
    "gdumb": {"memory": 12},
    "mir": {"memory": 16, "subsample": 10, "batch_size_mem": 4},
    "er_ace": {"memory": 16, "batch_size_mem": 4},
}


def stream(**more: Any) -> TaskStream:
    return class_stream([[0, 1], [2, 3], [4, 5]], **({"images": 16, "test": 8} | more))


def build(name: str, source: TaskStream, *plugins: Any, **options: Any) -> Any:
    stages: list[StageProgress] = []
    evaluator = EvaluationPlugin(*plugins, loggers=[SilentLogger()], collect_all=False)  # type: ignore[no-untyped-call]
    budgets = {"memory", "memory_per_class", "patterns_per_experience"}
    few = {key: value for key, value in FEW.get(name, {}).items() if not (key in budgets and budgets & options.keys())}
    made = context(source.plan, name, SMALL | few | options, on_progress=stages.append, evaluator=evaluator)
    strategy: Any = registry().strategies.find(name).factory.build(made)
    strategy.seen = stages
    return strategy


def train(strategy: Any, source: TaskStream, tasks: int | None = None) -> Any:
    """As the runner does it: task by task, or the whole stream at once."""
    if not strategy.whole_stream:
        return learn(source, strategy, tasks)
    strategy.train(source.avalanche().train_stream, eval_streams=[])
    return strategy


def after_a_task(name: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    """A strategy in its second task, without any training there, and a batch of that task."""
    source = stream()
    strategy = train(build(name, source, **{"dropout": 0.0} | options), source, 1)
    strategy.optimizer.zero_grad()
    strategy.model.begin_task(1)
    strategy.model.train()
    x, y = source.tasks[1].train.gather(torch.arange(8))
    return strategy, {"x": x, "y": y, "task": torch.ones(8, dtype=torch.int64)}


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_er_ace_asks_new_images_among_their_classes(scenario: str) -> None:
    """``(CE of the batch, as if there were its classes only + CE of the memory) / 2``, image by image."""
    logits = torch.randn(3, 6 if scenario == "class" else 3, dtype=torch.float64)
    y = torch.tensor([2, 0, 2])
    strategy, _ = after_a_task("er_ace")
    old = torch.randn(4, 2, dtype=torch.float64)
    strategy.replay = lambda x, task: old
    strategy.memory.draw = lambda count, draw=strategy.memory.draw: (
        setattr(strategy, "drawn", draw(count)) or strategy.drawn
    )
    loss = strategy.batch_loss(torch.zeros(3), y, torch.zeros(3), logits)
    new = [-torch.log(row[label].exp() / (row[0].exp() + row[2].exp())) for row, label in zip(logits, y, strict=True)]
    assert loss.item() == pytest.approx(
        (float(torch.stack(new).mean()) + cross_entropy(old, strategy.drawn.y).item()) / 2
    )
    strategy.clock.train_exp_counter = 0
    assert torch.equal(strategy.batch_loss(torch.zeros(3), y, torch.zeros(3), logits), cross_entropy(logits, y))


def test_mir_replays_what_a_step_would_harm_most() -> None:
    """Against a step that is really made; the network, its modes and gradients are as they were."""
    strategy, batch = after_a_task("mir", subsample=16, learning_rate=0.5)
    model, before = strategy.model, weights(strategy.model)
    loss = strategy.batch_loss(**batch, logits=model(batch["x"], batch["task"]))
    assert same(before, weights(model)) and model.training and all(it.grad is None for it in model.parameters())

    def losses() -> Tensor:
        kept = strategy.memory.all_images()
        with torch.no_grad():
            return cross_entropy(model(kept.x, kept.task), kept.y, reduction="none")

    known, own = losses(), cross_entropy(model(batch["x"], batch["task"]), batch["y"])
    own.backward()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.grad is not None:
                weight.sub_(strategy.optimizer.param_groups[0]["lr"] * weight.grad)
    worst = (losses() - known).argsort(descending=True)[:4]
    assert loss.item() == pytest.approx(own.item() + known[worst].mean().item(), rel=1e-5)


def gradients(strategy: Any, margin: float = 0.5) -> tuple[Tensor, Tensor]:
    """A gradient against those of two earlier tasks, which ``project`` finds."""
    generator = torch.Generator().manual_seed(4)
    earlier = torch.randn(2, 7, generator=generator)
    gradient = -earlier.sum(dim=0) + 0.3 * torch.randn(7, generator=generator)
    strategy.memory.by_task = lambda: [torch.tensor([0]), torch.tensor([1])]
    strategy.gradient_at = lambda positions: earlier[positions].mean(dim=0)
    return gradient, earlier


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_gem_solves_its_quadratic_program(margin: float) -> None:
    """Against another solver; without a margin the nearest gradient that raises no earlier loss."""
    strategy, _ = after_a_task("gem", memory_strength=margin)
    gradient, earlier = gradients(strategy)
    found = strategy.project(gradient)
    g, products = earlier.double(), (earlier.double() @ earlier.double().T + 1e-3 * torch.eye(2)).numpy()
    along = (g @ gradient.double()).numpy()
    best = minimize(
        lambda v: v @ products @ v / 2 + along @ v, [1.0, 1.0], bounds=[(margin, None)] * 2, options={"ftol": 1e-15}
    )
    expected = gradient.double() + torch.from_numpy(best.x) @ g
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=1e-3)
    assert float((earlier @ gradient).min()) < 0 < float((earlier @ found).min()) + 0.01
    assert strategy.project(earlier.sum(dim=0)) is None


def test_agem_takes_away_what_points_against_the_mean() -> None:
    strategy, _ = after_a_task("agem")
    gradient, earlier = gradients(strategy)
    found, reference = strategy.project(gradient), earlier.mean(dim=0)
    assert float(found @ reference) == pytest.approx(0, abs=1e-5)
    rest = gradient - found
    torch.testing.assert_close(rest / rest.norm(), -reference / reference.norm())
    assert torch.equal(strategy.project(reference), reference)


def test_image_passes() -> None:
    """Images of a task are 24, in 3 batches, twice; of the memory so many with each batch from the second task on."""
    expected: dict[str, list[int]] = {
        "agem": [48, 48 + 6 * 8, 48 + 6 * 8],
        "cumulative": [48, 96, 144],
        "er_ace": [48, 48 + 6 * 4, 48 + 6 * 4],
        "gdumb": [24, 24, 24],
        "gem": [48, 48 + 6 * 5, 48 + 6 * 10],
        "joint": [144],
        "mir": [48, 48 + 6 * (2 * 10 + 4), 48 + 6 * (2 * 10 + 4)],
        "replay": [48, 48 + 6 * 6, 48 + 6 * 6],
    }
    found = {}
    for name in METHODS:
        source = stream()
        seen = train(build(name, source), source).seen
        found[name] = [it.image_passes for it in seen if it.done and it.stage == "training"]
        assert not any(it.image_passes for it in seen if it.stage == "after_task")
    assert found == expected


#: Bytes of a grey image of 8x8 with its label and task.
IMAGE = 8 * 8 + 2


@pytest.mark.parametrize(
    ("name", "options", "kept"),
    [
        ("gem", {"patterns_per_experience": 15}, [15 * IMAGE, (15 + 12) * IMAGE]),
        ("agem", {"patterns_per_experience": 15, "sample_size": 4}, [15 * IMAGE, (15 + 12) * IMAGE]),
        ("replay", {"memory": 25}, [24 * (IMAGE + 4), (13 + 12) * (IMAGE + 4)]),
        ("replay", {"memory_per_class": 5}, [10 * (IMAGE + 4), 15 * (IMAGE + 4)]),
        ("cumulative", {}, [24 * IMAGE, 36 * IMAGE]),
        ("joint", {}, [36 * IMAGE]),
    ],
)
def test_images_count_as_their_data_set_has_them(name: str, options: dict[str, Any], kept: list[int]) -> None:
    """One channel of 8 bits, whatever the network sees: tasks of 24 and 12 grey images in three channels."""
    split = class_split([(0, 1), (2,)]) | {"input": {"mean": [0.5], "std": [0.25], "channels": 3}}
    source = build_stream(benchmark(split), lambda _: raw_dataset([16] * 3, [4] * 3), ImageLimits(), 0)
    sizes = ModelSizes()
    train(build(name, source, sizes, **{"backbone": "linear", "width": None, "epochs": 1} | options), source)
    assert sizes.memory_bytes == [4 * (3 * 64 + 1) * 3 + taken for taken in kept]


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_loss_of_a_batch(scenario: str) -> None:
    """``CE(x, y) + alpha |f(x') - logits'|^2 + beta CE(x'', y'')``, image by image, of logits that both have."""
    options = {"backbone": "mlp", "width": 0.05, "memory": 9, "batch_size_mem": 5, "alpha": 0.3, "beta": 0.7}
    learner = Trial("derpp", options, scenario=scenario).learner("tiny_three")  # type: ignore[arg-type]
    for task in (0, 1):
        learner.learn(task)
    method, model = learner.strategy, learner.model
    model.begin_task(2)
    model.eval()  # without dropout
    held = method.memory.all_images()
    assert len(held) == 9 and {0, 1} == {*held.origin.tolist()}
    images = learner.stream.tasks[2].train
    x, y = images.gather(torch.arange(6))
    labels = torch.full((6,), images.task_label)
    logits = model(x, labels)
    torch.manual_seed(1)
    loss = method.batch_loss(x, y, labels, logits)
    torch.manual_seed(1)
    first, second = (torch.randperm(9)[:5].tolist() for _ in range(2))
    squares: list[torch.Tensor] = []
    for place in first:
        present = model.forward_single_task(held.x[place : place + 1], int(held.task[place]))[0]
        known = held.logits[place][held.logits[place] > -1e30]
        squares += list((present[: len(known)] - known).square())
    assert {2, 4} >= {int((row > -1e30).sum()) for row in held.logits} >= ({2, 4} if scenario == "class" else {2})
    entropies = [
        cross_entropy(model.forward_single_task(held.x[p : p + 1], int(held.task[p])), held.y[p : p + 1])
        for p in second
    ]
    expected = cross_entropy(logits, y) + 0.3 * torch.stack(squares).mean() + 0.7 * torch.stack(entropies).mean()
    torch.testing.assert_close(loss, expected)
    assert method.memory.seen == sum(2 * len(learner.stream.tasks[task].train) for task in (0, 1)) + 6


@pytest.mark.parametrize("scenario", ["class", "domain"])
def test_means_are_those_of_all_images(scenario: str) -> None:
    """Of each class, or of each shared class over all tasks; the nearest one answers."""
    learner = Trial("nearest_mean", scenario=scenario).learner("tiny_three").learn_all()  # type: ignore[arg-type]
    parts = [task.train.gather(torch.arange(len(task.train))) for task in learner.stream.tasks]
    images, labels = torch.cat([x for x, _ in parts]).flatten(1), torch.cat([y for _, y in parts])
    classes = 6 if scenario == "class" else 2
    means = torch.stack([images[labels == label].mean(dim=0) for label in range(classes)])
    torch.testing.assert_close(learner.model.means.detach(), means, rtol=1e-4, atol=1e-5)
    tests = learner.test_images(0)
    assert torch.equal(learner.logits(0).argmax(dim=1), torch.cdist(tests.flatten(1), means).argmin(dim=1))
    assert learner.sizes.params_total == [classes * 64] * 3


def add(model: Discriminant, x: Tensor, y: Tensor, shrinkage: float = 0.01) -> None:
    """Show images to a model."""
    rows, classes = x.double(), len(model.counts)
    sums = torch.zeros(classes, x.shape[1], dtype=torch.double).index_add_(0, y, rows)
    model.decide(model.solve(model.add(sums, torch.bincount(y, minlength=classes).double(), rows.T @ rows), shrinkage))


def drawn(classes: int, each: int = 40, pixels: int = 6) -> tuple[Tensor, Tensor]:
    """Images of classes whose means differ, and whose pixels hang together."""
    torch.manual_seed(3)
    labels = torch.arange(classes).repeat_interleave(each)
    mixed = torch.eye(pixels) + 0.2 * torch.randn(pixels, pixels)
    return torch.randn(classes, pixels)[labels] + torch.randn(len(labels), pixels) @ mixed, labels


def test_images_that_are_all_the_same() -> None:
    """Their covariance is rounding alone, which has no inverse; rehearsals show one image again and again."""
    for _ in range(20):
        model = Discriminant(256, [2], "class")
        model.begin_task(0)
        add(model, torch.randn(1, 256).expand(207, -1), torch.arange(207) % 2)
        assert all(bool(values.isfinite().all()) for values in (model.weight, model.offset))


def test_answers_follow_the_formula() -> None:
    """W = mu ((1 - e) S + e (tr S / D) I)^-1 and b = -1/2 diag(W mu^T), in double precision from the images."""
    x, y = drawn(4)
    model = Discriminant(6, [4], "class")
    model.begin_task(0)
    add(model, x, y, 0.1)
    rows = x.double()
    means = torch.stack([rows[y == label].mean(dim=0) for label in range(4)])
    covariance = (rows - means[y]).T @ (rows - means[y]) / len(y)
    shrunk = 0.9 * covariance + 0.1 * covariance.trace() / 6 * torch.eye(6, dtype=torch.double)
    weight = means @ shrunk.inverse()
    expected = rows @ weight.T - (weight * means).sum(dim=1) / 2
    torch.testing.assert_close(model.forward_single_task(x, 0), expected.float(), rtol=1e-5, atol=1e-5)


def test_without_shrinkage_to_speak_of_logits_are_scikit_learns() -> None:
    x, y = drawn(3)
    model = Discriminant(6, [3], "class")
    model.begin_task(0)
    add(model, x, y, 1e-12)
    analysis: Any = LinearDiscriminantAnalysis(solver="lsqr", priors=[1 / 3] * 3)
    analysis.fit(x.double().numpy(), y.numpy())
    logits = model.forward_single_task(x, 0)
    expected = torch.as_tensor(analysis.decision_function(x.double().numpy())).float()
    torch.testing.assert_close(logits - logits.mean(1, True), expected - expected.mean(1, True), rtol=1e-5, atol=1e-5)


def test_the_order_of_images_and_their_tasks_make_no_difference() -> None:
    """All at once, or in parts that share classes."""
    x, y = drawn(3)
    at_once = Discriminant(6, [3], "domain")
    at_once.begin_task(0)
    add(at_once, x, y)
    in_parts = Discriminant(6, [3, 3, 3], "domain")
    for task, rows in enumerate(torch.randperm(len(y)).split(50)):
        in_parts.begin_task(task)
        add(in_parts, x[rows], y[rows])
    for name in ("means", "scatter", "counts", "weight", "offset"):
        torch.testing.assert_close(getattr(in_parts, name), getattr(at_once, name), rtol=1e-5, atol=1e-5)


def test_replay_joins_each_batch() -> None:
    """New images first, behind them as many of the memory as asked for; the first task is learned from its own."""
    strategy, batch = after_a_task("replay")
    x, y, task = strategy.extend_batch(**batch)
    assert torch.equal(x[:8], batch["x"]) and task.tolist() == [1] * 8 + [0] * 6
    kept = strategy.memory.all_images()
    for image, label in zip(x[8:], y[8:], strict=True):
        ((place,),) = (kept.x == image).flatten(1).all(dim=1).nonzero(as_tuple=True)
        assert kept.y[place] == label
    strategy = build("replay", stream())
    assert strategy.extend_batch(**batch)[0] is batch["x"]
