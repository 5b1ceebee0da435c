"""Run ids: readable, the same for the same request and another one for whatever changes the result."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.errors import OptionError, RequestError
from seu_bench.plugin.registry import Registry

BASE = Request(strategy="seu", benchmark="split_digits", protocol="smoke", seed=3)


def changed(**fields: Any) -> Request:
    """The base with other fields."""
    return Request(**{**BASE.model_dump(), **fields})


BENCHMARK = """
name = "own"
version = 1
summary = "words"
default_protocol = "smoke"

[stream]
kind = "classes"
dataset = "digits"
classes_per_task = 2
"""


@pytest.fixture(scope="module")
def registry() -> Registry:
    """Registry of the installed plugins."""
    return Registry()


def run_id(registry: Registry, request: Request) -> str:
    return resolve(registry, request).spec.run_id


def test_slug_and_precision(registry: Registry) -> None:
    """A reader sees the benchmark, the protocol, the strategy, what makes it unranked or another run, and the seed."""
    assert re.fullmatch(r"split_digits-smoke-seu-seed3-[0-9a-f]{10}", run_id(registry, BASE))
    small = changed(strategy="naive", limit=8, synthetic=True, precision="bf16")
    assert re.fullmatch(r"split_digits-smoke-naive-limit8-synthetic-bf16-seed3-[0-9a-f]{10}", run_id(registry, small))


@pytest.mark.parametrize(
    "request_",
    [
        BASE,
        changed(searcher="mdl", creator="mdl"),
        changed(options={"edges": "top2", "cell_types": 2, "warm_start": True}),
        changed(options={"searcher.alpha": 0.01, "creator.restore": "best_valid"}),
        changed(options={"benchmark.stream.validation": 0.15}),
        changed(options={"benchmark.summary": "other words", "benchmark.default_protocol": "paper"}),
        changed(options={"benchmark.protocols.paper.training.epochs": 7}),
        changed(precision="float32"),
    ],
    ids=str,
)
def test_unchanged(registry: Registry, request_: Request) -> None:
    """Defaults that are written out, texts, and protocols that the run does not use change nothing."""
    assert run_id(registry, request_) == run_id(registry, BASE)


CHANGES: list[dict[str, Any]] = [
    {"seed": 4},
    {"protocol": "quick"},
    {"strategy": "naive"},
    {"benchmark": "pmnist"},
    {"limit": 8},
    {"synthetic": True},
    {"options": {"epochs": 3}},
    {"precision": "bf16"},
    {"precision": "bf16-features"},
    {"options": {"preset": "code"}},
    {"options": {"genotype": "darts_v1"}},
    {"options": {"searcher.alpha": 0.02}},
    {"options": {"benchmark.stream.validation": 0.2}},
    {"options": {"benchmark.version": 3}},
    {"options": {"benchmark.protocols.smoke.training.epochs": 3}},
]


def test_every_change_is_another_run(registry: Registry) -> None:
    """Nothing that decides the result is left out, and no two of these are taken for one another."""
    ids = [run_id(registry, BASE), *[run_id(registry, changed(**change)) for change in CHANGES]]
    assert len(set(ids)) == len(CHANGES) + 1


def test_same_in_another_process(registry: Registry) -> None:
    """The id hangs on no hash seed: a finished run is found again tomorrow."""
    code = (
        "from seu_bench.plugin.registry import Registry; from seu_bench.engine.resolve import Request, resolve;"
        "print(resolve(Registry(), Request(protocol='smoke', seed=3)).spec.run_id)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == run_id(registry, BASE)


def test_where_a_file_lies_is_no_matter(registry: Registry, tmp_path: Path) -> None:
    """A benchmark file is what is written in it: a copy elsewhere, with other comments, is the same benchmark."""
    for folder, text in (("a", BENCHMARK), ("b", "# copied\n" + BENCHMARK.replace('"words"', '"more words"'))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.toml").write_text(text)
    first, second = (changed(benchmark=str(tmp_path / folder / "own.toml")) for folder in "ab")
    assert run_id(registry, first) == run_id(registry, second)
    (tmp_path / "b" / "own.toml").write_text(BENCHMARK.replace("= 2", "= 5"))
    assert run_id(registry, first) != run_id(registry, second)


def test_classes_by_name_are_classes_by_number(registry: Registry) -> None:
    """One run however its classes are given; its record has numbers, so that leaderboards count both as one."""
    numbers = {"benchmark.stream.groups": [[0, 1], [5, 2]], "benchmark.stream.order": [1, 0]}
    names = {"benchmark.stream.groups": [["airplane", 1], ["dog", "bird"]], "benchmark.stream.order": [1, 0]}
    one, other = (
        resolve(registry, changed(benchmark="split_cifar10", options=options)) for options in (numbers, names)
    )
    assert one.spec.run_id == other.spec.run_id
    assert one.overrides == other.overrides == {"stream.groups": [[0, 1], [5, 2]], "stream.order": [1, 0]}
    with pytest.raises(RequestError, match=r"'brid' is no class of it \(did you mean 'bird'\?\)"):
        resolve(registry, changed(benchmark="split_cifar10", options={"benchmark.stream.groups": [["brid"]]}))


def test_own_data_decides(registry: Registry, tmp_path: Path) -> None:
    """Other images in the user's own file are another run, though the benchmark file is the same."""
    import numpy as np

    text = BENCHMARK.replace('"digits"', '"mine"') + '\n[datasets.mine]\nkind = "npz"\npath = "mine.npz"\n'
    (tmp_path / "own.toml").write_text(text)
    asked = changed(benchmark=str(tmp_path / "own.toml"))
    ids = set()
    for grey in (1, 2):
        labels = np.arange(20) % 4
        np.savez(tmp_path / "mine.npz", images=np.full((20, 4, 4), grey, dtype=np.uint8), labels=labels)
        ids.add(run_id(registry, asked))
    assert len(ids) == 2


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, "1", None, True])
def test_seeds(registry: Registry, seed: object) -> None:
    """A seed that NumPy's generator would not take is refused before anything begins."""
    with pytest.raises(OptionError, match="seed"):
        resolve(registry, changed(seed=seed))  # type: ignore[arg-type]
