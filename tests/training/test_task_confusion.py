"""Confusion between tasks: which task the answers to a task's images belong to, counted against hand-made answers."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from seu_bench.training.monitoring.evaluators import TaskConfusion

#: Tasks of two, three and one classes: 0-1, 2-4 and 5.
CLASSES = (2, 3, 1)


def answer(
    evaluator: TaskConfusion, task: int, *batches: Sequence[int], learned: int = 2, stream: str = "test"
) -> None:
    """Let the evaluator see a task's batches, each of answers by their class, after ``learned`` + 1 tasks."""
    experience = SimpleNamespace(origin_stream=SimpleNamespace(name=stream), current_experience=task)
    strategy: Any = SimpleNamespace(experience=experience, clock=SimpleNamespace(train_exp_counter=learned + 1))
    evaluator.before_eval_exp(strategy)
    for classes in batches:
        # Of classes seen so far only: a head that grows gives as many logits.
        width = sum(CLASSES[: max(learned, 0) + 1])
        strategy.mb_output = torch.nn.functional.one_hot(torch.tensor(classes), width).float()
        strategy.mb_y = torch.zeros(len(classes), dtype=torch.int64)
        evaluator.after_eval_iteration(strategy)
    evaluator.after_eval_exp(strategy)


@pytest.fixture
def evaluator() -> TaskConfusion:
    return TaskConfusion(CLASSES)


def test_answers_by_their_task(evaluator: TaskConfusion) -> None:
    """At both ends of each task's classes, over batches."""
    answer(evaluator, 0, [0, 1, 2, 4, 5], [0])
    answer(evaluator, 1, [2, 3, 4, 1])
    answer(evaluator, 2, [5, 5, 4])
    assert evaluator.result() == [[3, 2, 1], [1, 3, 0], [0, 1, 2]]


def test_a_class_of_several_tasks() -> None:
    """It is one of the images' own task where that has it, otherwise of the first that has it."""
    evaluator = TaskConfusion((2, 1, 0), labels=((0, 1), (1, 2), (2, 0)))
    for task in range(3):
        answer(evaluator, task, [0, 1, 1, 2])
    assert evaluator.result() == [[3, 1, 0], [1, 3, 0], [2, 0, 2]]


def test_tasks_not_evaluated_are_empty(evaluator: TaskConfusion) -> None:
    """Of a stream that is learned in part; no answer is a class of theirs."""
    assert evaluator.result() == [[], [], []]
    answer(evaluator, 0, [0, 3], learned=1)
    answer(evaluator, 1, [2], learned=1)
    assert evaluator.result() == [[1, 1, 0], [0, 1, 0], []]


def test_the_last_evaluation_counts(evaluator: TaskConfusion) -> None:
    """Rows of two evaluations are never side by side."""
    answer(evaluator, 0, [0, 0], learned=0)
    answer(evaluator, 0, [2, 3], learned=1)
    answer(evaluator, 1, [2, 2], learned=1)
    assert evaluator.result() == [[0, 2, 0], [0, 2, 0], []]
    answer(evaluator, 0, [5, 5], learned=2)
    assert evaluator.result() == [[0, 0, 2], [], []]


@pytest.mark.parametrize("where", [{"stream": "valid"}, {"learned": -1}])
def test_other_evaluations_do_not_enter(evaluator: TaskConfusion, where: dict[str, Any]) -> None:
    """Nor what is evaluated before anything was learned."""
    answer(evaluator, 0, [0], **where)
    assert evaluator.result() == [[], [], []]


def test_a_task_without_images(evaluator: TaskConfusion) -> None:
    answer(evaluator, 0)
    assert evaluator.result() == [[], [], []]


def test_reset(evaluator: TaskConfusion) -> None:
    answer(evaluator, 0, [0])
    evaluator.reset()
    assert evaluator.result() == [[], [], []]


def test_counts_stay_on_the_device_within_a_task(evaluator: TaskConfusion, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch asks for no value, which would wait for the device."""
    for name in ("item", "tolist", "cpu", "__int__", "__bool__"):
        monkeypatch.setattr(torch.Tensor, name, lambda *_: pytest.fail("a batch was waited for"))
    evaluator.before_eval_exp(None)
    logits = torch.eye(6)
    for _ in range(3):
        evaluator.after_eval_iteration(SimpleNamespace(mb_output=logits, mb_y=torch.zeros(6)))
    monkeypatch.undo()
    experience = SimpleNamespace(origin_stream=SimpleNamespace(name="test"), current_experience=1)
    evaluator.after_eval_exp(SimpleNamespace(experience=experience, clock=SimpleNamespace(train_exp_counter=3)))
    assert evaluator.result()[1] == [6, 9, 3]
