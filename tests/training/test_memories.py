"""Memories of images: which stay, which are drawn, their bytes and their state, against direct computations."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from support.tiny import class_stream, one_thread
from torch import Tensor

from seu_bench.config.streams import Augmentation
from seu_bench.data.images import Augmenter, TaskImages
from seu_bench.training.memories import Balanced, Herded, Memory, Reservoir, Ring, as_wide, herd
from seu_bench.training.monitoring import bytes_by_kind
from seu_bench.training.state import difference

setup_module = one_thread

ALL = [lambda: Balanced(7), lambda: Balanced(7, by="task"), lambda: Ring(7), lambda: Reservoir(7)]


def table(labels: Sequence[int], task: int = 0, first: int = 0, **more: Any) -> TaskImages:
    """Images of 1x1x2 whose first pixel is their number, counted from ``first``."""
    numbers = torch.arange(first, first + len(labels), dtype=torch.float32)
    store = torch.stack([numbers, numbers + 0.5], dim=1).view(-1, 1, 1, 2)
    return TaskImages(store, torch.arange(len(labels)), torch.tensor(labels), task, 1, **more)


def numbers(memory: Memory) -> list[int]:
    """The numbers of the images in a memory, in its order."""
    return [int(it) for it in memory.all_images().x[:, 0, 0, 0]] if len(memory) else []


def show(memory: Any, *tables: TaskImages) -> Any:
    """Show the images of tasks, one after another, as a method does."""
    for images in tables:
        memory.begin_task(images)
        memory.add_images(images)
    return memory


def batch(first: int, count: int, **more: Tensor) -> dict[str, Tensor]:
    """A batch of a reservoir, of images whose pixels are their number."""
    x = torch.arange(first, first + count, dtype=torch.float32).view(-1, 1, 1, 1)
    return {"x": x, "y": torch.arange(first, first + count) % 3, "task": torch.zeros(count, dtype=torch.int64)} | more


def expect_uniform(counts: Counter[int], images: int) -> None:
    """No image was kept more often than another; a wrong sampler fails, a right one in one of 10,000 seeds."""
    assert set(counts) == set(range(images))
    assert chisquare([counts[number] for number in range(images)]).pvalue > 1e-4


@pytest.mark.parametrize("size", [1, 2, 5])
def test_reservoir_is_a_uniform_sample(size: int) -> None:
    """Whatever the batches: each of 5 images is among the 2 kept equally often."""
    counts: Counter[int] = Counter()
    for _ in range(600):
        memory = Reservoir(2)
        for first in range(0, 5, size):
            memory.add(**batch(first, min(size, 5 - first)))
        assert len(memory) == 2 and memory.seen == 5
        counts.update(numbers(memory))
    expect_uniform(counts, 5)


def test_reservoir_keeps_images_whole() -> None:
    """All that is remembered of an image stays together, whatever is replaced."""
    memory = Reservoir(6)
    for first in range(0, 60, 8):
        memory.begin_task(table([0], first // 8))
        memory.add(**batch(first, 8, logits=torch.arange(first, first + 8.0).view(-1, 1).expand(-1, 2)))
    kept = memory.all_images()
    found = kept.x.flatten()
    assert torch.equal(kept.logits, found.view(-1, 1).expand(-1, 2)) and torch.equal(kept.y, found.long() % 3)
    assert torch.equal(kept.origin, found.long() // 8)


def test_logits_are_widened() -> None:
    """Where classes are added, outputs that were not there have the lowest number."""
    memory, lowest = Reservoir(10), torch.finfo(torch.float32).min
    memory.add(**batch(0, 2, logits=torch.zeros(2, 2)))
    memory.add(**batch(2, 1, logits=torch.ones(1, 3)))
    memory.add(**batch(3, 1, logits=torch.full((1, 1), 2.0)))
    expected = [[0, 0, lowest], [0, 0, lowest], [1, 1, 1], [2, lowest, lowest]]
    assert memory.all_images().logits.tolist() == expected
    same = torch.zeros(2, 2)
    assert as_wide(same, torch.ones(1, 2))[0] is same


def groups(memory: Memory) -> dict[tuple[int, int], int]:
    """Images by task label and class."""
    kept = memory.all_images()
    return dict(Counter(zip(kept.task.tolist(), kept.y.tolist(), strict=True)))


@pytest.mark.parametrize("kind", [Balanced, Ring])
@settings(max_examples=25, deadline=None)
@given(
    tasks=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=20), min_size=1, max_size=4),
    capacity=st.integers(1, 25),
    by=st.sampled_from(["class", "task"]),
    each=st.booleans(),
)
def test_no_group_has_more_than_its_share(
    kind: Any, tasks: list[list[int]], capacity: int, by: Any, each: bool
) -> None:
    """After each task; a group that was never larger than its share is there whole."""
    memory = kind(each=capacity, by=by) if each else kind(capacity, by=by)
    sizes: dict[Any, int] = {}
    for task, labels in enumerate(tasks):
        show(memory, table(labels, task, 100 * task))
        for label in labels:
            key = task if by == "task" else (task, label)
            sizes[key] = sizes.get(key, 0) + 1
        kept = memory.all_images()
        found = Counter(kept.origin.tolist() if by == "task" else zip(kept.task.tolist(), kept.y.tolist(), strict=True))
        for number, key in enumerate(sorted(sizes)):
            assert found[key] == min(sizes[key], memory.room(number, len(sizes))), (key, sizes)
        assert each or len(memory) <= capacity
    assert len(set(numbers(memory))) == len(memory)


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (Balanced(7), {(0, 0): 2, (0, 1): 2, (1, 0): 2, (1, 1): 1}),
        (Balanced(7, by="label"), None),
        (Balanced(each=3), {(0, 0): 3, (0, 1): 3, (1, 0): 3, (1, 1): 3}),
        (Ring(8), {(0, 0): 2, (0, 1): 2, (1, 0): 2, (1, 1): 2}),
        (Herded(7), {(0, 0): 1, (0, 1): 1, (1, 0): 1, (1, 1): 1}),
    ],
)
def test_classes_that_tasks_count_from_0_are_their_own(memory: Any, expected: dict[Any, int] | None) -> None:
    for task in range(2):
        images = table([0, 1] * 8, task)
        memory.begin_task(images)
        memory.add_images(images, *([lambda x: x.flatten(1)] if isinstance(memory, Herded) else []))
    if expected is None:  # one share for each number, whichever tasks they are of
        assert Counter(memory.all_images().y.tolist()) == {0: 4, 1: 3}
    else:
        assert groups(memory) == expected


def test_the_newest_images_stay_in_a_ring() -> None:
    """Of each group, the newest first; also where a class comes back."""
    memory = show(Ring(each=3), table([0, 1, 0, 1, 0, 0]))
    assert numbers(memory) == [5, 4, 2, 3, 1]
    show(memory, table([0, 1], 0, 6))
    assert numbers(memory) == [6, 5, 4, 7, 3, 1]
    assert numbers(show(Ring(4, by="task"), table([0] * 6), table([0] * 6, 1, 6))) == [5, 4, 11, 10]


@pytest.mark.parametrize("seed", range(4))
def test_each_exemplar_is_the_best_next_one(seed: int) -> None:
    """By trying every image that is left (algorithm 4 of iCaRL)."""
    known = torch.randn(9, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    known /= known.norm(dim=1, keepdim=True)
    mean, chosen = known.mean(dim=0), list[int]()
    for _ in range(6):
        left = [image for image in range(9) if image not in chosen]
        chosen.append(min(left, key=lambda it: float((mean - known[[*chosen, it]].mean(dim=0)).norm())))
    assert herd(known, 6).tolist() == chosen
    assert sorted(herd(known, 20).tolist()) == list(range(9))


def test_herded_images_of_each_class_in_their_order() -> None:
    """Those of earlier classes are their most important ones; a class that comes back is chosen anew."""

    def features(x: Tensor) -> Tensor:
        return torch.stack([x.flatten(1)[:, 0].sin(), x.flatten(1)[:, 0].cos()], dim=1)

    def best(candidates: list[int], count: int) -> list[int]:
        chosen = herd(features(torch.tensor(candidates, dtype=torch.float32).view(-1, 1)), count)
        return [candidates[place] for place in chosen.tolist()]

    memory, first = Herded(6), table([0, 1] * 5)
    memory.add_images(first, features)
    zeros, ones = best([0, 2, 4, 6, 8], 3), best([1, 3, 5, 7, 9], 3)
    assert numbers(memory) == [*zeros, *ones]
    memory.add_images(table([2, 2, 0], 0, 10), features)
    assert numbers(memory) == [*best([*zeros, 12], 2), *ones[:2], *best([10, 11], 2)]


@pytest.mark.parametrize("make", ALL)
def test_state_comes_back_to_the_bit(make: Any) -> None:
    """The state is a copy; a memory that was made again from it goes on as the first one does."""
    one, other = make(), make()
    assert difference(one.state_dict(), other.state_dict()) is None and len(one) == 0
    show(one, table([0, 1, 2] * 4), table([0, 1] * 4, 1, 12))
    state = one.state_dict()
    kept = copy.deepcopy(state)
    other.load_state_dict(state)
    third = table([2, 0] * 20, 2, 20)
    for memory in (one, other):
        torch.manual_seed(1)
        show(memory, third)
    assert difference(one.state_dict(), other.state_dict()) is None
    assert difference(one.state_dict()["fields"], kept["fields"]) is not None and difference(state, kept) is None


@pytest.mark.parametrize(
    ("memory", "more"), [(Balanced(200, by="task"), 4), (Ring(each=100, by="task"), 0), (Reservoir(200), 0)]
)
def test_bytes(memory: Any, more: int) -> None:
    """8 bits of each pixel as the data set has it, labels, and the priority of balanced memories."""
    stream = class_stream([(0, 1), (2, 3)])
    assert memory.kept(stream.plan) == {}
    show(memory, *(task.train for task in stream.tasks))
    images = sum(len(task.train) for task in stream.tasks)
    assert len(memory) == images
    assert bytes_by_kind(memory.kept(stream.plan)) == {"exemplars": images * (8 * 8 + 2 + more)}


def test_bytes_of_images_of_several_data_sets() -> None:
    """Each as its own data set has it, also where learners are not told tasks."""
    plan = class_stream([(0, 1), (2, 3)]).plan
    tasks = tuple(replace(task, stored_channels=channels) for task, channels in zip(plan.tasks, (1, 3), strict=True))
    plan = replace(plan, tasks=tasks)
    memory = show(Ring(5, by="task"), *(table([0] * 9, task, hides_task=True) for task in range(2)))
    assert bytes_by_kind(memory.kept(plan)) == {"exemplars": 3 * (64 + 2) + 2 * (3 * 64 + 2)}


def flipping() -> Augmenter:
    """Mirrors each second image."""
    return Augmenter(Augmentation(flip=True), torch.zeros(1), torch.ones(1), torch.zeros(1))


@pytest.mark.parametrize("make", ALL)
def test_images_of_tasks_are_augmented_when_drawn(make: Any) -> None:
    """Anew each time; in the memory, and in its bytes, they are as they were."""
    memory = show(make(), table([0] * 7, augmenter=flipping()))
    found = torch.cat([memory.draw(7).x for _ in range(20)])[:, 0, 0]
    mirrored = found[:, 0] > found[:, 1]
    assert 0.2 < float(mirrored.float().mean()) < 0.8
    assert torch.equal(found.sort(dim=1).values[:, 1] - found.sort(dim=1).values[:, 0], torch.full((140,), 0.5))
    kept = memory.all_images().x[:, 0, 0]
    assert bool((kept[:, 0] < kept[:, 1]).all())
    (images,) = memory.tables()
    assert images.augmenter is not None and torch.equal(images.gather(torch.arange(7))[0][:, 0, 0], kept)


def test_draws_are_uniform_and_without_repetition() -> None:
    memory, counts = show(Balanced(9), table([0] * 9)), Counter[int]()
    for _ in range(400):
        drawn = memory.draw(4)
        assert len(drawn) == 4 == len(set(drawn.x[:, 0, 0, 0].tolist()))
        counts.update(int(it) for it in drawn.x[:, 0, 0, 0])
    expect_uniform(counts, 9)
    assert len(memory.draw(100)) == 9


def test_classes_of_learners_that_are_not_told_tasks_are_one() -> None:
    """A class that comes back has one share, and its sample is uniform over both tasks."""
    counts: Counter[int] = Counter()
    for _ in range(400):
        memory = show(Balanced(8), *(table([0] * 6 + [1] * 6, task, 12 * task, hides_task=True) for task in range(2)))
        assert groups(memory) == {(0, 0): 4, (0, 1): 4}
        counts.update(numbers(memory))
    expect_uniform(counts, 24)
