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
from torch import nn

from seu_bench.errors import RunError
from seu_bench.seeding import RandomState
from seu_bench.spec import Schedule

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


Watcher: TypeAlias = Callable[[StageProgress], None]
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
        self._watch: Watcher | None = None
        self._began = self._told = time.perf_counter()

    @abstractmethod
    def run_epoch(self) -> EpochReport:
        """One epoch. Counts the images it passes forward with :meth:`passed`."""

    @abstractmethod
    def result(self) -> Result:
        """What the stage found; called once, after the last epoch."""

    @abstractmethod
    def own_state(self) -> dict[str, Any]:
        """Everything else that decides how the stage goes on: tensors and plain values."""

    @abstractmethod
    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`own_state` gave."""

    def passed(self, images: int) -> None:
        """Count ``images`` passed forward; tells the watcher now and then."""
        self.image_passes += images
        now = time.perf_counter()
        if self._watch is not None and now - self._told >= REPORT_EVERY:
            self._told = now
            self._watch(self._progress(self.seconds + now - self._began))

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

    def run(self, watch: Watcher | None = None, pause: Pause | None = None) -> Result:
        """Run what is left of the loop and return the result.

        Args:
            watch: told of the progress.
            pause: called after every epoch, when :meth:`state_dict` is all that is needed to go on.
        """
        self._watch = watch
        self._tell()
        while self.epoch < self.epochs:
            self.advance()
            self.curve.append(self.report)
            if pause is not None:
                pause(self)
            if self.epoch < self.epochs:
                self._tell()
        with self._timed(), self.randomness.active():
            result = self.result()
        self._tell(done=True)
        self._watch = None
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
            "own": self.own_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave.

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
        # A checkpoint of an earlier version has neither this nor the curve: they are not known any more.
        self.cpu_seconds = state.get("cpu_seconds")
        self.report = EpochReport(*state["report"])
        curve = [EpochReport(*measured) for measured in state.get("curve", ())]
        self.curve = [EpochReport()] * (self.epoch - len(curve)) + curve
        self.randomness.load_state_dict(state["randomness"])
        self.load_own_state(state["own"])

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

    def _tell(self, done: bool = False) -> None:
        if self._watch is not None:
            self._told = time.perf_counter()
            self._watch(self._progress(self.seconds, done))


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

    def own_state(self) -> dict[str, Any]:
        """Nothing beside the stage's randomness."""
        return {}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        """Nothing."""


def cosine_rate(schedule: Schedule, epoch: int) -> float:
    """Learning rate of 0-based ``epoch``: cosine from ``learning_rate`` to ``min_learning_rate``
    (Loshchilov & Hutter, SGDR, ICLR 2017, equation 5, without restarts)."""
    span = schedule.learning_rate - schedule.min_learning_rate
    return schedule.min_learning_rate + span * (1 + math.cos(math.pi * epoch / schedule.epochs)) / 2


def make_sgd(parameters: list[nn.Parameter], schedule: Schedule) -> torch.optim.SGD:
    """A fresh SGD optimiser as ``schedule`` says.

    It goes over the memory of weights, gradients and momentum once and not four times (``fused``): of large linear
    layers on a CPU that is a fifth of a whole step. Momentum begins as zeros, which is the same; torch's fused step
    fails where some weights have momentum and others, not sampled yet, have none.
    """
    optimizer = torch.optim.SGD(
        parameters,
        lr=schedule.learning_rate,
        momentum=schedule.momentum,
        weight_decay=schedule.weight_decay,
        fused=True,
    )
    if schedule.momentum:
        for parameter in parameters:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def clip_gradients(parameters: list[nn.Parameter], limit: float) -> None:
    """Scale gradients so that their norm, taken over all of them, is at most ``limit``; bit for bit what
    ``nn.utils.clip_grad_norm_`` does, which multiplies by 1 where there is nothing to scale."""
    if not parameters or parameters[0].device.type != "cpu":
        nn.utils.clip_grad_norm_(parameters, limit)  # asking for the norm would wait for the accelerator
        return
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if not limit / (norm + 1e-6) >= 1:
        nn.utils.clip_grads_with_norm_(parameters, limit, norm)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every parameter group."""
    for group in optimizer.param_groups:
        group["lr"] = rate


class BestWeights:
    """The weights of the epoch with the lowest validation loss, kept aside and restored.

    Args:
        module: what trains; nothing else is copied.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.loss = math.inf
        self._kept: dict[str, torch.Tensor] = {}

    def offer(self, loss: float) -> None:
        """Keep the present weights if ``loss`` is the lowest so far."""
        if loss < self.loss:
            self.loss = loss
            self.keep()

    def keep(self) -> None:
        """Keep the present weights in any case."""
        self._kept = {name: tensor.detach().clone() for name, tensor in self.module.state_dict().items()}

    def restore(self) -> None:
        """Go back to the weights kept, if any."""
        if self._kept:
            self.module.load_state_dict(self._kept)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values."""
        return {"loss": self.loss, "kept": dict(self._kept)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` gave."""
        self.loss = state["loss"]
        self._kept = dict(state["kept"])
