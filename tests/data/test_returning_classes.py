"""Which classes of a stream are one: by name or number, in every task that has them; and tasks of unequal size."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from support.streams import ALL, UNCHANGED, classes_spec, permuted_spec
from support.tiny import benchmark, raw_dataset

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.data.dataset import RawDataset
from seu_bench.data.planning import plan_stream
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.data.tasks import ordered_tasks
from seu_bench.errors import RequestError


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


def built(spec: BenchmarkSpec, one: RawDataset, two: RawDataset | None = None, **more: Any) -> TaskStream:
    return build_stream(spec, lambda name: one if two is None or name == "one" else two, ALL, 0, **more)


def label_of(stream: TaskStream, task: int, data: RawDataset, label: int) -> set[int]:
    """Labels in a task of the images that have a label in the data set, test images in their order."""
    labels = stream.tasks[task].test.labels
    return set(labels[torch.from_numpy(data.test.labels == label)].tolist())


def test_a_class_has_one_output_whatever_data_set_it_is_of() -> None:
    """By its name, at whatever place of its data set; outputs are numbered as classes are first learned."""
    one, two = named("cat dog"), named("ant dog", seed=3)
    stream = built(sequence("class"), one, two)
    assert [task.labels for task in stream.plan.tasks] == [(0, 1), (2, 1)]
    assert stream.plan.classes_per_task == (2, 1) and stream.plan.repeats_classes
    assert [task.class_names for task in stream.plan.tasks] == [("cat", "dog"), ("ant",)]
    assert label_of(stream, 0, one, 1) == label_of(stream, 1, two, 1) == {1}
    assert label_of(stream, 1, two, 0) == {2}
    again = stream.avalanche().streams["train"][1]
    assert again.classes_in_this_experience == [2, 1]


@pytest.mark.parametrize("names", [None, "crane crane"])
def test_without_names_classes_of_two_data_sets_are_different(names: str | None) -> None:
    """A name that two classes of a data set have tells nothing, either."""
    assert built(sequence("class"), named(names), named(names)).plan.classes_per_task == (2, 2)


def test_without_names_a_number_is_a_class_of_its_data_set() -> None:
    spec = classes_spec(groups=[[0, 1], [2, 1]], scenario="class", order="fixed", validation=0.25)
    stream = built(spec, named(classes=3))
    assert [task.labels for task in stream.plan.tasks] == [(0, 1), (2, 1)]
    overlapping = {"dataset": "one", "labels": [1, 0]}
    assert built(sequence("class", None, overlapping), named()).plan.classes_per_task == (2, 0)
    wider = built(sequence("class", {"classes": 4}, overlapping), named())  # outputs that no image is of
    assert [(task.labels, task.num_train) for task in wider.plan.tasks] == [((0, 1, 2, 3), 18), ((1, 0), 18)]


def test_permutations_have_classes_of_their_own() -> None:
    """Permuted MNIST in the class-incremental scenario has 100 classes (van de Ven & Tolias 2019)."""
    stream = built(permuted_spec(tasks=3, scenario="class"), named("cat dog"))
    assert stream.plan.classes_per_task == (2, 2, 2)


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_no_image_trains_one_task_and_validates_another(scenario: str) -> None:
    """A class of two tasks has all of its images in both, in the same split; sizes are as planned."""
    spec = classes_spec(groups=[[0, 1], [1, 2], [3]], scenario=scenario, order="fixed", validation=0.25)
    data = named(classes=4)
    stream = built(spec, data)
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
    stream = built(sequence("domain"), one, two)
    assert label_of(stream, 0, one, 0) == label_of(stream, 1, two, 1) == {0}
    assert label_of(stream, 0, one, 1) == label_of(stream, 1, two, 0) == {1}
    assert stream.plan.tasks[1].class_names == ("cat", "dog")
    shown = built(sequence("domain", None, {"labels": [0, 1]}), one, two)
    assert torch.equal(shown.tasks[1].test.labels, stream.tasks[1].test.labels)


@pytest.mark.parametrize("labels", [None, [0, 1]])
def test_domains_of_other_names_are_refused(labels: list[int] | None) -> None:
    with pytest.raises(RequestError, match="task 'b' has 'ant', where earlier ones have 'dog'") as error:
        built(sequence("domain", None, {"labels": labels}), named("cat dog"), named("ant cat"))
    assert "same names in all tasks" in str(error.value.remedy)


def test_domains_of_groups_share_classes_by_place() -> None:
    """First and second class of a group; one class is not both."""
    data = named(classes=4)
    parts = ordered_tasks(classes_spec(groups=[[0, 1], [2, 3], [1, 0]], scenario="domain"), {"tiny": data.info}, 0)
    assert {part.index: part.labels for part in parts} == {0: (0, 1), 1: (2, 3), 2: (0, 1)}
    with pytest.raises(RequestError, match="task 'classes 1-2' has 1 at another place than earlier ones"):
        built(classes_spec(groups=[[0, 1], [1, 2]], scenario="domain"), data)


def test_names_are_part_of_the_fingerprint_where_they_decide() -> None:
    """Not where each task has a head of its own."""
    for scenario, differ in (("class", True), ("domain", True), ("task", False)):
        found = {
            built(sequence(scenario), named("cat dog"), named(names)).fingerprint for names in ("cat dog", "dog cat")
        }
        assert (len(found) == 2) is differ, scenario


@pytest.mark.parametrize(
    ("keys", "sizes"),
    [
        ({"classes_per_task": 3}, [3, 3, 1]),
        ({"first": 4, "then": 2}, [4, 2, 1]),
        ({"first": 4, "classes_per_task": 3}, [4, 3]),
        ({"first": 1, "then": 3}, [1, 3, 3]),
        ({"first": 7, "then": 3}, [7]),
        ({"then": 7}, [7]),
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
