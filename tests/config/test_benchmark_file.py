"""The benchmarks that come with seu-bench say what the paper says, and faulty files say what is wrong with them."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import seu_bench_benchmarks
from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.benchmark_file import BenchmarkFile
from seu_bench.config.streams import ClassSplit, DatasetSequence, DrawnTasks
from seu_bench.data.sources import DigitsSource
from seu_bench.errors import SpecError
from seu_bench_benchmarks.datasets import DATASETS

FOLDER = Path(seu_bench_benchmarks.__file__).resolve().parent
NAMES = [
    *(f"ctrl_s_{name}" for name in ("in", "long", "minus", "out", "pl", "plus")),
    "mixture",
    "pmnist",
    "pmnist_domain",
    "split_cifar10",
    "split_cifar100",
    "split_cifar100_class",
    "split_cifar10_class",
    "split_digits",
    "split_fashion",
    "split_fashion_class",
    "split_mnist",
    "split_mnist_class",
    *(f"transfer_s_{name}" for name in ("in", "long", "minus", "out", "pl", "plus")),
]
#: In no paper of SEU.
OURS = {
    "split_digits",
    "split_fashion",
    "split_mnist",
    *(name for name in NAMES if name.endswith(("_class", "_domain")) or name.startswith(("ctrl_", "transfer_"))),
}
#: Since the version before there were scenarios.
OLD = {"mixture", "pmnist", "split_cifar10", "split_cifar100", "split_digits", "split_fashion"}


def load(name: str, overrides: dict[str, Any] | None = None) -> BenchmarkSpec:
    return BenchmarkFile(FOLDER / f"{name}.toml").load(overrides)


def test_registered() -> None:
    benchmarks: dict[str, Any] = {}
    datasets: dict[str, Any] = {}
    seu_bench_benchmarks.register_benchmarks(register=lambda name, factory: benchmarks.update({name: factory}))
    seu_bench_benchmarks.register_datasets(register=lambda name, factory: datasets.update({name: factory}))
    assert sorted(benchmarks) == NAMES
    assert datasets == DATASETS  # their names and sizes: tests/data/test_official.py
    for factory in [*benchmarks.values(), *datasets.values()]:
        assert 10 < len(factory.summary) < 120


def test_registering_imports_nothing_heavy() -> None:
    code = (
        "import sys, seu_bench_benchmarks as b;"
        "b.register_benchmarks(register=lambda n, f: f.summary); b.register_datasets(register=lambda n, f: f.summary);"
        "print([m for m in ('numpy', 'torch', 'torchvision', 'sklearn', 'PIL', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", NAMES)
def test_every_file_is_whole(name: str) -> None:
    spec = load(name)
    assert spec.name == name
    assert spec.version == (2 if name in OLD else 1)
    assert spec.default_protocol == ("quick" if name in OURS else "paper")
    assert set(spec.protocols) == {"paper", "half_day", "quick", "smoke"}
    assert not spec.protocols["smoke"].ranked and spec.protocols["paper"].ranked
    if name not in OURS:
        assert "arXiv:2003.08559" in spec.citation
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
    identities = {name: load(name).identity() for name in NAMES}
    digest = hashlib.sha256(json.dumps(identities, sort_keys=True).encode()).hexdigest()
    assert digest[:16] == "a39f6a42551405e9"


def test_split_digits_constants_are_those_of_its_training_images() -> None:
    spec = load("split_digits")
    assert isinstance(spec.stream, ClassSplit)
    assert (spec.stream.classes_per_task, spec.stream.validation) == (2, 0.15)
    data = DigitsSource().load(None)
    pixels = data.train.images / 255.0
    assert spec.stream.input.mean == pytest.approx((pixels.mean(),), abs=1e-6)
    assert spec.stream.input.std == pytest.approx((pixels.std(),), abs=1e-6)
    assert (spec.protocols["quick"].images.train or 0) > max(data.info.train_per_class or ()) * 2


def test_overrides() -> None:
    spec = load("mixture", {"stream.validation": 0.10, "protocols.quick.training.epochs": 3})
    assert spec.stream.validation == 0.10
    assert spec.protocols["quick"].training.epochs == 3
    assert spec.protocols["quick"].training.batch_size == 32
    assert spec.identity() != load("mixture").identity()
    fixed = load("split_cifar10", {"stream.order": [1, 0, 2, 4, 3]}).stream
    assert isinstance(fixed, ClassSplit) and fixed.order == (1, 0, 2, 4, 3)


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


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="does not exist"):
        BenchmarkFile(tmp_path / "none.toml").load()
    (tmp_path / "bad.toml").write_text("name = ")
    with pytest.raises(SpecError, match="not TOML"):
        BenchmarkFile(tmp_path / "bad.toml").load()


def test_paths_start_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(
        """
name = "own"
[stream]
kind = "classes"
dataset = "mine"
classes_per_task = 1
[datasets.mine]
kind = "npz"
path = "mine.npz"
"""
    )
    definition = BenchmarkFile(path).load().datasets["mine"]
    assert definition.kind == "npz" and definition.path == tmp_path.resolve() / "mine.npz"


@pytest.mark.parametrize("path", [r"a\u0000b", "~nobody-is-called-this/a"])
def test_path_that_cannot_be_one(tmp_path: Path, path: str) -> None:
    """A null character, or the home of nobody: a fault of the file like any other."""
    stream = 'kind = "classes"\ndataset = "digits"\nclasses_per_task = 5\n'
    (tmp_path / "a.toml").write_text(
        f'name = "a"\n[stream]\n{stream}[datasets.mine]\nkind = "npz"\npath = "{path}"\n', encoding="utf-8"
    )
    with pytest.raises(SpecError) as caught:
        BenchmarkFile(tmp_path / "a.toml").load()
    assert any("cannot be a path" in fault for fault in caught.value.faults)


def test_examples_of_the_documentation_load(tmp_path: Path) -> None:
    docs = FOLDER.parent / "docs"
    text = "".join((docs / page).read_text("utf-8") for page in ("reference/benchmarks.md", "guides/own_data.md"))
    examples = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    kinds = set()
    for example in examples:
        (tmp_path / "example.toml").write_text(example)
        spec = BenchmarkFile(tmp_path / "example.toml").load()
        kinds |= {definition.kind for definition in spec.datasets.values()}
    assert kinds == {"folder", "npz", "torchvision"}
    for name in [*NAMES, *DATASETS]:
        assert f"`{name}`" in text
