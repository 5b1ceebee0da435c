"""Which task the answers to a task's images belong to, counted against hand-made answers."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from seu_bench.training import AccuracyMatrix


def answer(
    evaluator: AccuracyMatrix, task: int, *batches: Sequence[int], learned: int = 2, stream: str = "test"
) -> None:
    """Let the evaluator see a task's batches, each of answers by their class, after ``learned`` + 1 tasks."""
    experience = SimpleNamespace(origin_stream=SimpleNamespace(name=stream), current_experience=task)
    clock = SimpleNamespace(train_exp_counter=learned + 1, train_iterations=0)
    strategy: Any = SimpleNamespace(experience=experience, clock=clock)
    evaluator.before_eval_exp(strategy)
    for classes in batches:
        strategy.mb_output = torch.nn.functional.one_hot(torch.tensor(classes), 6).float()
        strategy.mb_y = torch.zeros(len(classes), dtype=torch.int64)
        evaluator.after_eval_iteration(strategy)
    evaluator.after_eval_exp(strategy)


def test_answers_by_their_task() -> None:
    """Of tasks of two, three and one classes, over batches, in the last evaluation of the test stream."""
    evaluator = AccuracyMatrix(3, classes=(2, 3, 1))
    answer(evaluator, 0, [0, 0], learned=1)
    answer(evaluator, 0, [0, 1, 2, 4, 5], [0])
    answer(evaluator, 1, [2, 3, 4, 1])
    answer(evaluator, 1, [0], stream="valid")
    assert evaluator.confusion == [[3, 2, 1], [1, 3, 0], []]
    assert evaluator.result()[2] == [2 / 6, 0.0, None]
    evaluator.reset()
    assert evaluator.confusion == [[], [], []] and AccuracyMatrix(3).confusion == []


def test_a_class_of_several_tasks() -> None:
    """It is one of the images' own task where that has it, otherwise of the first that has it."""
    evaluator = AccuracyMatrix(3, classes=(2, 1, 0), labels=((0, 1), (1, 2), (2, 0)))
    for task in range(3):
        answer(evaluator, task, [0, 1, 1, 2])
    assert evaluator.confusion == [[3, 1, 0], [1, 3, 0], [2, 0, 2]]
