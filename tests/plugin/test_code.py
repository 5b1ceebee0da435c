"""Digests of the source of plugins: of what they change with, and of what not."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from support.broken_components import Stranger
from support.commands import FEW_IMAGES, TINY, Install

from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.plugin.code import _source_digest, describe_code
from seu_bench.plugin.registry import Registry, load_plugins
from seu_bench.results.record import CodeRecord

NAMED = "from pathlib import Path\nfrom seu_bench.config.benchmark import BenchmarkFile\n" + (
    "@hookimpl\ndef register_benchmarks(register):\n"
    "    register('few', BenchmarkFile(Path(__file__).with_name('few.toml')))\n"
    "@hookimpl\ndef register_metrics(register):\n    register('half_acc', lambda record: 1.0)\n"
)


def strategy_code() -> CodeRecord:
    """The code of the strategy ``tiny``."""
    registry = Registry()
    return describe_code(registry, "strategy", registry.strategies["tiny"])


@pytest.fixture
def package(install: Install) -> Path:
    """The folder of an installed package of two modules and a folder."""
    folder: Path = install("a-stranger", {"tiny": "tiny_package.plugin"}, {}) / "tiny_package"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "plugin.py").write_text(TINY)
    (folder / "inner" / "part.py").write_text("VALUE = 1\n")
    return folder


def replace(folder: Path) -> None:
    (folder / "inner" / "part.py").write_text("VALUE = 2\n")


def rename(folder: Path) -> None:
    (folder / "inner" / "part.py").rename(folder / "inner" / "other.py")


def add(folder: Path) -> None:
    (folder / "more.py").touch()


def touch(folder: Path) -> None:
    os.utime(folder / "plugin.py", (1, 1))


def cache(folder: Path) -> None:
    (folder / "__pycache__").mkdir(exist_ok=True)
    (folder / "__pycache__" / "plugin.cpython-300.pyc").write_bytes(b"x")
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / ".ipynb_checkpoints" / "plugin-checkpoint.py").write_text(TINY)
    (folder / "notes.txt").touch()


@pytest.mark.parametrize(
    ("change", "is_other"), [(replace, True), (rename, True), (add, True), (touch, False), (cache, False)]
)
def test_what_it_changes_with(package: Path, change: Callable[[Path], None], is_other: bool) -> None:
    """Every file of Python, its name and its bytes, and nothing else."""
    before = strategy_code()
    assert (before.kind, before.name, before.package, before.version) == ("strategy", "tiny", "a-stranger", "1.0")
    assert before.sha256 is not None and len(before.sha256) == 64
    change(package)
    _source_digest.cache_clear()
    assert (strategy_code().sha256 != before.sha256) == is_other


def test_edited_while_it_runs(package: Path) -> None:
    """Python computes with what it imported, which is what a record names."""
    before = strategy_code()
    replace(package)
    assert strategy_code() == before


def test_single_module(tiny: Path) -> None:
    """The file alone, wherever it lies."""
    before = strategy_code()
    (tiny / "unrelated.py").touch()
    assert strategy_code() == before


def test_object() -> None:
    """The file of the module that defines it; no version, and no source where there is no file."""
    manager = load_plugins()
    manager.register(Stranger(), name="stranger")
    module = ModuleType("made_by_hand")
    exec(TINY, vars(module))
    manager.register(module, name="by hand")
    registry = Registry(manager)
    name = next(name for name, entry in registry.searchers.items() if entry.plugin == "stranger")
    found = describe_code(registry, "searcher", registry.searchers[name])
    assert (found.package, found.version) == ("stranger", None)
    assert found.sha256 is not None
    found = describe_code(registry, "strategy", registry.strategies["tiny"])
    assert (found.package, found.version, found.sha256) == ("by hand", None, None)
    assert str(found) == "by hand [source unknown]"


def test_what_a_run_uses(install: Install, tmp_path: Path) -> None:
    """Nothing of seu-bench's own; of a stranger's what it names, every metric, and a benchmark by the file's bytes."""
    asked = {"protocol": "instant", "results": tmp_path}
    (tmp_path / "few.toml").write_text(FEW_IMAGES)
    digest = hashlib.sha256(FEW_IMAGES.encode()).hexdigest()
    by_path = Request(strategy="ewc", benchmark=str(tmp_path / "few.toml"), **asked)
    assert resolve(Registry(), Request(strategy="seu", protocol="smoke")).code == ()
    assert resolve(Registry(), by_path).code == (CodeRecord(kind="benchmark file", name="few.toml", sha256=digest),)
    folder = install("a-stranger", {"tiny": "tiny_plugin"}, {"tiny_plugin": TINY + NAMED})
    (folder / "few.toml").write_text(FEW_IMAGES)
    found = {code.kind: code for code in resolve(Registry(), Request(strategy="tiny", benchmark="few", **asked)).code}
    assert list(found) == ["strategy", "metric", "benchmark"]
    assert {(code.package, code.version) for code in found.values()} == {("a-stranger", "1.0")}
    assert found["benchmark"].sha256 == digest
    assert found["strategy"].sha256 == found["metric"].sha256 != digest
