"""Start-up of the command: Avalanche without what it rarely needs, garbage collection, waiting threads."""

from __future__ import annotations

import gc
import os
import subprocess
import sys

import pytest

from seu_bench.utils.startup import collection_paused, wait_passively

USE_AVALANCHE = """
import sys
from seu_bench.utils.startup import defer_imports
defer_imports()
import avalanche.training, torch
print({"wandb.sdk", "torchmetrics"} & set(sys.modules))
import torchmetrics, wandb
print(wandb.__file__ is not None, torchmetrics.functional.accuracy.__module__)
from avalanche.evaluation.metrics import TopkAccuracy
metric = TopkAccuracy(2)
metric.update(torch.eye(4), torch.arange(4), 0)
print(metric.result())
import avalanche.evaluation.metrics.confusion_matrix as module
print(module.wandb.Image is wandb.Image)
"""


def run(code: str) -> list[str]:
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.long
def test_avalanche_imports_rarely_used_modules_on_use() -> None:
    """Nobody else sees the stand-ins, and what needs the modules gets them."""
    assert run(USE_AVALANCHE) == [
        "set()",
        "True torchmetrics.functional.classification.accuracy",
        "{0: 1.0}",
        "True",
    ]


def test_collection_is_paused_until_resumed() -> None:
    with collection_paused() as resume:
        assert not gc.isenabled()
        resume()
        assert gc.isenabled()
    with pytest.raises(KeyError), collection_paused():
        raise KeyError
    assert gc.isenabled()


def test_collection_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with collection_paused() as resume:
            resume()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_threads_wait_passively_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, expected in (("active", "active"), (None, "passive")):
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
        if given:
            monkeypatch.setenv("OMP_WAIT_POLICY", given)
        wait_passively()
        assert os.environ["OMP_WAIT_POLICY"] == expected


@pytest.mark.parametrize("asked", ["--version", "--help"])
def test_command_prepares_its_process_without_torch(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    told = run(
        "import atexit, os, sys\n"
        "atexit.register(lambda: print(os.environ['OMP_WAIT_POLICY'], 'startup' in repr(sys.meta_path[0]), "
        "'torch' in sys.modules))\n"
        f"sys.argv = ['seu-bench', {asked!r}]\n"
        "from seu_bench.cli.main import main\n"
        "main()"
    )
    assert told[-1] == "passive True False"
