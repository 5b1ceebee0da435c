"""The benchmarks that come with seu-bench say what the paper says, and faulty files say what is wrong with them."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

import seu_bench_benchmarks
from seu_bench.config.benchmark import BenchmarkFile, BenchmarkSpec
from seu_bench.config.run import Request, RunSpec
from seu_bench.config.streams import ClassSplit, DatasetSequence, DrawnTasks
from seu_bench.data.sources import DigitsSource
from seu_bench.engine.resolve import resolve
from seu_bench.errors import SpecError
from seu_bench.plugin import Registry
from seu_bench_benchmarks.datasets import DATASETS

FOLDER = Path(seu_bench_benchmarks.__file__).resolve().parent
NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))
#: A user's file of a data set by its path.
OWN = (
    'name = "own"\n[stream]\nkind = "classes"\ndataset = "mine"\nclasses_per_task = 1\n'
    '[datasets.mine]\nkind = "npz"\npath = "{}"\n'
)


def load(name: str, overrides: dict[str, Any] | None = None) -> BenchmarkSpec:
    return BenchmarkFile(FOLDER / f"{name}.toml").load(overrides)


@pytest.mark.parametrize("name", NAMES)
def test_every_file_is_whole(name: str) -> None:
    spec = load(name)
    assert spec.name == name
    published = {"published"} if name in ("split_cifar10_class", "split_cifar100_class") else set()
    assert set(spec.protocols) == {"paper", "half_day", "quick", "smoke"} | published
    assert not spec.protocols["smoke"].ranked and spec.protocols["paper"].ranked
    match spec.stream:
        case DatasetSequence(tasks=tasks):
            used = [task.dataset for task in tasks.values()]
        case DrawnTasks(sources=sources):
            used = list(sources)
        case stream:
            used = [stream.dataset]
    assert set(used) <= {*DATASETS, *spec.datasets}


@pytest.mark.parametrize(
    ("name", "decays", "old_units", "cells"),
    [
        ("split_cifar10", (0.003, 0.0003, 0.0003), 10, 6),
        ("split_cifar100", (0.001, 0.0003, 0.0003), 30, 6),
        ("pmnist", (0.0003, 0.0003, 0.0003), 30, 5),
        ("mixture", (0.003, 0.003, 0.003), 30, 6),
    ],
)
def test_paper_hyper_parameters(name: str, decays: tuple[float, float, float], old_units: int, cells: int) -> None:
    protocols = load(name).protocols
    paper = protocols["paper"]
    assert paper.creation.old_unit_epochs == old_units
    assert (paper.model.cells, paper.model.channels) == (cells, 36)
    for protocol in protocols.values():
        stages = (protocol.training, protocol.search, protocol.creation)
        assert tuple(stage.weight_decay for stage in stages) == decays
    stage = paper.training
    assert (stage.epochs, stage.batch_size, stage.learning_rate, stage.min_learning_rate) == (50, 128, 0.025, 0)
    assert (stage.momentum, stage.clip_norm) == (0.9, 5)
    searching = paper.search
    assert (searching.cells, searching.batch_size, searching.epochs) == (4, 512, 100)
    assert (searching.learning_rate, searching.min_learning_rate) == (0.025, 0.001)
    creating = paper.creation
    assert (creating.batch_size, creating.epochs, creating.min_learning_rate) == (128, 100, 0.001)
    assert paper.images.train is None


def test_identities_are_those_of_published_runs() -> None:
    """Streams, constants and data sets of all benchmarks, by the digest that they had when runs were published."""
    later = {"cifar100_b0_inc10_lite0", "cifar100_b0_inc5_lite0", "online_cifar100"}
    identities = {name: load(name).identity() for name in NAMES if name not in later}
    digest = hashlib.sha256(json.dumps(identities, sort_keys=True).encode()).hexdigest()
    assert digest[:16] == "a39f6a42551405e9"


def test_overrides(tmp_path: Path) -> None:
    """Keys replace those of the file; paths in it start from its folder."""
    spec = load("mixture", {"stream.validation": 0.10, "protocols.quick.training.epochs": 3})
    assert (spec.stream.validation, spec.protocols["quick"].training.epochs) == (0.10, 3)
    assert spec.protocols["quick"].training.batch_size == 32
    assert spec.identity() != load("mixture").identity()
    path = tmp_path / "own.toml"
    path.write_text(OWN.format("mine.npz"))
    definition = BenchmarkFile(path).load({"stream.order": [1, 0]}).datasets["mine"]
    assert definition.kind == "npz" and definition.path == tmp_path.resolve() / "mine.npz"


LAID_OVER = """
name = "augmented"
[stream]
kind = "classes"
dataset = "digits"
classes_per_task = 2
[protocols.mine.stream]
validation = 0.3
[protocols.mine.stream.input.augment]
crop = 2
"""


def test_protocol_lays_keys_over_the_stream(tmp_path: Path) -> None:
    """Below what is given; runs are of the changed stream, as if it were asked for."""
    path, key = tmp_path / "own.toml", "stream.validation"
    path.write_text(LAID_OVER)
    file, asked = BenchmarkFile(path), {key: 0.3, "stream.input.augment.crop": 2}
    for source in (file, file.load()):  # the file, and what was made of it
        assert source.load().stream.validation == 0.1
        changed = source.load(protocol="mine")
        assert changed.identity() == source.load(asked).identity() != source.load().identity()
        given = source.load({key: 0.2}, "mine").stream
        assert isinstance(given, ClassSplit) and (given.validation, given.input.augment.crop) == (0.2, 2)
    of_protocol = {f"protocols.mine.{key}": 0.4}
    assert file.load(of_protocol, "mine").stream.validation == 0.4

    def spec(protocol: str, **options: Any) -> RunSpec:
        request = Request(strategy="naive", benchmark=str(path), protocol=protocol, options=options)
        return resolve(Registry(), request).spec

    path.write_text(LAID_OVER + "[protocols.plain]\n")
    assert spec("mine").benchmark.identity() == file.load(asked).identity()
    assert spec("plain").benchmark.identity() == file.load().identity()
    assert spec("mine", **{f"benchmark.{key}": 0.2}).benchmark.stream.validation == 0.2
    renamed = spec("mine").model_copy(update={"protocol_name": "plain"})
    assert renamed.run_id == spec("plain", **{f"benchmark.{name}": value for name, value in asked.items()}).run_id


@pytest.mark.parametrize("protocol", [None, "mine"])
def test_faults_of_a_protocols_stream(tmp_path: Path, protocol: str | None) -> None:
    """Are found when the file is read, and named by their place."""
    path = tmp_path / "own.toml"
    path.write_text(LAID_OVER.replace("crop", "corp"))
    with pytest.raises(SpecError, match=r"protocols.mine.stream.input.augment.corp: no such key .did you mean 'crop'"):
        BenchmarkFile(path).load(protocol=protocol)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "does not exist"),
        ("name = ", "not TOML"),
        # A null character, or the home of nobody.
        (OWN.format(r"a\u0000b"), "cannot be a path"),
        (OWN.format("~nobody-is-called-this/a"), "cannot be a path"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / "own.toml").write_text(text)
    with pytest.raises(SpecError, match=said):
        BenchmarkFile(tmp_path / "own.toml").load()


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("steram.validation", "did you mean 'stream'"),
        ("stream.validatoin", "validatoin"),
        ("name.first", "not a table"),
    ],
)
def test_unknown_override(key: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        load("split_cifar10", {key: 0.1})
    assert said in str(caught.value)
    assert "split_cifar10.toml" in str(caught.value)


def test_examples_of_the_documentation_load(tmp_path: Path) -> None:
    docs = FOLDER.parent / "docs"
    text = "".join((docs / page).read_text("utf-8") for page in ("reference/benchmarks.md", "guides/own_data.md"))
    examples = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    kinds = set()
    for example in examples:
        (tmp_path / "example.toml").write_text(example)
        spec = BenchmarkFile(tmp_path / "example.toml").load()
        kinds |= {definition.kind for definition in spec.datasets.values()}
    assert kinds == {"features", "folder", "npz", "torchvision"}
    for name in [*NAMES, *DATASETS]:
        assert f"`{name}`" in text


def test_split_digits_constants_are_those_of_its_training_images() -> None:
    spec = load("split_digits")
    assert isinstance(spec.stream, ClassSplit)
    assert (spec.stream.classes_per_task, spec.stream.validation) == (2, 0.15)
    data = DigitsSource().load(None)
    pixels = data.train.images / 255.0
    assert spec.stream.input.mean == pytest.approx((pixels.mean(),), abs=1e-6)
    assert spec.stream.input.std == pytest.approx((pixels.std(),), abs=1e-6)
    assert (spec.protocols["quick"].images.train or 0) > max(data.info.train_per_class or ()) * 2
