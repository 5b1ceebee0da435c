"""The example of a strategy with a memory, installed as a stranger's in an environment of its own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.installed import Environment

from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, read_record

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "seu_bench_derpp_strategy"

#: A short run; two epochs, so that images of the first are replayed in the second.
SHORT = ["--strategy", "derpp", "--protocol", "smoke", "-o", "backbone=mlp", "-o", "memory=20", "-o", "epochs=2"]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The example, installed."""
    return Environment(EXAMPLE, tmp_path_factory.mktemp("derpp"))


def command(environment: Environment, *words: object) -> str:
    """Output of a command that succeeds."""
    done = environment("-m", "seu_bench.cli.main", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(environment: Environment, results: Path, *options: str) -> Record:
    """Record of a short run."""
    command(environment, "run", *SHORT, *options, "--results", results)
    (folder,) = (results / "runs").iterdir()
    return read_record(folder)


@pytest.mark.long
def test_is_listed_with_its_options(environment: Environment) -> None:
    """Name, package and options are shown there; here nobody knows it."""
    listed = json.loads(command(environment, "list", "strategies", "--format", "json"))
    (entry,) = [entry for entry in listed if entry["name"] == "derpp"]
    assert entry["package"] == "seu-bench-derpp-strategy"
    assert {"alpha", "beta", "memory", "backbone", "restore"} <= {option["name"] for option in entry["options"]}
    assert "derpp" not in Registry().strategies


@pytest.mark.long
def test_costs_what_was_said(environment: Environment, tmp_path: Path) -> None:
    """Image passes, operations and bytes are those of the estimate, and replay changes what is learned."""
    record = run(environment, tmp_path / "with")
    said: dict[str, Any] = json.loads(command(environment, "cost", *SHORT, "--format", "json"))
    assert record.metrics["image_passes"] == said["image_passes"]
    assert record.metrics["train_flops"] == said["train_flops"] == said["train_flops_min"]
    assert list(record.memory_bytes or ()) == said["memory_bytes"] == said["memory_bytes_min"]
    # 20 grey images of 8x8, label and task a byte each, two logits of 4 bytes
    assert said["memory_bytes"][-1] - 4 * record.params_total[-1] == 20 * (64 + 2 + 8)
    plain = run(environment, tmp_path / "without", "-o", "alpha=0", "-o", "beta=0")
    assert plain.metrics["image_passes"] == record.metrics["image_passes"]
    assert [stage.losses for stage in plain.stages] != [stage.losses for stage in record.stages]


@pytest.mark.long
def test_holds_to_the_contract(environment: Environment) -> None:
    """Its own tests pass, the contract's among them."""
    done = environment(
        "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", environment.copy / "test_derpp.py"
    )
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) >= 15
