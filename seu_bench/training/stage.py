"""Stage: a loop over epochs that is timed, reports its progress, and resumes between epochs.

Searching, creating and training are stages. A stage owns its random state: its result depends on its seed and its
inputs alone.
"""

from __future__ import annotations

import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

import torch
from torch import Tensor

from seu_bench.config.protocol import Schedule
from seu_bench.data.images import TaskImages
from seu_bench.errors import RunError
from seu_bench.models.flops import FlopCounter
from seu_bench.training.state import get_state, set_state
from seu_bench.utils.rehearsing import Costs, abridge, active_rehearsal, meter_loops
from seu_bench.utils.seeding import RandomState

Result = TypeVar("Result")

#: Seconds between two reports within an epoch.
REPORT_EVERY = 0.5

#: Probability that a search whose networks all guess has any reward that is called above chance.
LEVEL = 0.05

_COUNTS = ("epoch", "image_passes", "flops", "seconds", "cpu_seconds", "ended")


@dataclass(frozen=True)
class Stability:
    """Step of a stage along the steepest direction of its penalty, beside the bound of stability.

    SGD with heavy-ball momentum m, ``v <- m v + h x; x <- x - rate v``, converges on the quadratic ``h/2 x^2`` if
    ``0 < rate * h < 2 (1 + m)``, and diverges beyond (B. T. Polyak, "Some methods of speeding up the convergence of
    iteration methods", 1964). Clipping the gradient bounds what then happens, and learns nothing.

    Attributes:
        value: learning rate of the first epoch times the largest second derivative of the penalty.
        bound: ``2 (1 + momentum)``.
        strength: what to lower beside the learning rate: the option of the penalty's strength.
        share: of the strength asked for that the penalty has.
    """

    value: float
    bound: float
    strength: str
    share: float = 1.0

    @classmethod
    def of(cls, schedule: Schedule, curvature: float, strength: str, share: float = 1.0) -> Stability:
        """Return the stability of a schedule's SGD on a penalty whose largest second derivative is ``curvature``."""
        return cls(schedule.learning_rate * curvature, 2 * (1 + schedule.momentum), strength, share)

    @property
    def holds(self) -> bool:
        """Whether the steps are small enough."""
        return self.value < self.bound

    @property
    def advice(self) -> str:
        """What is wrong, and what to do about it."""
        return (
            f"learning rate x largest curvature of the penalty is {self.value:.3g}, and SGD is stable below "
            f"{self.bound:.3g}; lower {self.strength} or learning_rate, or let `seu-bench tune` choose them"
        )


@dataclass(frozen=True)
class EpochReport:
    """Measurements of an epoch: mean loss per image and accuracy in [0, 1]; ``None`` where not measured."""

    loss: float | None = None
    accuracy: float | None = None


@dataclass(frozen=True)
class StageProgress:
    """Progress of a stage.

    Attributes:
        stage, task: name of the stage, 0-based index of the task.
        epoch, epochs: epochs done, and in all.
        report: measurements of the last epoch.
        image_passes: images passed forward so far in this stage.
        seconds: so far.
        done: whether this is the stage's last progress, which alone has what follows.
        curve: measurements of every epoch.
        cpu_seconds: CPU seconds of all threads in this stage.
        flops: floating-point operations of this stage.
        stability: of SGD on the penalty that this stage trains with, with every progress; ``None``: there is none.
        chance_share: rewards no better than guesses, of all; ``None``: there are no rewards.
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
    flops: int | None = None
    stability: Stability | None = None
    chance_share: float | None = None


ProgressCallback: TypeAlias = Callable[[StageProgress], None]
Pause: TypeAlias = "Callable[[Stage[Any]], None]"


class Stage(ABC, Generic[Result]):
    """Base class of all stages.

    A subclass implements :meth:`run_epoch` and :meth:`result`, and names what it is resumed by in
    :attr:`state_attributes`, as a strategy does.

    Args:
        name: ``search``, ``creation``, ``training``, ...
        task: 0-based index of the task.
        epochs: length of the loop.
        seed: seed of all randomness in the stage.
        device: device to compute on.

    Attributes:
        epoch: epochs done; within :meth:`run_epoch` the 0-based number of the present one.
        ended: set it within :meth:`run_epoch` to end the loop early, after this epoch; it is saved with the stage.
        image_passes: images counted so far.
        randomness: active in :meth:`run_epoch` and :meth:`result`; draw under ``randomness.active()`` in a constructor.

    Example:
        ::

            class Counting(Stage[int]):
                state_attributes = ("total",)

                def run_epoch(self) -> EpochReport:
                    self.count_images(100)
                    self.total += 1
                    return EpochReport(loss=0.5)

                def result(self) -> int:
                    return self.total
    """

    #: Names of attributes that decide how the stage continues, beside epoch, counts and random state: tensors, plain
    #: values, and objects with ``state_dict()`` and ``load_state_dict()``. Weights that it trains are among them.
    state_attributes: tuple[str, ...] = ()

    def __init__(self, name: str, task: int, epochs: int, seed: int, device: torch.device) -> None:
        self.name, self.task, self.epochs, self.device = name, task, epochs, device
        self.epoch = self.image_passes = self.flops = 0
        self.seconds = self.cpu_seconds = 0.0
        self.ended = False
        self.stability: Stability | None = None
        self.report = EpochReport()
        self.curve: list[EpochReport] = []
        #: For each reward the probability that guessing does as well.
        self.guessing: list[float] = []
        self.randomness = RandomState(seed, device)
        self._on_progress: ProgressCallback | None = None
        #: Called with all images passed so far, whenever some are counted.
        self._on_passed: Callable[[int], None] | None = None
        self._began = self._notified = time.perf_counter()

    @abstractmethod
    def run_epoch(self) -> EpochReport:
        """Run one epoch; the images it passes forward must be counted with :meth:`count_images`."""

    @abstractmethod
    def result(self) -> Result:
        """Return the stage's result; called once, after the last epoch. It may pass and count images as well."""

    def get_extra_state(self) -> dict[str, Any]:
        """Return tensors and plain values: by default the state of each of :attr:`state_attributes`."""
        return {name: get_state(getattr(self, name)) for name in self.state_attributes}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned."""
        for name in self.state_attributes:
            set_state(self, name, state[name])

    def count_images(self, images: int) -> None:
        """Count so many images passed forward, and report progress now and then."""
        self.image_passes += images
        if (rehearsal := active_rehearsal()) is not None and torch.is_grad_enabled():
            rehearsal.trained += images
        if self._on_passed is not None:
            self._on_passed(self.image_passes)
        now = time.perf_counter()
        if now - self._notified >= REPORT_EVERY:
            self._notify(running=now - self._began)

    def note_reward(self, accuracy: float, images: TaskImages) -> None:
        """Note an accuracy that the stage chooses by, so that the record can say whether guesses do as well."""
        self.guessing.append(guessing_probability(accuracy, images.labels))

    def advance(self) -> None:
        """Run one epoch under the stage's own randomness; a loss that is not finite is a RunError."""
        with self._meter(), self.randomness.active():
            self.report = self.run_epoch()
        self.epoch += 1
        loss = self.report.loss
        if loss is not None and not math.isfinite(loss) and active_rehearsal() is None:
            raise RunError(
                f"the loss became {loss} in stage {self.name!r} of task {self.task}, epoch {self.epoch}",
                remedy="lower the learning rate or the option that makes it diverge; that is another run",
            )

    def run(self, on_progress: ProgressCallback | None = None, pause: Pause | None = None) -> Result:
        """Run the remaining epochs and return the result.

        Args:
            on_progress: called at the start, after every epoch, within long epochs, and at the end.
            pause: called after every epoch, when :meth:`state_dict` is all that is needed to resume.

        Raises:
            RunError: a loss is not finite.
        """
        self._on_progress = on_progress
        self._notify()
        if (rehearsal := active_rehearsal()) is not None:
            rehearsal.stage = self.name
        with self._abridge_loops(self):
            for _ in abridge([1] * (self.epochs - self.epoch)):
                if self.ended:
                    break
                self.advance()
                self.curve.append(self.report)
                if pause is not None:
                    pause(self)
                if self.epoch < self.epochs:
                    self._notify()
        self.epochs = self.epoch
        with self._meter(), self.randomness.active():
            result = self.result()
        self._notify(done=True)
        self._on_progress = None
        return result

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state between two epochs: tensors and plain values only."""
        return {
            "stage": self.name,
            "task": self.task,
            **{name: getattr(self, name) for name in _COUNTS},
            "report": [self.report.loss, self.report.accuracy],
            "curve": [[report.loss, report.accuracy] for report in self.curve],
            "guessing": list(self.guessing),
            "randomness": self.randomness.state_dict(),
            "own": self.get_extra_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned; that of another stage is a RunError."""
        if (state["stage"], state["task"]) != (self.name, self.task):
            raise RunError(
                f"this is the state of stage {state['stage']!r} of task {state['task']}, "
                f"not of stage {self.name!r} of task {self.task}"
            )
        for name in _COUNTS:
            setattr(self, name, state[name])
        self.report = EpochReport(*state["report"])
        self.curve = [EpochReport(*measured) for measured in state["curve"]]
        self.guessing = list(state["guessing"])
        self.randomness.load_state_dict(state["randomness"])
        self.set_extra_state(state["own"])

    @contextlib.contextmanager
    def _meter(self) -> Iterator[None]:
        self._began, computed = time.perf_counter(), time.process_time()
        with FlopCounter() as counter, self._abridge_loops(counter):
            yield
        self.seconds += time.perf_counter() - self._began
        self.cpu_seconds += time.process_time() - computed
        self.flops += counter.flops

    def _abridge_loops(self, counted: Any) -> contextlib.AbstractContextManager[None]:
        """Have loops abridged by the images passed and the ``flops`` counted, if a rehearsal is on."""

        def add_costs(further: Costs) -> None:
            self.image_passes += further[0]
            counted.flops += further[1]

        return meter_loops(lambda: (self.image_passes, counted.flops), add_costs)

    def _notify(self, running: float = 0.0, done: bool = False) -> None:
        """Report the present progress, with the seconds that an epoch has been ``running``."""
        self._notified = time.perf_counter()
        if self._on_progress is None:
            return
        counts = (self.epoch, self.epochs, self.report, self.image_passes, self.seconds + running, done)
        progress = StageProgress(self.name, self.task, *counts, stability=self.stability)
        if done:
            progress = replace(
                progress,
                curve=tuple(self.curve),
                cpu_seconds=self.cpu_seconds,
                flops=self.flops,
                chance_share=chance_share(self.guessing),
            )
        self._on_progress(progress)


@dataclass(frozen=True)
class TaskData:
    """Data to learn a task from. Its test images are not here, and those of other tasks are not either.

    Attributes:
        index: 0-based position of the task in the stream; also the number of its head.
        train: training images, already shuffled: ``train.batches(64, shuffle=True)`` yields images ``[b, C, H, W]``,
            float32 and normalised, and labels ``[b]`` from 0, on the run's device.
        valid: validation images; ``None`` where the benchmark has none. Select by them, never train on them.
    """

    index: int
    train: TaskImages
    valid: TaskImages | None


@dataclass(frozen=True)
class Phase:
    """A stage of learning a task, made when its turn comes, and what is done with its result.

    A strategy's model changes in :attr:`make` and :attr:`apply` only, its extra state while the stage runs as well; and
    :attr:`make` does the same whenever it finds the strategy as it was. A resumed run makes the stage again, gives it
    its state, and then gives the strategy its extra state as of the checkpoint. Whatever else changes while the stage
    runs belongs to the stage's state; so does what :attr:`make` computes from weights that the stage trains.

    Attributes:
        make: returns the stage; called when the earlier phases of the task are over.
        apply: called with the stage's result; ``None``: nothing is left to do.
    """

    make: Callable[[], Stage[Any]]
    apply: Callable[[Any], None] | None = None


class EpochlessStage(Stage[Result]):
    """Base class of stages that compute nothing but their result, from the stage's own random state."""

    def __init__(self, name: str, task: int, seed: int, device: torch.device) -> None:
        super().__init__(name, task, 0, seed, device)

    def run_epoch(self) -> EpochReport:
        """Never called: there are no epochs."""
        return EpochReport()


def guessing_probability(accuracy: float, labels: Tensor) -> float:
    """Return the probability that guessing the most frequent class of ``labels`` ``[N]`` is right at least as often.

    It is the p-value of the one-sided binomial test of an accuracy in [0, 1] against that class's share, which a
    constant answer reaches.
    """
    from scipy.special import bdtrc  # the binomial's tail; scipy.stats takes long to import

    count = len(labels)
    right = round(accuracy * count)
    return float(bdtrc(right - 1, count, float(torch.bincount(labels.cpu()).max()) / count)) if right else 1.0


def chance_share(probabilities: Sequence[float]) -> float | None:
    """Return the share of rewards not distinguishable from guessing, given the probability of each, at :data:`LEVEL`
    over all of them (Bonferroni); ``None`` where there are no rewards."""
    count = len(probabilities)
    return sum(probability * count > LEVEL for probability in probabilities) / count if count else None
