"""Errors of values: each names the key as it was given, the value and what it must be, with a near name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from seu_bench.config.benchmark import BenchmarkFile, BenchmarkSpec
from seu_bench.config.options import Options, build_options, format_errors
from seu_bench.config.run import Request
from seu_bench.config.streams import ClassSplit, stream_identity
from seu_bench.config.tuned import TunedFile
from seu_bench.errors import OptionError, SpecError
from seu_bench.plugin.registry import Registry
from seu_bench.sweeps.spec import make_spec
from seu_bench.sweeps.tune_spec import make_tune_spec

CLASSES: dict[str, Any] = {"kind": "classes", "dataset": "digits", "classes_per_task": 2}
NAMED: dict[str, Any] = {**CLASSES, "classes_per_task": None}
TASKS: dict[str, Any] = {"kind": "datasets", "tasks": {"a": {"dataset": "digits"}, "b": {"dataset": "mnist"}}}
OWN_FILE = 'name = "own"\n[stream]\nkind = "classes"\ndataset = "digits"\nclasses_per_task = 2\n'


def document(stream: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": "x", "stream": CLASSES if stream is None else stream, "protocols": {"paper": {}}, **more}


def faults(value: dict[str, Any]) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        BenchmarkSpec.model_validate(value)
    return format_errors(caught.value, value, BenchmarkSpec)


@pytest.mark.parametrize(
    ("value", "key", "said", "given"),
    [
        ({**CLASSES, "validation": "much"}, "stream.validation", "valid number", "'much'"),
        ({**CLASSES, "input": {"pad": 1.5}}, "stream.input.pad", "valid integer", "1.5"),
        ({**CLASSES, "validatoin": 0.2}, "stream.validatoin", "no such key (did you mean 'validation'?)", "0.2"),
        ({**CLASSES, "order": "shufled"}, "stream.order", "(did you mean 'shuffled'?) or Input", "'shufled'"),
        ({**CLASSES, "order": [0, -1]}, "stream.order[1]", "greater than or equal to 0", "-1"),
        ({**NAMED, "groups": ["rose"]}, "stream.groups[0]", "valid list", "'rose'"),
        ({**NAMED, "groups": [[True]]}, "stream.groups[0][0]", "must be a class", "True"),
        ({"kind": "clases"}, "stream", "'clases' found using 'kind'", None),
        ({}, "stream", "'kind' is missing", None),
        ({"kind": "datasets", "tasks": {"a": {}}}, "stream.tasks.a.dataset", "is missing", None),
    ],
)
def test_key_value_and_what_it_must_be(value: dict[str, Any], key: str, said: str, given: str | None) -> None:
    """One line per fault, whichever of several types the value may have."""
    (line,) = faults(document(value))
    assert line.startswith(f"{key}: ") and said in line
    assert line.endswith(f"(given: {given})") if given else "given" not in line


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (document({**CLASSES, "groups": [[0, 1]]}), "stream: give either classes_per_task or groups"),
        (document({**NAMED, "groups": [[0, 1], [1, 1]]}), "a group has each class once, but 1 is in one twice"),
        (document({**NAMED, "first": 2, "groups": [[0, 1], [1]]}), "(first_task) and class_order are for classes_per"),
        (document({**CLASSES, "class_order": 1993, "order": [0, 1]}), "class_order decides"),
        (document({**CLASSES, "input": {"mean": [0.5]}}), "stream.input: mean and std go together"),
        (document({**CLASSES, "input": {"mean": [0.5], "std": [0.5, 0.5]}}), "the same number of channels"),
        (document({**CLASSES, "input": {"color": "random", "channels": 1}}), "coloured images have 3 channels"),
        (document({**TASKS, "order": ["a", "b", "b"]}), "order must name each of a, b once"),
        (document({**TASKS, "tasks": {"a": {"dataset": "x", "labels": [1], "classes": 2}}}), "give one of labels"),
        (document({**TASKS, "tasks": {"a": {"dataset": "x", "train_per_class": 3}}}), "give both train_per_class"),
        (document(datasets={"a": {"kind": "folder", "size": 8}}), "datasets.a.path: is missing"),
        (document(default_protocol="quick"), "default_protocol 'quick' is not one of paper"),
    ],
)
def test_rules_between_keys(value: dict[str, Any], said: str) -> None:
    (line,) = faults(value)
    assert said in line


def test_all_faults_of_a_file_at_once(tmp_path: Path) -> None:
    """Those of options are told by the option that was given."""
    path = tmp_path / "own.toml"
    path.write_text(
        OWN_FILE.replace('"own"', '"Bad Name"') + 'colour = "red"\n[datasets."A B"]\nkind = "npz"\npath = 3\n'
    )
    with pytest.raises(SpecError) as caught:
        BenchmarkFile(path).load({"stream.validatoin": 0.1, "striem.x": 1, "stream.classes_per_task": 0})
    assert caught.value.what.startswith("the benchmark file has 7 faults") and caught.value.where == str(path)
    assert sorted(fault.partition(":")[0] for fault in caught.value.faults) == [
        "datasets.A B (its name)",
        "datasets.A B.path",
        "name",
        "option benchmark.stream.classes_per_task",
        "option benchmark.stream.validatoin",
        "option benchmark.striem.x",
        "stream.colour",
    ]


def test_what_is_asked_for_takes_the_place_of_its_alternatives(tmp_path: Path) -> None:
    """``groups`` and ``classes_per_task`` replace one another; both as options are a fault."""
    path = tmp_path / "own.toml"
    path.write_text(OWN_FILE)
    groups = BenchmarkFile(path).load({"stream.groups": [[0, 1], ["2"]]}).stream
    assert isinstance(groups, ClassSplit)
    assert (groups.groups, groups.classes_per_task, groups.first) == (((0, 1), ("2",)), None, None)
    with pytest.raises(SpecError, match="give either classes_per_task or groups"):
        BenchmarkFile(path).load({"stream.groups": [[0]], "stream.classes_per_task": 1})
    path.write_text(OWN_FILE.replace("classes_per_task", "then"))
    for key in ("then", "classes_per_task"):
        asked = BenchmarkFile(path).load({f"stream.{key}": 5}).stream
        assert isinstance(asked, ClassSplit) and asked.classes_per_task == 5
    path.write_text(OWN_FILE)
    keys = {"stream.first": 4, "stream.classes_per_task": 3}
    plain, base = (BenchmarkFile(path).load(given).stream for given in ({}, keys))
    assert stream_identity(base) == {**stream_identity(plain), "first": 4, "classes_per_task": 3}


class Cooking(Options):
    """An option."""

    minutes: int = 3


def test_other_files_and_requests(tmp_path: Path) -> None:
    """Sweeps, tunings, tuned files, requests and options of plugins are told in the same way."""
    with pytest.raises(OptionError, match=r"'searchr.minutes' is not an option \(did you mean 'searcher.minutes'\?\)"):
        build_options(Cooking, "a cook", {"searchr.minutes": 1})
    with pytest.raises(SpecError) as caught:
        make_spec({"limit": "ten", "seeds": ["a-b"], "protocol": 3, "stratgy": "seu"})
    keys = [line.partition(":")[0] for line in caught.value.faults]
    assert sorted(keys) == ["limit", "protocol", "seeds", "stratgy"]
    assert any("did you mean 'strategy'" in line for line in caught.value.faults)
    with pytest.raises(SpecError, match="did you mean 'trials'"):
        make_tune_spec({"space": {"epochs": [1, 2]}, "trails": 3, "batch": "many"}, Registry())
    path = tmp_path / "tuned.toml"
    path.write_text('id = "a b"\nseeds = "x"\ncolour = 1\n')
    with pytest.raises(SpecError) as caught:
        TunedFile.read(path)
    told = "\n".join(caught.value.faults)
    assert all(part in told for part in ("id: ", "seeds: ", "benchmark: is missing", "colour: no such key"))
    with pytest.raises(OptionError, match=r"seed: Input should be greater .*given: -1"):
        Request(seed=-1)
