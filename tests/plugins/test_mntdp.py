"""MNTDP: the published network, the prior against a direct computation, candidates, frozen prefixes, costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier
from support.tiny import build, class_stream, context, learn, registry

from seu_bench.config.protocol import Schedule
from seu_bench.data import InputShape
from seu_bench.data.streams import TaskStream
from seu_bench.models.sizes import count_parameters
from seu_bench.testing.streams import raw_dataset
from seu_bench.training.interfaces import Cost
from seu_bench.training.stage import StageProgress, TaskData
from seu_bench_mntdp.method import Mntdp, PriorStage, bodies, with_validation
from seu_bench_mntdp.network import ModularResNet

PAIRS = [[0, 1], [2, 3], [4, 5]]
UNLIKE = [[0, 1], [2, 3, 4]]
SMALL: dict[str, Any] = {"width": 0.125, "epochs": 3, "learning_rate": 0.05}


def grown(
    *choices: Sequence[int | None], classes: Sequence[int] = (2, 2, 2), split_last: bool = False
) -> ModularResNet:
    """A network with a path for each of the choices, narrow."""
    torch.manual_seed(0)
    network = ModularResNet(1, 4, classes, split_last=split_last)
    for path in choices or [(None,) * network.places]:
        network.try_path(tuple(path))
        network.hold()
        network.adopt()
    return network


def twins(images: int = 40, copied: Sequence[tuple[int, int]] = ((4, 0), (5, 1))) -> TaskStream:
    """Three tasks of two classes, some with the images of others: by default the third has those of the first."""
    data = raw_dataset([images] * 6, [12] * 6)
    for split in (data.train, data.test):
        for label, origin in copied:
            split.images[split.labels == label] = split.images[split.labels == origin]
    return class_stream(PAIRS, data=data)


def prior(network: ModularResNet, source: TaskStream, data: TaskData, **options: Any) -> PriorStage:
    """The prior of a task on a network of our own."""
    method = Mntdp(model=network, schedule=Schedule(), eval_mb_size=16)
    return PriorStage(method.begin(Mntdp.Options(**options), source.plan), data)


def cost_of(source: TaskStream, **options: Any) -> Cost:
    found: Cost = registry().strategies.find("mntdp").factory.cost(context(source.plan, "mntdp", options))
    return found


@pytest.mark.parametrize(("split_last", "places"), [(False, 6), (True, 7)])
def test_published_size(split_last: bool, places: int) -> None:
    """607,050 parameters for ten classes, as the reference code has, however the last group is cut."""
    network = ModularResNet(3, 64, [10, 10], split_last=split_last)
    network.try_path((None,) * places)
    assert network.places == places
    assert count_parameters(network) == 607_050
    assert network(torch.zeros(2, 3, 32, 32), 0).shape == (2, 10)


def test_it_computes_what_the_backbone_does() -> None:
    """The backbone of this name, with a head, is the same function of the same weights."""
    from seu_bench_backbones.networks import resnet18_even

    network = grown()
    backbone, features = resnet18_even(InputShape("image", (1, 8, 8)), 4 / 64)
    assert features == 4
    backbone.load_state_dict(
        {
            name.replace(f"layers.{place}.0.part.", f"{place}.", 1): tensor
            for place in range(5)
            for name, tensor in network.state_dict().items()
            if name.startswith(f"layers.{place}.")
        }
    )
    images = torch.randn(5, 1, 8, 8)
    backbone.eval()
    network.eval()
    with torch.no_grad():
        assert torch.equal(network.head(0)(backbone(images)), network(images, 0))


def features_of(network: ModularResNet, images: Any, task: int) -> tuple[Any, Any]:
    x, y = images.gather(torch.arange(len(images)))
    with torch.no_grad():
        return network.features(x, task).numpy(), y.numpy()


@pytest.mark.parametrize("k", [1, 5])
def test_prior_is_scikit_learns(k: int) -> None:
    """Each body's score is that of scikit-learn's classifier on the features that the body gives."""
    source = class_stream([*UNLIKE, [5, 6]])
    network = grown((None,) * 6, (0, 0, None, None, None, None), classes=source.plan.classes_per_task)
    data = with_validation(TaskData(2, source.tasks[2].train, source.tasks[2].valid))
    stage = prior(network, source, data, k=k, prior_images=40)
    related = stage.run()
    network.eval()
    expected = []
    for task in range(2):
        fitted, labels = features_of(network, data.train.part(0, 40), task)
        queries, wanted = features_of(network, data.valid, task)
        expected.append(KNeighborsClassifier(k, algorithm="brute").fit(fitted, labels).score(queries, wanted))
    assert [stage.scores[task][0] for task in range(2)] == pytest.approx(expected)
    assert related == max(range(2), key=lambda task: (stage.scores[task], task))
    assert stage.image_passes == 2 * (min(40, len(data.train)) + len(data.valid or ()))


def test_tasks_of_one_body_are_told_by_their_heads() -> None:
    """Neighbours cannot tell them apart: the head that answers the new task best as it is, decides."""
    source = twins()
    strategy = learn(source, build(source, "mntdp", **{**SMALL, "epochs": 8}), tasks=1)
    network: ModularResNet = strategy.model
    # A later task with the same body and a head that answers the other way round.
    network.try_path((0, 0, 0, 0, 0, None))
    network.hold()
    network.adopt()
    with torch.no_grad():
        for name, tensor in network.head(1).state_dict().items():
            tensor.copy_(network.head(0).state_dict()[name].flip(0))
    assert bodies(network.paths) == [[0, 1]]
    data = with_validation(TaskData(2, source.tasks[2].train, source.tasks[2].valid))
    stage = prior(network, source, data)
    assert stage.run() == 0
    assert stage.scores[0][0] == stage.scores[1][0] and stage.scores[0][1] > stage.scores[1][1]


def stages_of(source: TaskStream, **options: Any) -> tuple[Any, list[StageProgress]]:
    """A strategy that has learned the stream, and its stages."""
    done: list[StageProgress] = []
    strategy = build(source, "mntdp", on_progress=lambda it: done.append(it) if it.done else None, **SMALL | options)
    return learn(source, strategy), done


@pytest.mark.long
@pytest.mark.parametrize(
    ("groups", "options"),
    [
        *((groups, options) for groups in (PAIRS, UNLIKE) for options in ({}, {"patience": 2})),
    ],
)
def test_costs_hold(groups: list[list[int]], options: dict[str, Any]) -> None:
    """Sizes of a run are in the range of the estimate; image passes of trainings are exact."""
    source = class_stream(groups)
    strategy, stages = stages_of(source, **options)
    cost = cost_of(source, batch_size=16, **SMALL | options)
    assert cost.params_total_min[-1] <= count_parameters(strategy.model) <= cost.params_total[-1]
    expected = {(it.name, it.task): it for it in cost.stages if it.name != "evaluation"}
    assert [(it.stage, it.task) for it in stages] == list(expected)
    for it in stages:
        planned = expected[it.stage, it.task]
        assert it.image_passes <= planned.image_passes
        if it.stage in ("prefix 0", "prefix 5") and "patience" not in options:
            assert it.image_passes == planned.image_passes


def test_paths_share_modules() -> None:
    """A new module where there is ``None``, and the one of that number elsewhere; each counted once."""
    network = grown((None,) * 6, (0, 0, None, None, None, None), (0, 0, 1, None, None, 0))
    assert network.paths == [(0, 0, 0, 0, 0, 0), (0, 0, 1, 1, 1, 1), (0, 0, 1, 2, 2, 0)]
    assert network.unit_tasks == [[0], [0], [0, 1], [0, 1, 2], [0, 1, 2], [0, 1]]
    first = grown()
    sizes = [count_parameters(first.module_at(place, 0)) for place in range(6)]
    assert count_parameters(network) == sum(
        size * len(tasks) for size, tasks in zip(sizes, network.unit_tasks, strict=True)
    )


@pytest.mark.long
def test_seven_candidates_of_six_modules() -> None:
    """From none to all modules of the related path; the most accurate is kept, of equal ones that which reuses more."""
    source = twins()
    strategy, stages = stages_of(source)
    for task in (1, 2):
        names = [it.stage for it in stages if it.task == task]
        assert names == ["prior", *(f"prefix {reused}" for reused in range(7))]
    last = [it for it in stages if it.task == 2][1:]
    best = [max(it.curve, key=lambda report: report.accuracy or 0).accuracy or 0 for it in last]
    path = strategy.model.paths[2]
    reused = next(
        length for length in range(6, -1, -1) if any(path[:length] == old[:length] for old in strategy.model.paths[:2])
    )
    assert best[reused] == max(best[-1], best[reused])
    assert strategy.describe()["paths"] == tuple(strategy.model.paths)
