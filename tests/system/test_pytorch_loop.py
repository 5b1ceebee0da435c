"""From PyTorch loop to method: the example's loop and the method run, and compute the same loss of each batch."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

import seu_bench
from seu_bench.testing import Trial

LOOP = Path(__file__).resolve().parents[2] / "examples" / "derpp_loop.py"


@pytest.fixture(scope="module")
def loop() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("derpp_loop", LOOP)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CAPACITY", 20)  # so that images make room for others
        patch.setattr(module, "REPLAYED", 8)
        yield module


def losses(loop: ModuleType) -> tuple[list[float], list[float]]:
    """Those of the loop and of the method, for batches of three tasks in turn, on one network."""
    options = {"backbone": "mlp", "width": 0.05, "dropout": 0.0, "memory": 20, "batch_size_mem": 8}
    learner = Trial("derpp", options).learner("tiny_three")
    method, model, memory = learner.strategy, learner.model, loop.Memory()
    model.eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ours, theirs = list[float](), list[float]()
    for number in range(12):
        images = learner.stream.tasks[number // 4].train
        x, y = images.gather((torch.arange(8) + 8 * number) % len(images))
        task = torch.full((len(y),), images.task_label)
        torch.manual_seed(number)
        theirs.append(method.batch_loss(x, y, task, model(x, task)).item())
        torch.manual_seed(number)
        loss = loop.batch_loss(model, memory, x, y, task)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ours.append(loss.item())
    assert method.memory.seen == memory.seen == 96 and len(memory.images) == loop.CAPACITY
    return ours, theirs


def test_same_loss_of_each_batch(loop: ModuleType) -> None:
    """With one seed both draw the same images and replace the same ones."""
    ours, theirs = losses(loop)
    assert ours == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize(("name", "value"), [("ALPHA", 0.11), ("BETA", 0.51), ("CAPACITY", 19)])
def test_another_loss_is_told(loop: ModuleType, name: str, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above can fail."""
    monkeypatch.setattr(loop, name, value)
    ours, theirs = losses(loop)
    assert ours != pytest.approx(theirs, rel=1e-6)


@pytest.mark.long
def test_both_learn(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, LOOP],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout.split()[1].rstrip(",")) > 0.95
    record = seu_bench.run("derpp", "split_digits", protocol="quick", options={"backbone": "mlp"}, results=tmp_path)
    assert (record.metrics["acc"] or 0) > 0.95
