"""Sweeps from files: every key, every fault at once, and the last sweep of a results folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import Command

from seu_bench.errors import SpecError
from seu_bench.sweeps.spec import make_spec


def test_file(tmp_path: Path) -> None:
    """Every key; paths start from the file's folder."""
    file = tmp_path / "sweep.toml"
    file.write_text(
        """
        strategy = ["seu", "naive"]
        benchmark = "split_digits,own/mine.toml"
        seeds = ["0-2", 7]
        searcher = "mdl,darts"
        creator = ["frugal"]
        protocol = "quick"
        limit = 8
        synthetic = true
        precision = "bf16"
        threads = 2
        executor = "local"
        jobs = 2
        device = "cpu"
        data_root = "data"
        results = "out"
        feature_cache = "2K"
        checkpoint_every = 5
        keep_weights = false
        references = true
        retry_failed = true
        accept_code = true
        log = "mlflow,tensorboard"
        evaluation = "validation"
        first_tasks = 3
attach = ["my_parts:Shift"]
        match = "params=seu"
        tuned = ["chosen", "own/tuned.toml"]
        [log_options]
        mlflow.experiment = "grid"
        [options]
        epochs = [1, 2]
        widths = [[1, 2], [3]]
        searcher.alpha = 0.5
        executor.cpus = 3
        """
    )
    spec = make_spec({}, file)
    assert spec.model_dump() == {
        "strategy": ("seu", "naive"),
        "benchmark": ("split_digits", str(tmp_path / "own/mine.toml")),
        "seeds": (0, 1, 2, 7),
        "searcher": ("mdl", "darts"),
        "creator": ("frugal",),
        "protocol": "quick",
        "options": {"epochs": (1, 2), "widths": ([1, 2], [3]), "searcher.alpha": (0.5,), "executor.cpus": (3,)},
        "limit": 8,
        "synthetic": True,
        "precision": "bf16",
        "threads": 2,
        "executor": "local",
        "jobs": 2,
        "device": "cpu",
        "data_root": tmp_path / "data",
        "results": tmp_path / "out",
        "feature_cache": 2048,
        "checkpoint_every": 5,
        "compile": False,
        "keep_weights": False,
        "references": True,
        "retry_failed": True,
        "plugin": (),
        "accept_code": True,
        "log": ("mlflow", "tensorboard"),
        "log_options": {"mlflow.experiment": "grid"},
        "evaluation": "validation",
        "first_tasks": 3,
        "attach": ("my_parts:Shift",),
        "match": "params=seu",
        "tuned": ("chosen", str(tmp_path / "own/tuned.toml")),
    }
    assert set(spec.axes) == {"epochs", "widths", "searcher.alpha"}
    assert spec.executor_options == {"jobs": 2, "cpus": 3}


def test_options_replace_those_of_the_file(tmp_path: Path) -> None:
    """Each key that is given besides, and each option by itself; the rest stays."""
    file = tmp_path / "sweep.toml"
    file.write_text('strategy = "ewc"\nseeds = "0-4"\nprotocol = "quick"\n[options]\nepochs = 1\nsearcher.alpha = 2\n')
    spec = make_spec({"seeds": "7", "options": {"epochs": [3, 4], "width": [0.5]}}, file)
    assert (spec.strategy, spec.seeds, spec.protocol) == (("ewc",), (7,), "quick")
    assert spec.options == {"epochs": (3, 4), "searcher.alpha": (2,), "width": (0.5,)}


def test_every_fault_of_a_file(command: Command, tmp_path: Path) -> None:
    """All at once, each with its key; nothing is written."""
    file = tmp_path / "sweep.toml"
    file.write_text(
        'strategys = "seu"\nseeds = "3-1"\nlimit = 2\nsynthetic = "yes"\njobs = true\nfeature_cache = "lots"\n'
        "benchmark = []\noptions = 3\n"
    )
    answer = command("sweep", file, "--results", tmp_path / "results")
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith("error: the sweep file has 8 faults\n")
    for place in (
        "strategys: no such key (did you mean 'strategy'?)", "seeds: the range 3-1 ends", "limit: ",
        "synthetic: ", "jobs: ", "feature_cache: 'lots' is no number of bytes", "benchmark: ", "options: ",
    ):  # fmt: skip
        assert f"\n  - {place}" in answer.err, place
    assert f"where: {file}" in answer.err
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("text", [None, "a = [", "a = 1\na = 2", b"\xff"])
def test_unreadable_files(tmp_path: Path, text: str | bytes | None) -> None:
    """Absent, no TOML, no text."""
    file = tmp_path / "sweep.toml"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SpecError, match=r"does not exist|is not TOML|cannot be read"):
        make_spec({}, file)
