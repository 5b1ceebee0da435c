"""The steps that a task is learned by: run one after another, and gone on with in the middle of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seu_bench.checkpoint import fitting
from seu_bench.loading import TaskImages
from seu_bench.stage_context import computing_in, units_compiled
from seu_bench.stages import Stage
from seu_bench.training import TrainingStage

if TYPE_CHECKING:
    from seu_bench.strategy import StagedStrategy


@dataclass(frozen=True)
class TaskData:
    """What may be used to learn a task: its training and validation images. Its test images are not here."""

    index: int
    train: TaskImages
    valid: TaskImages | None


@dataclass(frozen=True)
class Step:
    """A stage of learning a task, made when its turn comes, and what is done with its result.

    A strategy's model and memory change in :attr:`make` and :attr:`apply` only, and :attr:`make` does the same
    whenever it finds the strategy as it was: a run that goes on makes the stage again and gives it its state.
    """

    make: Callable[[], Stage[Any]]
    apply: Callable[[Any], None] | None = None


@dataclass(frozen=True)
class _Begun:
    """What a step found: plain values, and the names of the model's weights and of those that do not train."""

    task: int
    step: int
    architecture: Mapping[str, Any]
    names: tuple[str, ...]
    frozen: tuple[str, ...]
    own: Mapping[str, Any]


class StepRunner:
    """Runs the steps of a strategy's tasks, and knows at every moment all that going on from there needs.

    Args:
        strategy: whose model and memory the steps change.
    """

    def __init__(self, strategy: StagedStrategy) -> None:
        self._strategy = strategy
        self._begun: _Begun | None = None
        self._stage: Stage[Any] | None = None
        self._left: Mapping[str, Any] | None = None

    def run(self, task: TaskData, steps: Sequence[Step]) -> None:
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
            surroundings.enter_context(computing_in(strategy.computing.precision, strategy.device))
            if isinstance(stage, TrainingStage):  # what creators sample for an epoch is not worth the wait
                compiled = units_compiled(strategy.model, strategy.computing, strategy.train_mb_size)
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
            strategy.model.grow_to(state["architecture"])
            strategy.model.to(strategy.device)
            strategy.model.load_state_dict(state["weights"])
            for name, weight in strategy.model.named_parameters():
                weight.requires_grad_(name not in state["frozen"])
            strategy.load_own_state(state["own"])
            if state["stage"] is not None and (state["task"] != strategy.learned or state["step"] < 0):
                raise ValueError(f"task {state['task']} does not follow {strategy.learned} learned ones")
        self._left = state if state["stage"] is not None else None

    def _beginning(self, task: int, step: int) -> _Begun:
        model = self._strategy.model
        frozen = tuple(name for name, weight in model.named_parameters() if not weight.requires_grad)
        own = self._strategy.own_state()
        return _Begun(task, step, model.architecture(), tuple(model.state_dict()), frozen, own)
