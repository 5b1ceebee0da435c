"""Streams without validation images: all training images train, the last weights are kept, nothing is selected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.streams import ALL, UNCHANGED, classes_spec, everything, permuted_spec
from support.tiny import benchmark, raw_dataset, registry

import seu_bench
from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.run import Request
from seu_bench.data.planning import plan_stream
from seu_bench.data.streams import build_stream
from seu_bench.engine.resolve import resolve
from seu_bench.errors import RequestError
from seu_bench.plugin.methods import CLASSES
from seu_bench.plugin.registry import Registry
from seu_bench_methods.naive import Naive

NONE = {"benchmark.stream.validation": 0}


def datasets_spec(**stream: Any) -> BenchmarkSpec:
    task = {"dataset": "tiny", "input": UNCHANGED}
    return benchmark(
        {"kind": "datasets", "tasks": {"a": {**task, "labels": [0, 1]}, "b": {**task, "labels": [1, 2]}}, **stream}
    )


@pytest.mark.parametrize(
    ("spec", "groups"),
    [
        (classes_spec(groups=[[2, 0], [1]], order="fixed", validation=0), [[2, 0], [1]]),
        (classes_spec(groups=[[2, 0], [1, 2]], order="fixed", validation=0), [[2, 0], [1, 2]]),
        (permuted_spec(tasks=2, validation=0), [[0, 1, 2]] * 2),
        (datasets_spec(validation=0), [[0, 1], [1, 2]]),
        (datasets_spec(validation=0, scenario="class"), [[0, 1], [1, 2]]),
    ],
)
def test_all_images_train(spec: BenchmarkSpec, groups: list[list[int]]) -> None:
    """Each training image of a task's classes trains it once, and none validates."""
    data = raw_dataset([5, 1, 7], [3, 3, 3])
    for split in (data.train, data.test):
        split.images[:] = np.arange(len(split))[:, None, None, None]
    stream = build_stream(spec, lambda _: data, ALL, 3)
    assert stream.plan == plan_stream(spec, {"tiny": data.info}, ALL, 3)
    for task, group in zip(stream.tasks, groups, strict=True):
        found = (everything(task.train)[0][:, 0, 0, 0] * 255).round().int().tolist()
        assert sorted(found) == [row for row, label in enumerate(data.train.labels) if label in group]
        assert len(task.valid) == 0 and len(task.test) == 3 * len(group)


def test_the_last_weights_are_kept(tmp_path: Path) -> None:
    """The run is the one that keeps the last weights, and another one than with validation images; a record says so."""
    asked: Any = {"protocol": "smoke", "first_tasks": 2, "results": tmp_path, "device": "cpu"}
    record = seu_bench.run("naive", "split_digits", **asked, options=NONE)
    assert record.options["restore"] == "last" and [it[1] for it in record.task_images] == [0, 0]
    ids = [
        resolve(registry(), Request(strategy="naive", benchmark="split_digits", **asked, options=options)).spec.run_id
        for options in ({**NONE, "restore": "last"}, {"restore": "last"})
    ]
    assert ids[0] == record.run_id != ids[1]


class Chooses(Naive):
    """Chooses by validation images."""

    name = "chooses"
    needs_validation = True


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"strategy": "naive", "options": {"restore": "best_valid"}}, "weights are to be selected"),
        ({"strategy": "naive", "evaluation": "validation"}, "accuracies are to be measured on"),
        ({"strategy": "hat", "options": {"lr_schedule": "plateau"}}, "'hat' chooses by validation images"),
        ({"strategy": "chooses"}, "'chooses' chooses by validation images"),
    ],
)
def test_what_needs_validation_images_is_refused(
    fields: dict[str, Any], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before data is read, with an option that helps."""
    monkeypatch.setitem(CLASSES, "chooses", Chooses)
    known = Registry()
    asked = {"benchmark": "split_digits", **fields, "options": NONE | fields.get("options", {})}
    with pytest.raises(RequestError, match=what) as error:
        resolve(known, Request(**asked))
    assert "-o benchmark.stream.validation=0.1" in str(error.value.remedy)
    asked["options"] = {**asked["options"], "benchmark.stream.validation": 0.1}
    resolve(known, Request(**asked))


def test_a_stream_that_is_seen_once_holds_none_out() -> None:
    """Its hint is not the key that it does not have."""
    asked = Request(strategy="derpp", benchmark="online_cifar100", options={"restore": "best_valid"})
    with pytest.raises(RequestError, match="weights are to be selected") as error:
        resolve(Registry(), asked)
    assert "choose a benchmark" in str(error.value.remedy) and "validation=" not in str(error.value.remedy)
