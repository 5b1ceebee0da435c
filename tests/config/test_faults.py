"""Faults of files and options in plain words, each by its key, with what may have been meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.benchmark_file import BenchmarkFile
from seu_bench.config.faults import did_you_mean, fault_lines
from seu_bench.config.options import Options, build_options
from seu_bench.config.run import Request
from seu_bench.config.streams import stream_identity
from seu_bench.config.tuned import TunedFile
from seu_bench.errors import OptionError, SpecError
from seu_bench.plugin.registry import Registry
from seu_bench.sweeps.spec import make_spec
from seu_bench.sweeps.tune_spec import make_tune_spec

CLASSES: dict[str, Any] = {"kind": "classes", "dataset": "digits", "classes_per_task": 2}


def faults(stream: Any = None, **more: Any) -> list[str]:
    document = {"name": "x", "stream": CLASSES if stream is None else stream, "protocols": {"paper": {}}, **more}
    with pytest.raises(ValidationError) as caught:
        BenchmarkSpec.model_validate(document)
    return fault_lines(caught.value, BenchmarkSpec)


def stream(**values: Any) -> dict[str, Any]:
    return {**CLASSES, **values}


NAMED = {"classes_per_task": None}
OF_STREAM: list[tuple[dict[str, Any], str]] = [
    (stream(validation="much"), "stream.validation: must be a number, such as 0.5 (given: 'much')"),
    (stream(validation=1), "stream.validation: must be below 1 (given: 1)"),
    (stream(input={"pad": 1.5}), "stream.input.pad: must be a whole number, such as 3 (given: 1.5)"),
    (stream(input={"mean": 0.5}), "stream.input.mean: must be a list, such as [0.5, 0.25] (given: 0.5)"),
    (stream(input=3), "stream.input: must be a table, such as {key = 1} (given: 3)"),
    (stream(dataset=3), 'stream.dataset: must be text in quotes, such as "abc" (given: 3)'),
    (stream(validatoin=0.2), "stream.validatoin: no such key (did you mean 'validation'?) (given: 0.2)"),
    (stream(test_fraction=0.2), "stream.test_fraction: no such key here; it belongs in [datasets.NAME] (given: 0.2)"),
    (
        stream(order="shufled"),
        "stream.order: must be 'shuffled' or 'fixed' (did you mean 'shuffled'?) or a list, such as [1, 2] "
        "(given: 'shufled')",
    ),
    (stream(order=[0, -1]), "stream.order[1]: must be at least 0: classes are numbered from 0 (given: -1)"),
    (
        stream(**NAMED, groups="[[rose]]"),
        "stream.groups: must be a list, such as [[1, 2], [3]]; texts in a list need quotes (given: '[[rose]]')",
    ),
    (stream(**NAMED, groups=["rose"]), "stream.groups[0]: must be a list, such as [1, 2] (given: 'rose')"),
    (
        stream(**NAMED, groups=[[True]]),
        'stream.groups[0][0]: must be a class: its number, such as 0, or its name in quotes, such as "daisy" '
        "(given: True)",
    ),
    (stream(**NAMED, groups=[["a", "a"]]), "stream.groups: a group has each class once, but 'a' is in one twice"),
    (
        {"kind": "clases"},
        "stream.kind: must be 'classes', 'permutation', 'datasets' or 'drawn' (did you mean 'classes'?) "
        "(given: 'clases')",
    ),
    ({}, "stream.kind: is missing: it must be 'classes', 'permutation', 'datasets' or 'drawn'"),
    ({"kind": "datasets", "tasks": {"a": {}}}, "stream.tasks.a.dataset: is missing"),
]


@pytest.mark.parametrize(("value", "said"), OF_STREAM, ids=[said[:50] for _, said in OF_STREAM])
def test_words(value: dict[str, Any], said: str) -> None:
    """One line per fault, by the key as it stands in the file, whatever of several types the value may have."""
    (line,) = faults(value)
    assert line.startswith(said)


def test_words_of_tables() -> None:
    assert faults(datasets={"Big Name": {"kind": "npz", "path": 3}}) == [
        'datasets."Big Name": must have small letters, digits and _ only, a letter or digit first '
        "(given: 'Big Name')",
        'datasets."Big Name".path: must be a path in quotes, such as "data/images" (given: 3)',
    ]
    own = {"kind": "folder", "path": "x", "size": "large"}
    assert faults(datasets={"mine": own}) == [
        "datasets.mine.size: must be a whole number, such as 3 or a list, such as [1, 2] (given: 'large')"
    ]
    assert faults(protocols={"paper": {"epochs": 3}}) == [
        "protocols.paper.epochs: no such key here; it belongs in [protocols.NAME.training] or "
        "[protocols.NAME.search] or [protocols.NAME.creation] (given: 3)"
    ]
    assert faults(validation=0.2) == ["validation: no such key here; it belongs in [stream] (given: 0.2)"]
    unknown = fault_lines_without_model({"colour": 1})
    assert "colour: no such key (given: 1)" in unknown


def fault_lines_without_model(document: dict[str, Any]) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        BenchmarkSpec.model_validate(document)
    return fault_lines(caught.value)


def test_near_names_in_other_letters() -> None:
    assert did_you_mean("CIFAR10", ["cifar10", "mnist"]) == " (did you mean 'cifar10'?)"
    assert did_you_mean("zebra", ["cifar10"]) == ""


def test_options_are_named_as_they_were_given(tmp_path: Path) -> None:
    """Faults of ``-o`` are not blamed on the file, and one beside a fault of the file is told apart."""
    path = tmp_path / "own.toml"
    text = 'name = "own"\n[stream]\nkind = "classes"\ndataset = "digits"\nclasses_per_task = 2\n'
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        BenchmarkFile(path).load({"stream.validatoin": 0.1, "steram.x": 1})
    assert caught.value.what.startswith("the options given have 2 faults")
    assert caught.value.faults == (
        "option benchmark.steram.x: no such key (did you mean 'stream'?)",
        "option benchmark.stream.validatoin: no such key (did you mean 'validation'?) (given: 0.1)",
    )
    path.write_text(text + 'colour = "red"\n')
    with pytest.raises(SpecError) as caught:
        BenchmarkFile(path).load({"stream.validation": 2})
    assert caught.value.what.startswith("the benchmark file has 2 faults")
    assert {fault.partition(":")[0] for fault in caught.value.faults} == {
        "stream.colour",
        "option benchmark.stream.validation",
    }


def test_groups_take_the_place_of_a_number(tmp_path: Path) -> None:
    """An option for the one replaces the file's other; both as options are a fault."""
    path = tmp_path / "own.toml"
    path.write_text('name = "own"\n[stream]\nkind = "classes"\ndataset = "digits"\nclasses_per_task = 2\n')
    groups = BenchmarkFile(path).load({"stream.groups": [[0, 1], ["2"]]}).stream
    assert groups.model_dump(include={"groups", "classes_per_task"}) == {
        "groups": ((0, 1), ("2",)),
        "classes_per_task": None,
    }
    with pytest.raises(SpecError, match="give either classes_per_task or groups"):
        BenchmarkFile(path).load({"stream.groups": [[0]], "stream.classes_per_task": 1})


def test_a_first_task_of_another_size(tmp_path: Path) -> None:
    """``then`` is another name of classes_per_task: both streams are one. Groups take the place of both keys."""
    path = tmp_path / "own.toml"
    path.write_text('name = "own"\n[stream]\nkind = "classes"\ndataset = "digits"\nclasses_per_task = 2\n')
    base, same, plain = (
        BenchmarkFile(path).load(keys).stream
        for keys in (
            {"stream.first": 4, "stream.then": 3},
            {"stream.first": 4, "stream.classes_per_task": 3},
            {"stream.then": 2},
        )
    )
    assert base == same and plain == BenchmarkFile(path).load().stream
    assert stream_identity(base) == {**stream_identity(plain), "first": 4, "classes_per_task": 3}
    path.write_text('name = "own"\n[stream]\nkind = "classes"\ndataset = "digits"\nfirst = 4\nthen = 3\n')
    assert BenchmarkFile(path).load().stream == base
    groups = BenchmarkFile(path).load({"stream.groups": [[0, 1]]}).stream
    assert groups.model_dump(include={"groups", "first", "classes_per_task"}) == {
        "groups": ((0, 1),),
        "first": None,
        "classes_per_task": None,
    }


class Cooking(Options):
    """An option."""

    minutes: int = 3


def test_other_files_and_requests(tmp_path: Path) -> None:
    """Sweeps, tunings, tuned files, requests and options of plugins are told in the same words."""
    with pytest.raises(OptionError, match=r"'searchr.minutes' is not an option \(did you mean 'searcher.minutes'\?\)"):
        build_options(Cooking, "a cook", {"searchr.minutes": 1})
    with pytest.raises(SpecError) as caught:
        make_spec({"limit": "ten", "seeds": ["a-b"], "protocol": 3, "stratgy": "seu"})
    assert [line.partition(" (given")[0] for line in caught.value.faults] == [
        "stratgy: no such key (did you mean 'strategy'?)",
        "limit: must be a whole number, such as 3",
        "seeds: 'a-b' is no seed and no range; write seeds as in 0-4,7",
        'protocol: must be text in quotes, such as "abc"',
    ]
    with pytest.raises(SpecError) as caught:
        make_tune_spec({"space": {"epochs": [1, 2]}, "trails": 3, "batch": "many"}, Registry())
    told = "\n".join(caught.value.faults)
    assert "trails: no such key (did you mean 'trials'?)" in told and "batch: must be a whole number" in told
    path = tmp_path / "tuned.toml"
    path.write_text('id = "a b"\nseeds = "x"\ncolour = 1\n')
    with pytest.raises(SpecError) as caught:
        TunedFile.read(path)
    told = "\n".join(caught.value.faults)
    assert "id: must have letters, digits" in told and "seeds: must be a list, such as [1, 2]" in told
    assert "benchmark: is missing" in told and "colour: no such key" in told
    with pytest.raises(OptionError, match="the seed is -1: must be at least 0"):
        Request(seed=-1)
