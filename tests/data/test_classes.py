"""Classes: by number and by name, of which task and in which scenario, told to learners, and coming back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from support.streams import ALL, UNCHANGED, classes_spec
from support.tiny import benchmark, raw_dataset

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.protocol import ImageLimits
from seu_bench.config.streams import Scenario
from seu_bench.data.avalanche import BatchLoader, MixedBatches, task_images
from seu_bench.data.dataset import DatasetInfo, RawDataset
from seu_bench.data.planning import StreamPlan, plan_stream
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.data.tasks import class_names, number_classes, ordered_tasks, task_title
from seu_bench.errors import RequestError
from seu_bench.testing.streams import class_split
from seu_bench_benchmarks.datasets import DATASETS

FLOWERS = DatasetInfo("flowers", 3, 8, 8, 4, 400, 40, class_names=("daisy", "rose", "sunflower", "tulip"))
NUMBERS = replace(FLOWERS, class_names=None)


def flowers(groups: Any = None, order: Any = "fixed", **stream: Any) -> BenchmarkSpec:
    given = {"kind": "classes", "dataset": "flowers", "groups": groups, "order": order, **stream}
    data = {"flowers": {"kind": "folder", "path": "/images/flowers", "size": 8}}
    return BenchmarkSpec.model_validate({"name": "mine", "stream": given, "datasets": data, "protocols": {"paper": {}}})


def plan(spec: BenchmarkSpec, info: DatasetInfo = FLOWERS) -> StreamPlan:
    return plan_stream(spec, {"flowers": info}, ImageLimits(), seed=0)


@pytest.mark.parametrize("groups", [[["rose", "daisy"], ["tulip"]], [[1, "daisy"], ["tulip"]], [["rose", 0], [3]]])
def test_names_are_numbers(groups: Any) -> None:
    """Names, numbers and both: one benchmark, of one identity and so of one run id."""
    plain, named = flowers([[1, 0], [3]]), flowers(groups)
    assert number_classes(named, {"flowers": FLOWERS}.__getitem__).identity() == plain.identity()
    assert number_classes(plain, {}.__getitem__) == plain
    assert plan(named) == plan(plain)


def test_tasks_show_names() -> None:
    """In the order of the outputs; where the data set has no names, numbers."""
    spec = flowers([["tulip", "daisy"], ["rose", "sunflower"]])
    assert [(task.name, task.class_names) for task in plan(spec).tasks] == [
        ("tulip, daisy", ("tulip", "daisy")),
        ("rose, sunflower", ("rose", "sunflower")),
    ]
    unnamed = plan(flowers(classes_per_task=2), NUMBERS)
    assert [(task.name, task.class_names) for task in unnamed.tasks] == [
        ("classes 0-1", ("0", "1")),
        ("classes 2-3", ("2", "3")),
    ]


def test_titles() -> None:
    cifar = DATASETS["cifar100"].info(None)
    assert task_title(range(20), cifar) == "apple ... cattle (20 classes)"
    assert task_title([0, 2], DATASETS["fashion_mnist"].info(None)) == "T-shirt/top, Pullover"
    assert task_title([4, 5], DATASETS["digits"].info(None)) == "classes 4-5"
    years = replace(FLOWERS, class_names=("1990", "2000", "a", "b"))
    assert task_title([0, 1], years) == "classes 1990, 2000"  # not to be taken for numbers of classes
    assert class_names(FLOWERS, [3, 7]) == ("tulip",)


def refusal(spec: BenchmarkSpec, info: DatasetInfo = FLOWERS) -> RequestError:
    with pytest.raises(RequestError) as caught:
        plan(spec, info)
    return caught.value


def test_names_that_are_none() -> None:
    """With what may have been meant, and all that there are, the key and the folder."""
    error = refusal(flowers([["dasy", "rose"], ["tulip"]]))
    assert "'dasy' is no class of it (did you mean 'daisy'?)" in error.what and "'rose' is" not in error.what
    assert error.where == "stream.groups of benchmark 'mine', data set 'flowers' in /images/flowers"
    assert "daisy, rose, sunflower, tulip" in str(error.remedy)
    twice = replace(FLOWERS, class_names=("crane", "crane", "rose", "tulip"))
    assert "'crane' is the name of several classes" in refusal(flowers([["crane"]]), twice).what
    assert "have no names" in str(refusal(flowers([["rose"]]), NUMBERS).remedy)
    assert "3 'tulip' is there twice" in refusal(flowers([["daisy", "rose"], [2, 3, "tulip"]])).what


def named(names: str | None = None, *, classes: int = 2, seed: int = 0, name: str = "tiny") -> RawDataset:
    """Twelve training and five test images of each class, with these names."""
    names = names or None
    known = tuple(names.split()) if names else None
    count = len(known) if known else classes
    data = raw_dataset([12] * count, [5] * count, seed=seed, name=name)
    return replace(data, info=replace(data.info, class_names=known))


def sequence(scenario: str, first: dict[str, Any] | None = None, second: dict[str, Any] | None = None) -> BenchmarkSpec:
    """Two tasks, of the data sets ``one`` and ``two``."""
    tasks = {"a": {"dataset": "one", **(first or {})}, "b": {"dataset": "two", **(second or {})}}
    table = {name: {"input": UNCHANGED, **task} for name, task in tasks.items()}
    return benchmark({"kind": "datasets", "scenario": scenario, "validation": 0.25, "tasks": table})


def made_of(spec: BenchmarkSpec, one: RawDataset, two: RawDataset | None = None, **more: Any) -> TaskStream:
    return build_stream(spec, lambda name: one if two is None or name == "one" else two, ALL, 0, **more)


def label_of(stream: TaskStream, task: int, data: RawDataset, label: int) -> set[int]:
    """Labels in a task of the images that have a label in the data set, test images in their order."""
    labels = stream.tasks[task].test.labels
    return set(labels[torch.from_numpy(data.test.labels == label)].tolist())


def test_a_class_has_one_output_whatever_data_set_it_is_of() -> None:
    """By its name, at whatever place of its data set; outputs are numbered as classes are first learned."""
    one, two = named("cat dog"), named("ant dog", seed=3)
    stream = made_of(sequence("class"), one, two)
    assert [task.labels for task in stream.plan.tasks] == [(0, 1), (2, 1)]
    assert stream.plan.classes_per_task == (2, 1) and stream.plan.repeats_classes
    assert [task.class_names for task in stream.plan.tasks] == [("cat", "dog"), ("ant",)]
    assert label_of(stream, 0, one, 1) == label_of(stream, 1, two, 1) == {1}
    assert label_of(stream, 1, two, 0) == {2}
    again = stream.avalanche().streams["train"][1]
    assert again.classes_in_this_experience == [2, 1]


def test_without_names_a_number_is_a_class_of_its_data_set() -> None:
    spec = classes_spec(groups=[[0, 1], [2, 1]], scenario="class", order="fixed", validation=0.25)
    stream = made_of(spec, named(classes=3))
    assert [task.labels for task in stream.plan.tasks] == [(0, 1), (2, 1)]
    overlapping = {"dataset": "one", "labels": [1, 0]}
    assert made_of(sequence("class", None, overlapping), named()).plan.classes_per_task == (2, 0)
    wider = made_of(sequence("class", {"classes": 4}, overlapping), named())  # outputs that no image is of
    assert [(task.labels, task.num_train) for task in wider.plan.tasks] == [((0, 1, 2, 3), 18), ((1, 0), 18)]


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_no_image_trains_one_task_and_validates_another(scenario: str) -> None:
    """A class of two tasks has all of its images in both, in the same split; sizes are as planned."""
    spec = classes_spec(groups=[[0, 1], [1, 2], [3]], scenario=scenario, order="fixed", validation=0.25)
    data = named(classes=4)
    stream = made_of(spec, data)
    trained, validated = (
        [set(getattr(task, split).rows.tolist()) for task in stream.tasks] for split in ("train", "valid")
    )
    assert not set().union(*trained) & set().union(*validated)
    assert trained[0] & trained[1] and validated[0] & validated[1]
    assert [(len(x), len(y)) for x, y in zip(trained, validated, strict=True)] == [(18, 6), (18, 6), (9, 3)]
    planned = plan_stream(spec, {"tiny": data.info}, ALL, 0)
    assert planned.tasks == stream.plan.tasks


def test_domains_share_classes_by_name() -> None:
    """At whatever place of its data set a class is."""
    one, two = named("cat dog"), named("dog cat", seed=3)
    stream = made_of(sequence("domain"), one, two)
    assert label_of(stream, 0, one, 0) == label_of(stream, 1, two, 1) == {0}
    assert label_of(stream, 0, one, 1) == label_of(stream, 1, two, 0) == {1}
    assert stream.plan.tasks[1].class_names == ("cat", "dog")
    shown = made_of(sequence("domain", None, {"labels": [0, 1]}), one, two)
    assert torch.equal(shown.tasks[1].test.labels, stream.tasks[1].test.labels)


@pytest.mark.parametrize("labels", [None, [0, 1]])
def test_domains_of_other_names_are_refused(labels: list[int] | None) -> None:
    with pytest.raises(RequestError, match="task 'b' has 'ant', which earlier ones do not have") as error:
        made_of(sequence("domain", None, {"labels": labels}), named("cat dog"), named("ant cat"))
    assert "same names and places in all tasks" in str(error.value.remedy)


def test_domains_of_groups_share_classes_by_place() -> None:
    """First and second class of a group; one class is not both."""
    data = named(classes=4)
    parts = ordered_tasks(classes_spec(groups=[[0, 1], [2, 3], [1, 0]], scenario="domain"), {"tiny": data.info}, 0)
    assert {part.index: part.labels for part in parts} == {0: (0, 1), 1: (2, 3), 2: (0, 1)}
    with pytest.raises(
        RequestError, match="task 'classes 1-2' has 1, which earlier ones do not have, or have at another"
    ):
        made_of(classes_spec(groups=[[0, 1], [1, 2]], scenario="domain"), data)


def test_names_are_part_of_the_fingerprint_where_they_decide() -> None:
    """Not where each task has a head of its own."""
    for scenario, differ in (("class", True), ("domain", True), ("task", False)):
        found = {
            made_of(sequence(scenario), named("cat dog"), named(names)).fingerprint for names in ("cat dog", "dog cat")
        }
        assert (len(found) == 2) is differ, scenario


@pytest.mark.parametrize(
    ("keys", "sizes"),
    [
        ({"classes_per_task": 3}, [3, 3, 1]),
        ({"first": 4, "classes_per_task": 2}, [4, 2, 1]),
        ({"first": 4, "classes_per_task": 3}, [4, 3]),
        ({"first": 1, "then": 3}, [1, 3, 3]),
        ({"first": 7, "classes_per_task": 3}, [7]),
        ({"classes_per_task": 7}, [7]),
    ],
)
def test_tasks_of_unequal_size(keys: dict[str, int], sizes: list[int]) -> None:
    """The first stays the first and what is left the last, in whatever order those between are learned."""
    info = {"tiny": named(classes=7).info}
    for seed in range(5):
        for order in ("shuffled", "fixed"):
            parts = ordered_tasks(classes_spec(**keys, order=order), info, seed)
            assert [len(part.labels) for part in parts] == sizes
            assert sorted(label for part in parts for label in part.labels) == list(range(7))


GROUPS = [[4, 1], [0, 3], [5, 2]]


def scenario_spec(scenario: Scenario, groups: list[list[int]] | None = None, **stream: Any) -> BenchmarkSpec:
    """A benchmark of tasks in this order."""
    table = {**class_split(groups or GROUPS), "scenario": scenario, **stream}
    return BenchmarkSpec.model_validate({"name": "tiny", "stream": table, "protocols": {"paper": {}}})


def scenario_stream(scenario: Scenario, groups: list[list[int]] | None = None) -> TaskStream:
    """The stream in memory."""
    data = raw_dataset([12] * 6, [5] * 6)
    return build_stream(scenario_spec(scenario, groups), lambda _: data, ImageLimits(), 0)


def test_class_incremental_labels_are_numbered_through_in_the_order_of_learning() -> None:
    """Task i has the labels from its first class on; the images are those of the other scenarios."""
    by_class, by_task = scenario_stream("class"), scenario_stream("task")
    assert [task.labels for task in by_class.plan.tasks] == [(0, 1), (2, 3), (4, 5)]
    assert [task.labels for task in by_task.plan.tasks] == [(0, 1)] * 3
    for place, (one, other) in enumerate(zip(by_class.tasks, by_task.tasks, strict=True)):
        for split in ("train", "valid", "test"):
            mine, its = getattr(one, split), getattr(other, split)
            assert torch.equal(mine.labels, its.labels + 2 * place)
            assert torch.equal(mine.rows, its.rows)
    assert by_class.tasks[1].train.labels.unique().tolist() == [2, 3]


@pytest.mark.parametrize(("scenario", "told"), [("task", [0, 1, 2]), ("class", [0, 0, 0]), ("domain", [0, 0, 0])])
def test_task_labels_are_told_in_the_task_incremental_scenario_alone(scenario: Scenario, told: list[int]) -> None:
    """In batches of training and of tests, of one task and of several, and in Avalanche's own attributes."""
    benchmark = scenario_stream(scenario).avalanche()
    for name in ("train", "valid", "test"):
        for place, experience in enumerate(benchmark.streams[name]):
            images = task_images(experience.dataset, place, torch.device("cpu"))
            for loader in (BatchLoader(images, 8, shuffle=True), MixedBatches([images], 8)):
                assert {int(label) for batch in loader for label in batch[-1]} == {told[place]}
            assert list(experience.dataset.targets_task_labels.uniques) == [told[place]]  # type: ignore[attr-defined]
            assert experience.task_labels == [told[place]]
            assert experience.current_experience == place


def cifar(seed: int, **table: Any) -> StreamPlan:
    """The plan of CIFAR-100 in ten steps."""
    split = {"kind": "classes", "dataset": "cifar100", "classes_per_task": 10, "order": "fixed", "scenario": "class"}
    benchmark = BenchmarkSpec.model_validate({"name": "c", "stream": {**split, **table}, "protocols": {"paper": {}}})
    return plan_stream(benchmark, {"cifar100": DATASETS["cifar100"].info(None)}, ImageLimits(), seed)


def test_classes_are_shuffled_by_the_runs_seed() -> None:
    """As NumPy's legacy generator shuffles them; every class is in one task."""
    known = np.array(DATASETS["cifar100"].info(None).class_names)
    for seed in (0, 1):
        order = np.arange(100)
        np.random.RandomState(seed).shuffle(order)
        plan = cifar(seed, class_order="shuffled")
        assert [name for task in plan.tasks for name in task.class_names] == known[order].tolist()
        assert plan.order == tuple(range(10))
    assert cifar(0).tasks[0].class_names == tuple(known[:10])
