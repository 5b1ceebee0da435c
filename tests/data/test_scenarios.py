"""What learners are told in each scenario: labels, task labels and orders of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.tiny import raw_dataset

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.protocol import ImageLimits
from seu_bench.config.streams import Scenario
from seu_bench.data.avalanche import BatchLoader, MixedBatches, task_images
from seu_bench.data.planning import StreamPlan, plan_stream
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.errors import RequestError
from seu_bench.testing.streams import class_split
from seu_bench_benchmarks import DATASETS

GROUPS = [[4, 1], [0, 3], [5, 2]]


def spec(scenario: Scenario, groups: list[list[int]] | None = None, **stream: Any) -> BenchmarkSpec:
    """A benchmark of tasks in this order."""
    table = {**class_split(groups or GROUPS), "scenario": scenario, **stream}
    return BenchmarkSpec.model_validate({"name": "tiny", "stream": table, "protocols": {"paper": {}}})


def stream(scenario: Scenario, groups: list[list[int]] | None = None) -> TaskStream:
    """The stream in memory."""
    data = raw_dataset([12] * 6, [5] * 6)
    return build_stream(spec(scenario, groups), lambda _: data, ImageLimits(), 0)


def test_class_incremental_labels_are_numbered_through_in_the_order_of_learning() -> None:
    """Task i has the labels from its first class on; the images are those of the other scenarios."""
    by_class, by_task = stream("class"), stream("task")
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
    benchmark = stream(scenario).avalanche()
    for name in ("train", "valid", "test"):
        for place, experience in enumerate(benchmark.streams[name]):
            images = task_images(experience.dataset, place, torch.device("cpu"))
            for loader in (BatchLoader(images, 8, shuffle=True), MixedBatches([images], 8)):
                assert {int(label) for batch in loader for label in batch[-1]} == {told[place]}
            assert list(experience.dataset.targets_task_labels.uniques) == [told[place]]  # type: ignore[attr-defined]
            assert experience.task_labels == [told[place]]
            assert experience.current_experience == place


def test_domains_must_have_as_many_classes() -> None:
    """One head answers for all of them."""
    with pytest.raises(RequestError, match="have 2 or 3 classes") as error:
        stream("domain", [[0, 1], [2, 3, 4]])
    assert "'task' or 'class'" in str(error.value.remedy)
    of_class = stream("class", [[0, 1], [2, 3, 4], [5]]).plan
    assert [task.labels for task in of_class.tasks] == [(0, 1), (2, 3, 4), (5,)]


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


def test_only_other_scenarios_change_a_benchmarks_identity() -> None:
    """Runs of task-incremental benchmarks are those that they were before there were scenarios."""
    task, by_class = spec("task"), spec("class")
    assert "scenario" not in task.identity()["stream"] and "class_order" not in task.identity()["stream"]
    assert by_class.identity()["stream"]["scenario"] == "class"
    assert (task.title, by_class.title) == ("tiny", "tiny-class")
    assert len({stream(scenario).fingerprint for scenario in ("task", "class", "domain")}) == 3
