"""Classes by name: a benchmark may name them, and is the same as with their numbers; tasks show names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.protocol import ImageLimits
from seu_bench.data.dataset import DatasetInfo
from seu_bench.data.planning import StreamPlan, plan_stream
from seu_bench.data.tasks import class_names, names_classes, numbered, task_title
from seu_bench.errors import RequestError
from seu_bench_benchmarks.datasets import DATASETS

FLOWERS = DatasetInfo("flowers", 3, 8, 8, 4, 400, 40, class_names=("daisy", "rose", "sunflower", "tulip"))
NUMBERS = replace(FLOWERS, class_names=None)


def flowers(groups: Any = None, order: Any = "fixed", **stream: Any) -> BenchmarkSpec:
    given = {"kind": "classes", "dataset": "flowers", "groups": groups, "order": order, **stream}
    data = {"flowers": {"kind": "folder", "path": "/images/flowers", "size": 8}}
    return BenchmarkSpec.model_validate({"name": "mine", "stream": given, "datasets": data, "protocols": {"paper": {}}})


def plan(spec: BenchmarkSpec, info: DatasetInfo = FLOWERS) -> StreamPlan:
    return plan_stream(spec, {"flowers": info}, ImageLimits(), seed=0)


@pytest.mark.parametrize(
    ("groups", "order"),
    [
        ([["rose", "daisy"], ["tulip"]], [1, 0]),
        ([[1, "daisy"], ["tulip"]], ["tulip", "rose"]),
        ([["rose", 0], [3]], ["tulip", 0]),
    ],
)
def test_names_are_numbers(groups: Any, order: Any) -> None:
    """Names, numbers and both: one benchmark, of one identity and so of one run id."""
    plain = flowers([[1, 0], [3]], [1, 0])
    named = flowers(groups, order)
    assert names_classes(named) and not names_classes(plain)
    assert numbered(named, {"flowers": FLOWERS}).identity() == plain.identity()
    assert numbered(plain, {}) is plain
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


def test_unknown_names_are_all_told() -> None:
    """Each with what may have been meant, and all that there are, the key and the folder."""
    error = refusal(flowers([["dasy", "rose"], ["TULIP", "oak"]]))
    assert "'dasy' is no class of it (did you mean 'daisy'?)" in error.what
    assert "'TULIP' is no class of it (did you mean 'tulip'?)" in error.what
    assert "'oak' is no class of it" in error.what and "'rose' is" not in error.what
    assert error.where == "stream.groups of benchmark 'mine', data set 'flowers' in /images/flowers"
    assert "daisy, rose, sunflower, tulip" in str(error.remedy)


def test_names_that_say_nothing_or_too_much() -> None:
    twice = replace(FLOWERS, class_names=("crane", "crane", "rose", "tulip"))
    assert "'crane' is the name of classes 0, 1: give the number" in refusal(flowers([["crane"]]), twice).what
    assert "have no names" in str(refusal(flowers([["rose"]]), NUMBERS).remedy)
    assert plan(flowers([["0", "3"]]), NUMBERS) == plan(flowers([[0, 3]]), NUMBERS)
    error = refusal(flowers([["daisy", "rose"], [2, 3, "tulip"]]))
    assert "3 tulip is twice in a group" in error.what
    assert "names a class of no task: 'tulip'" in refusal(flowers([[0], [1]], order=["tulip", 0])).what
    assert "a class of several tasks: 'rose'" in refusal(flowers([[0, 1], [1]], order=["daisy", "rose"])).what
    assert "is [0, 0]" in refusal(flowers([["daisy", "rose"], [2]], order=["daisy", "rose"])).what


def test_names_of_named_sets_are_those_of_torchvision() -> None:
    from torchvision import datasets

    official = {
        "fashion_mnist": datasets.FashionMNIST.classes,
        "kmnist": datasets.KMNIST.classes,
        "emnist_letters": datasets.EMNIST.classes_split_dict["letters"],
    }
    for name, names in official.items():
        assert list(DATASETS[name].info(None).class_names or ()) == names
