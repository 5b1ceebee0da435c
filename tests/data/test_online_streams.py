"""Online streams: every image once, in segments that share classes, against direct counts of labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.streams import ALL, UNCHANGED, everything, made
from support.tiny import benchmark, raw_dataset

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.protocol import ImageLimits
from seu_bench.data.dataset import RawDataset
from seu_bench.data.planning import plan_stream
from seu_bench.data.streams import TaskStream
from seu_bench.errors import RequestError, SpecError


def spec(**stream: Any) -> BenchmarkSpec:
    given = {"kind": "online", "dataset": "tiny", "input": UNCHANGED, **stream}
    return benchmark(given, protocol={"training": {"epochs": 1}})


def dataset(train: Sequence[int], test: Sequence[int]) -> RawDataset:
    """A data set of so many images of each class, whose first two pixels are the number of an image."""
    data = raw_dataset(train, test, size=2)
    for split, first in ((data.train, 0), (data.test, len(data.train))):
        numbers = first + np.arange(len(split))
        split.images[:, 0, 0] = np.stack([numbers % 256, numbers // 256], axis=1)
    return data


#: Eleven classes, which neither 3 segments nor halves divide; and a hundred.
UNEQUAL = dataset([40, 7, 200, 31, 64, 90, 12, 55, 1, 23, 100], [3, 5, 1, 2, 9, 4, 6, 2, 2, 8, 3])
HUNDRED = dataset([50] * 100, [2] * 100)
TWENTY = dataset([50] * 20, [3] * 20)


def rows(stream: TaskStream, split: str = "train") -> list[list[int]]:
    """The numbers of the images of each segment."""
    pixels = [(everything(getattr(task, split))[0] * 255).round().int() for task in stream.tasks]
    return [(it[:, 0, 0, 0] + 256 * it[:, 0, 0, 1]).tolist() for it in pixels]


def counted(stream: TaskStream, data: RawDataset, split: str = "train") -> Any:
    """How many images of each class each segment has, ``[segments, classes]``."""
    labels = np.concatenate([data.train.labels, data.test.labels])
    return np.array([np.bincount(labels[part], minlength=data.info.num_classes) for part in rows(stream, split)])


@pytest.mark.parametrize("data", [UNEQUAL, HUNDRED], ids=["unequal", "hundred"])
@pytest.mark.parametrize(("tasks", "disjoint", "blur"), [(5, 0.5, 0.1), (3, 0.3, 0.5), (4, 0.0, 0.3), (5, 1.0, 0.1)])
def test_each_image_is_in_one_segment(data: RawDataset, tasks: int, disjoint: float, blur: float) -> None:
    """All images of a disjoint class in the one that tests it; of another class the share ``1 - blur``, and the rest in
    the others, as evenly as it goes."""
    stream = made(spec(tasks=tasks, disjoint=disjoint, blur=blur, class_order="natural"), data)
    assert sorted(np.concatenate(rows(stream)).tolist()) == list(range(len(data.train)))
    counts, tested = counted(stream, data), counted(stream, data, "test")
    for label in range(data.info.num_classes):
        own, images = label % tasks, int((data.train.labels == label).sum())
        assert tested[own, label] == tested[:, label].sum() == (data.test.labels == label).sum()
        others = np.delete(counts[:, label], own)
        if label < round(disjoint * data.info.num_classes):
            assert counts[own, label] == images and not others.any()
        else:
            assert counts[own, label] == round((1 - blur) * images)
            assert abs(others - blur * images / (tasks - 1)).max() <= 1
    assert [task.num_train for task in stream.plan.tasks] == counts.sum(axis=1).tolist()
    assert [task.num_valid for task in stream.plan.tasks] == [0] * tasks


def test_shares_of_a_balanced_set() -> None:
    """i-Blurry-50-10 in five segments of 20 classes: half of the classes whole, of the others 45 of 50 and 5 of 50."""
    counts = counted(made(spec(), HUNDRED), HUNDRED)
    assert Counter(counts.max(axis=0).tolist()) == {50: 50, 45: 50}
    assert (counts > 0).sum(axis=1).tolist() == [60] * 5 and counts.sum(axis=1).tolist() == [1000] * 5
    assert Counter(counts[(counts > 0) & (counts < 45)].tolist()) == {1: 150, 2: 50}


def test_the_head_grows_with_classes_and_answers_are_of_one_numbering() -> None:
    data = TWENTY
    stream = made(spec(class_order="natural"), data)
    assert stream.plan.online and stream.plan.scenario == "class" and stream.plan.repeats_classes
    assert stream.plan.classes_per_task == (12, 2, 2, 2, 2)
    assert [task.class_names[:4] for task in stream.plan.tasks][:2] == [("0", "5", "10", "15"), ("1", "6")]
    numbers = {name: place for place, name in enumerate(name for it in stream.plan.tasks for name in it.class_names)}
    labels = np.concatenate([data.train.labels, data.test.labels])
    for split in ("train", "test"):
        for task, own in zip(stream.tasks, rows(stream, split), strict=True):
            assert getattr(task, split).labels.tolist() == [numbers[str(label)] for label in labels[own]]
    for task, plan in zip(stream.tasks, stream.plan.tasks, strict=True):
        assert set(plan.test_labels) == set(task.test.labels.tolist()) and len(plan.test_labels) == 4
    experiences = stream.avalanche().streams
    assert len(experiences["train"][3].classes_in_this_experience) == 12
    assert experiences["test"][3].classes_in_this_experience == list(stream.plan.tasks[3].test_labels)


def test_the_seed_decides() -> None:
    """The same seed gives the same stream; another one other classes, or, in an order of its own, other images."""
    first, again, other = (made(spec(), TWENTY, seed) for seed in (1, 1, 2))
    assert rows(first) == rows(again)
    assert [task.name for task in first.plan.tasks] != [task.name for task in other.plan.tasks]
    mine, yours = (made(spec(class_order=1993), TWENTY, seed) for seed in (1, 2))
    assert [task.name for task in mine.plan.tasks] == [task.name for task in yours.plan.tasks]
    assert sorted(rows(mine)[0]) != sorted(rows(yours)[0])


@pytest.mark.parametrize("limits", [ImageLimits(train=30, test=5), ImageLimits(train_per_class=20, valid_per_class=5)])
def test_limits_keep_one_pass_and_the_blur(limits: ImageLimits) -> None:
    """Fewer images, none of them twice; by class the shares are of those."""
    stream = made(spec(), TWENTY, limits=limits)
    seen = np.concatenate(rows(stream)).tolist()
    assert len(set(seen)) == len(seen) == (150 if limits.train else 400)
    assert [task.num_valid for task in stream.plan.tasks] == [0] * 5
    assert plan_stream(spec(), {"tiny": TWENTY.info}, limits, 0) == stream.plan
    if limits.train_per_class:
        assert Counter(counted(stream, TWENTY).max(axis=0).tolist()) == {20: 10, 18: 10}


def test_sizes_without_counts_by_class() -> None:
    """Where a source does not know how many images a class has, they count as balanced."""
    unknown = replace(TWENTY.info, train_per_class=None, test_per_class=None)
    sizes = [(it.num_train, it.num_test) for it in plan_stream(spec(), {"tiny": unknown}, ALL, 0).tasks]
    assert sizes == [(it.num_train, it.num_test) for it in made(spec(), TWENTY).plan.tasks]


def test_refused() -> None:
    """More segments than classes; validation images; further epochs; another scenario."""
    with pytest.raises(RequestError, match="has 5 tasks, and 'tiny' has 4 classes"):
        plan_stream(spec(), {"tiny": raw_dataset([9] * 4, [2] * 4).info}, ALL, 0)
    stream = {"kind": "online", "dataset": "digits"}
    with pytest.raises(SpecError, match="seen once"):
        BenchmarkSpec.of(stream, name="mine", protocols={"quick": {"training": {"epochs": 3}}})
    for key, value in (("validation", 0.1), ("scenario", "domain"), ("tasks", 1), ("blur", 1.5)):
        with pytest.raises(SpecError, match=f"stream.{key}"):
            BenchmarkSpec.of({**stream, key: value}, name="mine")
    protocols = BenchmarkSpec.of(stream, name="mine", protocols={"own": {"training": {"epochs": 1}}}).protocols
    assert {it.training.epochs for it in protocols.values()} == {1} and "own" in protocols
