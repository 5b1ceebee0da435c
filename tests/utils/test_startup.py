"""Start-up of the command: Avalanche without what it rarely needs, waiting threads."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
    functional = "True torchmetrics.functional.classification.accuracy"
    assert run(USE_AVALANCHE) == ["set()", functional, "{0: 1.0}", "True"]


@pytest.mark.parametrize("given", [None, "active"])
def test_command_prepares_its_process_without_torch(given: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if given:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    told = run(
        "import atexit, os, sys\n"
        "atexit.register(lambda: print(os.environ['OMP_WAIT_POLICY'], 'startup' in repr(sys.meta_path[0]), "
        "'torch' in sys.modules))\n"
        "sys.argv = ['seu-bench', '--help']\n"
        "from seu_bench.cli.main import main\n"
        "main()"
    )
    assert told[-1] == f"{given or 'passive'} True False"
