"""Phases of learning a task: run one after another, and resumed in the middle of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Protocol

from seu_bench.config.run import ComputeConfig
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.training.context import computing_in, units_compiled
from seu_bench.training.stage import Pause, ProgressCallback, Stage
from seu_bench.training.state import fitting
from seu_bench.training.task import Phase, TaskData


class PhaseLearner(Protocol):
    """Part of a strategy that :class:`PhaseRunner` needs: model, memory, and how it computes."""

    model: MultiHeadModel
    compute: ComputeConfig
    device: Any
    train_mb_size: int
    on_progress: ProgressCallback | None
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
    """State at the beginning of a phase: plain values, and names of the model's weights and of the frozen ones."""

    task: int
    phase: int
    architecture: Mapping[str, Any]
    names: tuple[str, ...]
    frozen: tuple[str, ...]
    own: Mapping[str, Any]


class PhaseRunner:
    """Runner of the phases of a strategy's tasks, with the state to resume from at every moment."""

    def __init__(self, strategy: PhaseLearner) -> None:
        self._strategy = strategy
        self._begun: _Begun | None = None
        self._stage: Stage[Any] | None = None
        self._pending: Mapping[str, Any] | None = None

    def run(self, task: TaskData, phases: Sequence[Phase]) -> None:
        """Learn a task, from where :meth:`load_state_dict` resumes.

        Raises:
            CheckpointError: what was loaded does not fit these phases.
        """
        strategy = self._strategy
        pending, self._pending = self._pending, None
        first = 0 if pending is None else int(pending["phase"])
        with fitting(f"task {task.index}"):
            if first >= len(phases):
                raise ValueError(f"there is no phase {first} among {len(phases)}")
        for number, phase in enumerate(phases[first:], start=first):
            if strategy.resumes_within_tasks:
                self._begun = self._beginning(task.index, number)
            stage = phase.make()
            if strategy.model.feature_cache is not None:
                strategy.model.feature_cache.begin_stage()
            if pending is not None:
                with fitting(f"stage {stage.name!r} of task {task.index}"):
                    stage.load_state_dict(pending["stage"])
                pending = None
            self._stage = stage
            result = self._result_of(stage)
            self._stage = None
            if phase.apply is not None:
                phase.apply(result)
        self._begun = None

    def _result_of(self, stage: Stage[Any]) -> Any:
        strategy = self._strategy
        with ExitStack() as surroundings:
            surroundings.enter_context(computing_in(strategy.compute.precision, strategy.device))
            if stage.compiles_units:
                compiled = units_compiled(strategy.model, strategy.compute, strategy.train_mb_size)
                surroundings.enter_context(compiled)
            return stage.run(strategy.on_progress, strategy.pause)

    def state_dict(self) -> dict[str, Any]:
        """Return the strategy as it was when the present phase began, and the present stage as it is now.

        The weights are today's: those that the phase found and its stage trains are in the stage's state as well, and
        in a file they are stored once.
        """
        begun = self._begun or self._beginning(self._strategy.learned, 0)
        weights = self._strategy.model.state_dict()
        return {
            "task": begun.task,
            "phase": begun.phase,
            "architecture": begun.architecture,
            "frozen": list(begun.frozen),
            "weights": {name: weights[name] for name in begun.names},
            "own": begun.own,
            "stage": None if self._stage is None else self._stage.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the strategy's model and memory to where its present phase began; its clock is right already."""
        strategy = self._strategy
        with fitting("the strategy"):
            strategy.model.load_architecture(state["architecture"])
            strategy.model.to(strategy.device)
            strategy.model.load_state_dict(state["weights"])
            for name, weight in strategy.model.named_parameters():
                weight.requires_grad_(name not in state["frozen"])
            strategy.set_extra_state(state["own"])
            if state["stage"] is not None and (state["task"] != strategy.learned or state["phase"] < 0):
                raise ValueError(f"task {state['task']} does not follow {strategy.learned} learned ones")
        self._pending = state if state["stage"] is not None else None

    def _beginning(self, task: int, phase: int) -> _Begun:
        model = self._strategy.model
        frozen = tuple(name for name, weight in model.named_parameters() if not weight.requires_grad)
        own = self._strategy.get_extra_state()
        return _Begun(task, phase, model.architecture(), tuple(model.state_dict()), frozen, own)
