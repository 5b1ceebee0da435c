"""Checks that a strategy resumes from a checkpoint bit by bit, and that its model can be rebuilt."""

from __future__ import annotations

import json
from typing import Any

import torch

from seu_bench.testing.trial import Learner, Trial, from_file, require, same
from seu_bench.training.stage import Stage
from seu_bench.training.strategy import StagedStrategy


def check_resumes(trial: Trial, benchmark: str) -> None:
    """Learn a stream in one go; then its last task again, resumed before it and within it.

    Raises:
        AssertionError: a state cannot be saved in a file, or the weights differ in the end.
    """
    whole = trial.learner(benchmark)
    last = whole.tasks - 1
    for task in range(last):
        whole.learn(task)
    places = {"between two tasks": from_file(whole.strategy.state_dict())}
    within = _noted(whole, last)
    if within:
        places["between two epochs of the last task"] = within[len(within) // 2]
    for place, state in places.items():
        learner = trial.learner(benchmark)
        learner.strategy.load_state_dict(state)
        learner.learn(last)
        require(
            same(whole.weights(), learner.weights()),
            f"a run that was interrupted {place} ends with other weights than one that was not: get_extra_state() must "
            "return all that the strategy remembers beside its model, the stages' get_extra_state() all that decides "
            "how they resume",
        )


def check_made_again(trial: Trial, benchmark: str) -> None:
    """Learn a stream, and rebuild the model as from a file.

    Raises:
        AssertionError: it cannot be made, or answers otherwise.
    """
    learner, again = trial.learner(benchmark).learn_all(), trial.learner(benchmark)
    try:
        again.model.load_architecture(json.loads(json.dumps(learner.model.architecture(), allow_nan=False)))
        again.model.load_state_dict(learner.model.state_dict())
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        require(
            False,
            "the model cannot be made again from architecture() and its weights: no run could be resumed, and "
            f"load_model() would fail: {type(error).__name__}: {first}",
        )
    for task in range(learner.tasks):
        require(
            torch.equal(learner.logits(task), again.logits(task)),
            f"task {task}: a model made again from architecture() and its weights answers otherwise",
        )


def is_resumable(learner: Learner) -> bool:
    """Return whether the strategy can be resumed at all."""
    strategy = learner.strategy
    return isinstance(strategy, StagedStrategy) and strategy.resumable and not learner.whole_stream


def _noted(learner: Learner, task: int) -> list[Any]:
    """Learn a task and return the state after each of its epochs, if the strategy resumes within tasks."""
    strategy, states = learner.strategy, []

    def note(_stage: Stage[Any]) -> None:
        if strategy.resumes_within_tasks:
            states.append(from_file(strategy.state_dict()))

    strategy.pause = note
    learner.learn(task)
    strategy.pause = None
    return states
