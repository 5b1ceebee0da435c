"""Avalanche's strategies go on between two tasks: in a new strategy, from tensors and plain values, to the last bit."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from avalanche.benchmarks.utils.utils import concat_datasets
from avalanche.training import plugins as stock
from support.tiny import all_threads, class_stream, context, one_thread, registry, same, weights
from torch import nn

from seu_bench.config.protocol import Schedule
from seu_bench.data.avalanche import TaskDataset
from seu_bench.data.images import TaskImages
from seu_bench.data.streams import TaskStream
from seu_bench.errors import CheckpointError, RunError
from seu_bench.models.backbone import BackboneModel
from seu_bench_avalanche.catalogue import METHODS
from seu_bench_avalanche.methods import MEMORIES
from seu_bench_avalanche.places import dataset_at, places_of
from seu_bench_avalanche.strategy import AvalancheStrategy

setup_module, teardown_module = one_thread, all_threads

SMALL: dict[str, Any] = {"backbone": "mlp", "width": 0.05, "epochs": 2, "batch_size": 8}
#: Penalties that are felt, and memories that are too small for all images.
FELT: dict[str, dict[str, Any]] = {
    "lwf": {"alpha": 2.0},
    "si": {"si_lambda": 1e4},
    "mas": {"lambda_reg": 10.0},
    "rwalk": {"ewc_lambda": 1.0, "delta_t": 2},
}


def stream(**more: Any) -> TaskStream:
    return class_stream([[0, 1], [2, 3, 4], [5, 6]], **({"images": 16, "test": 4} | more))


def build(name: str, source: TaskStream, **options: Any) -> Any:
    made = context(source.plan, name, SMALL | FELT.get(name, {}) | options)
    return registry().strategies.find(name).factory.build(made)


def go_on(strategy: Any, source: TaskStream, tasks: range) -> Iterator[int]:
    """Learn ``tasks`` as the runner does, from an Avalanche benchmark of its own, each followed by an evaluation."""
    scenario = source.avalanche()
    if strategy.whole_stream:
        strategy.train(scenario.train_stream, eval_streams=[scenario.streams["valid"]])
        yield len(source.tasks)
        return
    for task in tasks:
        strategy.train(scenario.train_stream[task], eval_streams=[scenario.streams["valid"]])
        strategy.eval(scenario.test_stream[: task + 1])
        yield task + 1


def saved(state: Any) -> bytes:
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def loaded(kept: bytes) -> Any:
    return torch.load(io.BytesIO(kept), weights_only=True)


def alike(one: Any, other: Any) -> bool:
    """Whether two states hold the same values of the same types, tensors to the last bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, Mapping):
        return list(one) == list(other) and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other)


def whole_run(name: str, source: TaskStream, **options: Any) -> tuple[Any, dict[int, bytes]]:
    """A run that was not interrupted, and its checkpoints, by tasks done."""
    strategy = build(name, source, **options)
    kept = {0: saved(strategy.state_dict())}
    for done in go_on(strategy, source, range(len(source.tasks))):
        kept[done] = saved(strategy.state_dict())
    return strategy, kept


def check_resuming(name: str, images: int = 16, **options: Any) -> None:
    """A run that goes on after any number of tasks ends with the weights and the memory of one that never stopped."""
    source = stream(images=images)
    whole, kept = whole_run(name, source, **options)
    assert sorted(kept) == ([0, 3] if whole.whole_stream else [0, 1, 2, 3])
    for done in sorted(kept)[:-1]:
        again = stream(images=images)
        strategy = build(name, again, **options)
        strategy.load_state_dict(loaded(kept[done]))
        assert alike(strategy.state_dict(), loaded(kept[done]))
        for _ in go_on(strategy, again, range(done, 3)):
            pass
        assert same(weights(strategy.model), weights(whole.model)), f"after {done} tasks"
        assert alike(strategy.get_extra_state(), whole.get_extra_state()), f"after {done} tasks"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in ("lwf", "mas") else pytest.mark.long) for name in METHODS]
)
def test_goes_on_between_tasks(name: str) -> None:
    """All remembered images are there again, whichever task is next."""
    check_resuming(name)


@pytest.mark.parametrize(
    ("name", "backbone"),
    [
        *(pytest.param(name, "resnet18", marks=pytest.mark.long) for name in ("rwalk", "cwr")),
        ("lwf", "resnet18"),
        ("lwf", "alexnet"),
    ],
)
def test_goes_on_with_normalisation_and_dropout(name: str, backbone: str) -> None:
    """Copies of the model have its buffers, and are in its mode."""
    check_resuming(name, images=8, backbone=backbone, width=0.02, epochs=1)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_state_is_a_copy(name: str) -> None:
    """A saved state stays as it was while the strategy continues, and after it was loaded again."""
    source = stream()
    strategy = build(name, source)
    for _ in go_on(strategy, source, range(2)):
        pass
    state = strategy.get_extra_state()
    kept = saved(state)
    other = build(name, source)
    other.load_state_dict(loaded(saved(strategy.state_dict())) | {"own": state})
    for each in (strategy, other):
        for _ in go_on(each, source, range(2, 3)):
            pass
    assert alike(state, loaded(kept))


def test_every_strategy_has_a_memory() -> None:
    """None is forgotten, and none can be gone on from within a task."""
    assert set(MEMORIES) >= set(METHODS)
    source = stream()
    assert not any(build(name, source).resumes_within_tasks for name in METHODS)


def test_places_find_the_same_images() -> None:
    """In their order, whatever was concatenated and picked before; also none at all."""
    scenario = stream().avalanche()
    first, second, third = (experience.dataset for experience in scenario.train_stream)
    mixed = concat_datasets([third.subset([4, 2]), first.subset([5, 5, 0])]).subset([3, 1, 0, 4])
    nested = concat_datasets([first.concat(second), second.concat(third)])
    for dataset in (first, mixed, second.subset([]), concat_datasets([second, first]), nested):
        found = dataset_at(places_of(dataset), stream().avalanche().train_stream)
        assert len(found) == len(dataset)
        assert list(found.targets) == list(dataset.targets)
        assert list(found.targets_task_labels) == list(dataset.targets_task_labels)
        for one, other in zip(found, dataset, strict=True):
            assert torch.equal(one[0], other[0]) and int(one[1]) == int(other[1]) and one[2] == other[2]
    assert places_of(mixed).tolist() == [[0, 5], [2, 2], [2, 4], [0, 0]]


@dataclass
class Experience:
    """All that is read of one."""

    dataset: Any


def _task(labels: Sequence[int], task: int) -> Any:
    images = TaskImages(torch.zeros(len(labels), 1, 2, 2), torch.arange(len(labels)), torch.tensor(labels), task, 1)
    return TaskDataset.of(images)


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("mas", lambda memory: memory["importances"].update({"heads.0.bias": torch.zeros(1)})),
        ("mas", lambda memory: memory["importances"].update(nothing=torch.zeros(1))),
        ("si", lambda memory: memory["sums"].clear() or memory["sums"].update(nothing=torch.zeros(1))),
        ("from_scratch", lambda memory: memory["initial"].clear()),
        ("lwf", lambda memory: memory["tasks"].append(3)),
    ],
)
def test_state_of_another_run_is_refused(name: str, spoil: Any) -> None:
    """With a sentence, before anything is learned from it."""
    source = stream()
    first = build(name, source)
    for _ in go_on(first, source, range(1)):
        pass
    state = first.state_dict()
    spoil(state["own"]["memory"])
    second = build(name, source)
    second.load_state_dict(state)
    before = weights(second.model)
    with pytest.raises(CheckpointError, match="does not fit what the strategy remembers"):
        next(go_on(second, source, range(1, 2)))
    assert same(weights(second.model), before)


def test_what_cannot_be_kept_says_so() -> None:
    """A strategy put together by hand has no memory of ours; images of other benchmarks cannot be found again."""
    model = BackboneModel(nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), 4, (2, 2, 2))
    made = AvalancheStrategy(model=model, methods=[stock.LwFPlugin()], schedule=Schedule(epochs=1, batch_size=8))
    for attempt in (made.get_extra_state, lambda: made.set_extra_state({})):
        with pytest.raises(RunError, match="cannot be saved\n  where: LwFPlugin"):
            attempt()
    state = build("lwf", stream()).state_dict()
    with pytest.raises(CheckpointError, match="does not fit"):
        build("lwf", stream()).load_state_dict(state | {"own": {"randomness": {}}})
    plain = concat_datasets([torch.utils.data.TensorDataset(torch.zeros(3, 1), torch.zeros(3))])
    with pytest.raises(RunError, match="cannot be found again"):
        places_of(plain)
    part = Experience(_task([0, 1, 1], 0).subset([1, 2]))
    with pytest.raises(RunError, match="cannot be found again"):
        dataset_at(torch.tensor([[0, 0]]), [part])
