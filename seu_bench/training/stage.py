"""A stage: a loop over epochs with a state that can be timed, watched, interrupted between epochs and resumed.

Searching, creating and training are stages. A stage owns its randomness, so that what it does depends on the seed and
on its inputs alone.
"""

from __future__ import annotations

import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import torch

from seu_bench.errors import RunError
from seu_bench.utils.seeding import RandomState

Result = TypeVar("Result")

#: Seconds between two reports within an epoch.
REPORT_EVERY = 0.5


@dataclass(frozen=True)
class EpochReport:
    """What an epoch measured: mean loss per image and accuracy in [0, 1]; ``None`` where not measured."""

    loss: float | None = None
    accuracy: float | None = None


@dataclass(frozen=True)
class StageProgress:
    """How far a stage is.

    Attributes:
        task: 0-based.
        epoch: epochs done.
        image_passes: images passed forward so far in this stage.
        seconds: spent in this stage so far.
        done: whether this is the stage's last report.
        curve: with the last report, what every epoch measured; empty before.
        cpu_seconds: with the last report, what all threads of the process computed meanwhile; ``None``: not measured.
    """

    stage: str
    task: int
    epoch: int
    epochs: int
    report: EpochReport
    image_passes: int
    seconds: float
    done: bool = False
    curve: tuple[EpochReport, ...] = ()
    cpu_seconds: float | None = None


ProgressCallback: TypeAlias = Callable[[StageProgress], None]
Pause: TypeAlias = "Callable[[Stage[Any]], None]"


class Stage(ABC, Generic[Result]):
    """Base of all stages.

    Args:
        name: ``search``, ``creation``, ``training``, ...
        task: 0-based.
        epochs: length of the loop.
        seed: of all randomness in the stage.
        device: where it computes.
    """

    #: Whether units are worth compiling for it; not for networks that are sampled anew in every epoch.
    compiles_units = False

    def __init__(self, name: str, task: int, epochs: int, seed: int, device: torch.device) -> None:
        self.name = name
        self.task = task
        self.epochs = epochs
        self.device = device
        self.epoch = 0
        self.image_passes = 0
        self.seconds = 0.0
        self.cpu_seconds: float | None = 0.0
        self.report = EpochReport()
        self.curve: list[EpochReport] = []
        self.randomness = RandomState(seed, device)
        self._on_progress: ProgressCallback | None = None
        #: Called with all images passed so far, whenever some are counted.
        self._on_passed: Callable[[int], None] | None = None
        self._began = self._notified = time.perf_counter()

    @abstractmethod
    def run_epoch(self) -> EpochReport:
        """One epoch. Counts the images it passes forward with :meth:`passed`."""

    @abstractmethod
    def result(self) -> Result:
        """What the stage found; called once, after the last epoch."""

    @abstractmethod
    def get_extra_state(self) -> dict[str, Any]:
        """Everything else that decides how the stage goes on: tensors and plain values."""

    @abstractmethod
    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""

    def passed(self, images: int) -> None:
        """Count ``images`` passed forward; tells the watcher now and then."""
        self.image_passes += images
        if self._on_passed is not None:
            self._on_passed(self.image_passes)
        now = time.perf_counter()
        if self._on_progress is not None and now - self._notified >= REPORT_EVERY:
            self._notified = now
            self._on_progress(self._progress(self.seconds + now - self._began))

    def advance(self) -> None:
        """Run one epoch under the stage's own randomness.

        Raises:
            RunError: the loss is not finite any more.
        """
        with self._timed(), self.randomness.active():
            self.report = self.run_epoch()
        self.epoch += 1
        loss = self.report.loss
        if loss is not None and not math.isfinite(loss):
            raise RunError(
                f"the loss became {loss} in stage {self.name!r} of task {self.task}, epoch {self.epoch}",
                remedy="lower the learning rate or the option that makes it diverge; that is another run",
            )

    def run(self, on_progress: ProgressCallback | None = None, pause: Pause | None = None) -> Result:
        """Run what is left of the loop and return the result.

        Args:
            on_progress: told of the progress.
            pause: called after every epoch, when :meth:`state_dict` is all that is needed to go on.
        """
        self._on_progress = on_progress
        self._notify()
        while self.epoch < self.epochs:
            self.advance()
            self.curve.append(self.report)
            if pause is not None:
                pause(self)
            if self.epoch < self.epochs:
                self._notify()
        with self._timed(), self.randomness.active():
            result = self.result()
        self._notify(done=True)
        self._on_progress = None
        return result

    def state_dict(self) -> dict[str, Any]:
        """The whole state between two epochs: tensors and plain values only."""
        return {
            "stage": self.name,
            "task": self.task,
            "epoch": self.epoch,
            "image_passes": self.image_passes,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "report": [self.report.loss, self.report.accuracy],
            "curve": [[report.loss, report.accuracy] for report in self.curve],
            "randomness": self.randomness.state_dict(),
            "own": self.get_extra_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned.

        Raises:
            RunError: the state is another stage's.
        """
        if (state["stage"], state["task"]) != (self.name, self.task):
            raise RunError(
                f"this is the state of stage {state['stage']!r} of task {state['task']}, "
                f"not of stage {self.name!r} of task {self.task}"
            )
        self.epoch = state["epoch"]
        self.image_passes = state["image_passes"]
        self.seconds = state["seconds"]
        self.cpu_seconds = state["cpu_seconds"]
        self.report = EpochReport(*state["report"])
        self.curve = [EpochReport(*measured) for measured in state["curve"]]
        self.randomness.load_state_dict(state["randomness"])
        self.set_extra_state(state["own"])

    @contextlib.contextmanager
    def _timed(self) -> Iterator[None]:
        self._began, computed = time.perf_counter(), time.process_time()
        yield
        self.seconds += time.perf_counter() - self._began
        if self.cpu_seconds is not None:
            self.cpu_seconds += time.process_time() - computed

    def _progress(self, seconds: float, done: bool = False) -> StageProgress:
        """What the watcher is told; ``seconds`` holds those of an epoch that is not over."""
        return StageProgress(
            self.name,
            self.task,
            self.epoch,
            self.epochs,
            self.report,
            self.image_passes,
            seconds,
            done,
            curve=tuple(self.curve) if done else (),
            cpu_seconds=self.cpu_seconds if done else None,
        )

    def _notify(self, done: bool = False) -> None:
        if self._on_progress is not None:
            self._notified = time.perf_counter()
            self._on_progress(self._progress(self.seconds, done))


class EpochlessStage(Stage[Result]):
    """Base of stages that compute nothing but their result. It may draw: that is the stage's own randomness.

    Args:
        name, task, seed, device: as for :class:`Stage`.
    """

    def __init__(self, name: str, task: int, seed: int, device: torch.device) -> None:
        super().__init__(name, task, 0, seed, device)

    def run_epoch(self) -> EpochReport:
        """Never called: there are no epochs."""
        return EpochReport()

    def get_extra_state(self) -> dict[str, Any]:
        """Nothing beside the stage's randomness."""
        return {}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Nothing."""
