"""The example of a searcher, installed as a stranger's in an environment of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.installed import Environment

from seu_bench.plugin.registry import Registry
from seu_bench.results.record import read_record

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "seu_bench_random_walk_searcher"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The example, installed."""
    return Environment(EXAMPLE, tmp_path_factory.mktemp("random-walk"))


@pytest.mark.long
def test_is_listed_with_its_options(environment: Environment) -> None:
    """Name, package and options are shown there; here nobody knows it."""
    done = environment("-m", "seu_bench.cli.main", "list", "searchers", "--format", "json")
    assert done.returncode == 0, done.stderr
    (entry,) = [entry for entry in json.loads(done.stdout) if entry["name"] == "random_walk"]
    assert entry["package"] == "seu-bench-random-walk-searcher"
    assert {"edges", "epochs", "cells"} <= {option["name"] for option in entry["options"]}
    assert "random_walk" not in Registry().searchers


@pytest.mark.long
def test_swapping_is_one_word(environment: Environment, tmp_path: Path) -> None:
    """A run with it differs from another in the option --searcher alone."""
    asked = ["--benchmark", "split_digits", "--protocol", "smoke", "--limit", 8, "-o", "searcher.edges=2"]
    done = environment("-m", "seu_bench.cli.main", "run", *asked, "--searcher", "random_walk", "--results", tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    record = read_record(folder)
    assert (record.status, record.searcher, record.searcher_options["edges"]) == ("finished", "random_walk", 2)
    assert len(record.genotypes or ()) == 5


@pytest.mark.long
def test_holds_to_the_contract(environment: Environment) -> None:
    """Its own tests pass, the contract's among them."""
    tests = environment.copy / "test_random_walk.py"
    done = environment("-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", tests)
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) >= 12


def test_package_edits_nothing_of_ours() -> None:
    """Nothing outside the example's folder knows of it but its documentation and these tests."""
    knowing = [
        path.relative_to(ROOT).as_posix()
        for top in ("seu_bench", "plugins", "benchmarks")
        for path in (ROOT / top).rglob("*.py")
        if "random_walk" in path.read_text(encoding="utf-8")
    ]
    assert knowing == []
