"""Avalanche's strategies by name: its algorithms on our path, counted, with a head per task."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from avalanche.training import plugins as stock
from support.commands import Command
from support.tiny import (
    accuracy_of,
    all_threads,
    class_stream,
    context,
    learn,
    one_thread,
    registry,
    same,
    weights,
)
from torch import nn

from seu_bench.config.protocol import Schedule
from seu_bench.data.avalanche import MixedLoader, TaskDataset
from seu_bench.data.streams import TaskStream
from seu_bench.models.backbone import BackboneModel
from seu_bench.training.stage import StageProgress
from seu_bench_avalanche.catalogue import METHODS, UNAVAILABLE
from seu_bench_avalanche.corrected import CopyingSi
from seu_bench_avalanche.strategy import AvalancheStrategy

setup_module, teardown_module = one_thread, all_threads

SMALL: dict[str, Any] = {"backbone": "mlp", "width": 0.05, "epochs": 2, "batch_size": 8}


def stream(**more: Any) -> TaskStream:
    return class_stream([[0, 1], [2, 3], [4, 5]], **({"images": 16} | more))


def build(name: str, source: TaskStream, **options: Any) -> Any:
    stages: list[StageProgress] = []
    made = context(source.plan, name, SMALL | options, on_progress=stages.append)
    strategy: Any = registry().strategies.find(name).factory.build(made)
    strategy.seen = stages
    return strategy


def train(strategy: Any, source: TaskStream) -> Any:
    """As the runner does it: task by task, or the whole stream at once."""
    if strategy.whole_stream:
        strategy.train(source.avalanche().train_stream, eval_streams=[])
        return strategy
    return learn(source, strategy)


def passes(strategy: Any) -> dict[tuple[str, int], int]:
    """Image passes of each stage."""
    return {(stage.stage, stage.task): stage.image_passes for stage in strategy.seen if stage.done}


@pytest.mark.parametrize("name", METHODS)
def test_image_passes_are_as_estimated(name: str) -> None:
    """Every pass through the backbone counts, those of teachers, memories and importances too."""
    source = stream()
    strategy = train(build(name, source), source)
    factory = registry().strategies.find(name).factory
    cost = factory.cost(context(source.plan, name, SMALL))
    estimated = {(stage.name, stage.task): stage.image_passes for stage in cost.stages if stage.name != "evaluation"}
    measured = {key: count for key, count in passes(strategy).items() if count or key in estimated}
    assert measured == estimated
    assert set(cost.params_total) == {sum(parameter.numel() for parameter in strategy.model.parameters())}


def test_teacher_and_memory_cost_more_than_naive() -> None:
    """The count is of what was computed: LwF passes every later image three times."""
    source = stream()
    images = [len(task.train) for task in source.tasks]
    counted = passes(train(build("lwf", source), source))
    assert [counted["training", task] for task in range(3)] == [2 * images[0], 6 * images[1], 6 * images[2]]


def test_lwf_distils_old_heads() -> None:
    """On the new task's images the old head's answers move less with distillation, which trains that head too."""
    moved = {}
    for alpha in (0.0, 100.0):
        source = stream()
        strategy, scenario = build("lwf", source, alpha=alpha, epochs=4, weight_decay=0), source.avalanche()
        strategy.train(scenario.train_stream[0], eval_streams=[])
        images, _ = source.tasks[1].train.gather(torch.arange(len(source.tasks[1].train)))
        before, head = _answers(strategy.model, images), weights(strategy.model.heads[0])
        strategy.train(scenario.train_stream[1], eval_streams=[])
        moved[alpha] = float((_answers(strategy.model, images) - before).norm())
        assert same(weights(strategy.model.heads[0]), head) == (alpha == 0.0)
    assert moved[100.0] < moved[0.0] / 2


def _answers(model: Any, images: torch.Tensor) -> torch.Tensor:
    model.eval()
    with torch.no_grad():
        probabilities: torch.Tensor = model.forward_single_task(images, 0).softmax(dim=1)
    return probabilities


@pytest.mark.parametrize("name", ["si", "mas", "rwalk"])
def test_penalties_hold_weights(name: str) -> None:
    """The stronger the penalty, the less the weights move while the second task is learned."""
    option = {"si": "si_lambda", "mas": "lambda_reg", "rwalk": "ewc_lambda"}[name]
    moved = []
    for strength in (0.0, {"si": 1e5, "mas": 100.0, "rwalk": 10.0}[name]):
        source = stream()
        strategy, scenario = build(name, source, epochs=4, **{option: strength}), source.avalanche()
        strategy.train(scenario.train_stream[0], eval_streams=[])
        before = weights(strategy.model.backbone)
        strategy.train(scenario.train_stream[1], eval_streams=[])
        after = weights(strategy.model.backbone)
        moved.append(sum(float((after[key] - before[key]).norm() ** 2) for key in before))
    assert moved[1] < 0.9 * moved[0]


def test_si_sees_the_path() -> None:
    """On a CPU Avalanche's own SI compares weights with themselves and finds no importance; ours finds some."""
    source = stream()
    found = {}
    for kind in (stock.SynapticIntelligencePlugin, CopyingSi):
        torch.manual_seed(0)
        model = BackboneModel(nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), 4, source.plan.classes_per_task)
        plugin = kind(si_lambda=1.0)
        strategy = AvalancheStrategy(model=model, methods=[plugin], schedule=Schedule(epochs=2, batch_size=8))
        strategy.train(source.avalanche().train_stream[0], eval_streams=[])
        found[kind] = max(float(entry.data.max()) for entry in plugin.ewc_data[1].values())
    assert found[stock.SynapticIntelligencePlugin] == 0
    assert found[CopyingSi] > 0


def test_cwr_trains_each_tasks_own_head() -> None:
    """The backbone learns on the first task alone, every head in its own task alone."""
    source = stream(images=32)
    strategy, scenario = build("cwr", source, epochs=6), source.avalanche()
    for task, experience in enumerate(scenario.train_stream):
        before = weights(strategy.model)
        strategy.train(experience, eval_streams=[])
        after = weights(strategy.model)
        moved = {name for name in after if not torch.equal(after[name], before[name])}
        heads = {f"heads.{task}.weight", f"heads.{task}.bias"}
        assert moved & {name for name in after if name.startswith("heads.")} == heads
        assert (moved == heads) == (task > 0)
        assert accuracy_of(strategy.model, source, task) > 0.5


def test_from_scratch_begins_anew() -> None:
    """Each task starts from the initial weights: the second task's result does not depend on the first."""
    found = []
    for groups in ([[0, 1], [2, 3]], [[4, 5], [2, 3]]):
        source = class_stream(groups, images=16)
        strategy = build("from_scratch", source)
        initial = weights(strategy.model)
        seen: list[bool] = []
        begin = strategy.begin_training

        def watched(
            module: nn.Module, *more: Any, begin: Any = begin, initial: Any = initial, seen: Any = seen
        ) -> None:
            seen.append(same(weights(module), initial))
            begin(module, *more)

        strategy.begin_training = watched
        train(strategy, source)
        assert seen == [True, True]
        found.append(weights(strategy.model.backbone))
    assert found[0].keys() == found[1].keys()


def test_joint_sees_all_tasks_in_each_epoch() -> None:
    """Batches mix tasks, every image once per epoch; a single image left over joins the batch before it."""
    source = stream()
    scenario = source.avalanche()
    dataset: Any = scenario.train_stream[0].dataset
    for experience in scenario.train_stream[1:]:
        dataset = dataset.concat(experience.dataset)
    assert isinstance(dataset, TaskDataset) and not dataset.is_one_task
    count = len(dataset)
    for size in (5, 8, count - 1, count, count + 1):
        loader = MixedLoader(dataset, size)
        batches = list(loader)
        assert len(batches) == len(loader)
        assert sum(len(batch[1]) for batch in batches) == count
        assert min(len(batch[1]) for batch in batches) > 1
    first: Any = next(iter(MixedLoader(dataset, count)))
    assert sorted(first[2].tolist()) == sorted(t for task in source.tasks for t in [task.train.task] * len(task.train))


def test_rwalk_in_a_task_shorter_than_its_interval() -> None:
    """Scores are updated at least once in each task, so that nothing is divided by 0."""
    source = stream()
    strategy = train(build("rwalk", source, delta_t=1000), source)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in weights(strategy.model).values())


def test_missing_ones_say_why(command: Command) -> None:
    """Names not offered are in no table of those that are, and asking for one tells the reason."""
    assert not set(METHODS) & set(UNAVAILABLE)
    for name, missing in UNAVAILABLE.items():
        assert "avalanche-lib 0.6.0" in missing.reason
        assert name in registry().strategies.unavailable
    answer = command("cost", "--strategy", "lamaml")
    assert answer.status == 2
    assert "needs the package 'higher'" in answer.err


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: stock.BiCPlugin(mem_size=20), "single head"),
        (lambda: stock.GSS_greedyPlugin(mem_size=20, input_size=[1, 8, 8]), "task_labels"),
        (lambda: stock.LFLPlugin(0.1), "get_features"),
    ],
    ids=["bic", "gss_greedy", "lfl"],
)
def test_reasons_still_hold(make: Any, said: str) -> None:
    """Those that cannot be used fail as the table says; one that learns here should be offered."""
    source = class_stream([[0, 1], [2, 3]], images=16)
    model = BackboneModel(nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), 4, (2, 2))
    strategy = AvalancheStrategy(model=model, methods=[make()], schedule=Schedule(epochs=1, batch_size=8))
    with pytest.raises((AssertionError, TypeError, NotImplementedError), match=said):
        train(strategy, source)
