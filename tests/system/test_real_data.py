"""Quick protocols on real data: minutes each, so ``make test-real`` runs them and ``make test`` does not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from avalanche.training.plugins import EvaluationPlugin

import seu_bench
from seu_bench.config.run import Request
from seu_bench.data.streams import build_stream
from seu_bench.engine.resolve import resolve
from seu_bench.metrics import forgetting
from seu_bench.plugin.registry import Registry
from seu_bench.training.monitoring import AccuracyMatrix, SilentLogger

ROOT = os.environ.get("SEU_BENCH_DATA")

pytestmark = [
    pytest.mark.realdata,
    pytest.mark.slow,
    pytest.mark.skipif(ROOT is None, reason="SEU_BENCH_DATA says where real data sets are; it is not set"),
]


@pytest.fixture(autouse=True)
def all_cores() -> Iterator[None]:
    """These networks are large enough for every core; the other tests have one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(os.cpu_count() or 1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("strategy", "benchmark"),
    [("seu", "pmnist"), ("seu", "split_cifar100"), ("pnn", "split_cifar100"), ("ltg", "split_cifar100")],
)
def test_never_forgets_a_bit(strategy: str, benchmark: str) -> None:
    """Task 0's logits are the same bits after every later task, and no column of the matrix changes."""
    few = {"benchmark.protocols.quick.images.train": 400}
    run = resolve(
        Registry(), Request(strategy=strategy, benchmark=benchmark, protocol="quick", options=few, data_root=ROOT)
    )
    stream = build_stream(run.spec.benchmark, run.load, run.limits, run.spec.seed)
    tasks = len(stream.tasks)
    matrix = AccuracyMatrix(tasks)
    evaluator = EvaluationPlugin(matrix, loggers=[SilentLogger()])
    learner = run.strategy.build(run.context(stream.plan, evaluator=evaluator))
    scenario = stream.avalanche()
    everything = torch.arange(len(stream.tasks[0].test))
    first, _ = stream.tasks[0].test.gather(everything)
    known: torch.Tensor | None = None
    for task, experience in enumerate(scenario.streams["train"]):
        learner.train(experience, eval_streams=[[scenario.streams["valid"][task]]])
        learner.eval(scenario.streams["test"][: task + 1])
        learner.model.eval()
        with torch.no_grad():
            logits = learner.model.forward_single_task(first, 0)
        if known is None:
            known = logits
        assert torch.equal(logits, known), f"task 0's logits changed while task {task} was learned"
    rows = matrix.result()
    for task in range(tasks):
        assert len({rows[later][task] for later in range(task, tasks)}) == 1
        assert rows[task][task] is not None
        assert all(value is None for value in rows[task][task + 1 :])
    assert forgetting(rows) == 0.0
    chance = sum(1 / width for width in stream.plan.classes_per_task) / tasks
    assert sum(rows[-1][task] or 0.0 for task in range(tasks)) / tasks > 2 * chance


@pytest.mark.parametrize("benchmark", ["pmnist", "split_cifar100"])
def test_naive_learns_and_forgets(benchmark: str, tmp_path: Path) -> None:
    """Fine-tuning learns each task above chance, and what it learned before suffers."""
    record = seu_bench.run("naive", benchmark, protocol="quick", data_root=ROOT, results=tmp_path)
    chance = sum(1 / width for width in record.task_classes) / len(record.task_classes)
    learned, lost = record.metrics["learning_acc"], record.metrics["forgetting"]
    assert learned is not None
    assert learned > 1.5 * chance
    assert lost is not None
    assert lost > 0
    assert record.may_be_ranked
