"""The steps that a task is learned by: run one after another, and gone on with in the middle of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from seu_bench.config.run import ComputeConfig
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.training.context import computing_in, units_compiled
from seu_bench.training.stage import Pause, Stage, Watcher
from seu_bench.training.state import fitting
from seu_bench.training.task import Phase, TaskData


class PhaseLearner(Protocol):
    """What :class:`PhaseRunner` needs of a strategy: its model, its memory, and how it computes."""

    model: MultiHeadModel
    compute: ComputeConfig
    device: Any
    train_mb_size: int
    watch: Watcher | None
    pause: Pause | None
    resumes_within_tasks: bool

    @property
    def learned(self) -> int:
        """Number of tasks learned so far."""

    def get_extra_state(self) -> dict[str, Any]:
        """State beside the model's."""

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""


@dataclass(frozen=True)
class _Begun:
    """What a step found: plain values, and the names of the model's weights and of those that do not train."""

    task: int
    step: int
    architecture: Mapping[str, Any]
    names: tuple[str, ...]
    frozen: tuple[str, ...]
    own: Mapping[str, Any]


class PhaseRunner:
    """Runs the steps of a strategy's tasks, and knows at every moment all that going on from there needs.

    Args:
        strategy: whose model and memory the steps change.
    """

    def __init__(self, strategy: PhaseLearner) -> None:
        self._strategy = strategy
        self._begun: _Begun | None = None
        self._stage: Stage[Any] | None = None
        self._left: Mapping[str, Any] | None = None

    def run(self, task: TaskData, steps: Sequence[Phase]) -> None:
        """Learn a task, from where :meth:`load_state_dict` left it.

        Raises:
            CheckpointError: what was loaded does not fit these steps.
        """
        strategy = self._strategy
        left, self._left = self._left, None
        first = 0 if left is None else int(left["step"])
        with fitting(f"task {task.index}"):
            if first >= len(steps):
                raise ValueError(f"there is no step {first} among {len(steps)}")
        for number, step in enumerate(steps[first:], start=first):
            if strategy.resumes_within_tasks:
                self._begun = self._beginning(task.index, number)
            stage = step.make()
            if strategy.model.feature_cache is not None:
                strategy.model.feature_cache.begin_stage()
            if left is not None:
                with fitting(f"stage {stage.name!r} of task {task.index}"):
                    stage.load_state_dict(left["stage"])
                left = None
            self._stage = stage
            result = self._result_of(stage)
            self._stage = None
            if step.apply is not None:
                step.apply(result)
        self._begun = None

    def _result_of(self, stage: Stage[Any]) -> Any:
        strategy = self._strategy
        with ExitStack() as surroundings:
            surroundings.enter_context(computing_in(strategy.compute.precision, strategy.device))
            if stage.compiles_units:
                compiled = units_compiled(strategy.model, strategy.compute, strategy.train_mb_size)
                surroundings.enter_context(compiled)
            return stage.run(strategy.watch, strategy.pause)

    def state_dict(self) -> dict[str, Any]:
        """The strategy as it was when the present step began, and the present stage as it is now.

        The weights are today's: those that the step found and its stage trains are in the stage's state as well, and
        in a file they are stored once.
        """
        begun = self._begun or self._beginning(self._strategy.learned, 0)
        weights = self._strategy.model.state_dict()
        return {
            "task": begun.task,
            "step": begun.step,
            "architecture": begun.architecture,
            "frozen": list(begun.frozen),
            "weights": {name: weights[name] for name in begun.names},
            "own": begun.own,
            "stage": None if self._stage is None else self._stage.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Bring the strategy's model and memory to where its present step began; its clock is right already.

        Raises:
            CheckpointError: the state does not fit this strategy.
        """
        strategy = self._strategy
        with fitting("the strategy"):
            strategy.model.load_architecture(state["architecture"])
            strategy.model.to(strategy.device)
            strategy.model.load_state_dict(state["weights"])
            for name, weight in strategy.model.named_parameters():
                weight.requires_grad_(name not in state["frozen"])
            strategy.set_extra_state(state["own"])
            if state["stage"] is not None and (state["task"] != strategy.learned or state["step"] < 0):
                raise ValueError(f"task {state['task']} does not follow {strategy.learned} learned ones")
        self._left = state if state["stage"] is not None else None

    def _beginning(self, task: int, step: int) -> _Begun:
        model = self._strategy.model
        frozen = tuple(name for name, weight in model.named_parameters() if not weight.requires_grad)
        own = self._strategy.get_extra_state()
        return _Begun(task, step, model.architecture(), tuple(model.state_dict()), frozen, own)
