"""What a searcher or a creator does wrong is told with its name, and before it does harm.

A strategy does not run the stage of a plugin as it is, but a :class:`GuardedStage` around it: errors name plugin,
package, stage and task; a budget that was announced is kept; what comes out is checked before anybody uses it.
"""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from seu_bench.config.run import PATIENCE
from seu_bench.errors import RunError, SeuBenchError
from seu_bench.training.costing import component_passes
from seu_bench.training.interfaces import Component, CreationTask, SearchTask
from seu_bench.training.stage import EpochReport, Result, Stage, StageProgress

#: Seconds until the clock rings again where nobody could hear it.
_AT_ONCE = 0.01


class GuardedStage(Stage[Result]):
    """A plugin's stage, watched over. It is driven epoch by epoch; its own ``run`` is not called.

    Args:
        owner: whose stage it is.
        make: makes the plugin's stage.
        stage, task: what it is for, as messages name it.
        passes: images that the owner's factory said it would pass forward, at most.
        fault: why a result cannot be used; ``None``: it can.
        patience: seconds that may go by without an image or an epoch.

    Raises:
        RunError: the stage cannot be made, or is none.
    """

    def __init__(
        self,
        owner: Component,
        make: Callable[[], Stage[Result]],
        *,
        stage: str,
        task: int,
        passes: int,
        fault: Callable[[object], str | None],
        patience: float = PATIENCE,
    ) -> None:
        self._owner = owner
        self._place = f"in stage {stage!r} of task {task}"
        self._passes = passes
        self._fault = fault
        self._clock = _Clock(patience)
        self._watcher_error: BaseException | None = None
        self._seen = 0
        with self._guarded():
            self.inner = make()
            if not isinstance(self.inner, Stage):
                raise RunError(f"it is no Stage but {type(self.inner).__name__}")
            # A number that no loop ends at, such as infinity, is none.
            epochs: object = self.inner.epochs
            if not isinstance(epochs, int) or epochs < 0:
                raise RunError(f"its number of epochs is {epochs!r}, and must be a whole one")
            super().__init__(stage, task, epochs, 0, self.inner.device)
            self.randomness = self.inner.randomness

    def advance(self) -> None:
        """One epoch of the plugin's stage.

        Raises:
            RunError: it failed, measured what is no number, or went beyond what it had announced.
        """
        inner = self.inner
        with self._guarded():
            inner._watch = self._watched
            inner.advance()
            self.epoch += 1
            self._copy_progress()
            if inner.epochs != self.epochs:
                raise RunError(f"it does not end: its {self.epochs} epochs became {inner.epochs} while it ran")
            if inner.epoch != self.epoch:
                raise RunError(f"it does not end: it stands at epoch {inner.epoch} after {self.epoch} epochs")
            self._check_passes(inner.image_passes)
            _check_report(self.report)

    def result(self) -> Result:
        """What the plugin's stage found.

        Raises:
            RunError: it cannot be used.
        """
        with self._guarded():
            self.inner._watch = self._watched
            found = self.inner.result()
            self._copy_progress()
            self._check_passes(self.image_passes)
            if (fault := self._fault(found)) is not None:
                raise RunError(f"its result cannot be used: {fault}")
        return found

    def run_epoch(self) -> EpochReport:
        """The plugin's own; :meth:`advance` is what is called."""
        return self.inner.run_epoch()

    def get_extra_state(self) -> dict[str, Any]:
        """The plugin's whole state."""
        return self.inner.state_dict()

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`get_extra_state` gave."""
        with self._guarded():
            self.inner.load_state_dict(state)
        self.randomness = self.inner.randomness

    def _copy_progress(self) -> None:
        self.image_passes = self.inner.image_passes
        self.seconds = self.inner.seconds
        self.cpu_seconds = self.inner.cpu_seconds
        self.report = self.inner.report

    def _watched(self, progress: StageProgress) -> None:
        """Called from within the plugin's epoch."""
        self._check_passes(progress.image_passes)
        if progress.image_passes > self._seen:
            self._seen = progress.image_passes
            self._clock.wind()
        if self._watch is not None:
            try:
                self._watch(
                    StageProgress(
                        self.name,
                        self.task,
                        self.epoch,
                        self.epochs,
                        progress.report,
                        progress.image_passes,
                        progress.seconds,
                    )
                )
            except BaseException as error:
                if not isinstance(error, _StuckError):
                    self._watcher_error = error  # not this plugin's fault
                raise

    def _check_passes(self, passed: int) -> None:
        if passed > self._passes:
            raise RunError(
                f"it passed {passed} images forward, and had announced {self._passes} at most",
                remedy="its factory's passes() must give what the stage takes; a loop that does not end takes more",
            )

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            with self._clock:
                yield
        except (Exception, SystemExit) as error:
            if error is self._watcher_error:
                raise
            known = isinstance(error, SeuBenchError)
            said = error.what if isinstance(error, SeuBenchError) else f"{type(error).__name__}: {error}"
            raise RunError(
                f"{self._owner} failed {self._place}: {said}",
                where=error.where if isinstance(error, SeuBenchError) else None,
                remedy=(error.remedy if isinstance(error, SeuBenchError) and known else None)
                or f"choose another {self._owner.kind}, or report it to the author of {self._owner.package}",
            ) from error


def guarded_stage(
    component: Component,
    task: SearchTask | CreationTask,
    fault: Callable[[object], str | None],
    patience: float = PATIENCE,
) -> GuardedStage[Any]:
    """The stage of a searcher or a creator for a task, inside its guard.

    Raises:
        PluginError: its factory cannot say what the stage will take.
        RunError: the stage cannot be made.
    """
    return GuardedStage(
        component,
        lambda: component.factory.build(component.options, task),
        stage="search" if component.kind == "searcher" else "creation",
        task=task.task,
        passes=sum(component_passes(component, task.schedule, len(task.images))),
        fault=fault,
        patience=patience,
    )


def _check_report(report: EpochReport) -> None:
    for name, value in (("loss", report.loss), ("accuracy", report.accuracy)):
        if value is not None and not math.isfinite(value):
            raise RunError(f"it measured the {name} {value}")
    if report.accuracy is not None and not 0 <= report.accuracy <= 1:
        raise RunError(f"it measured the accuracy {report.accuracy}, and accuracies are from 0 to 1")


class _StuckError(RunError):
    """The clock rang."""


class _Clock:
    """Interrupts whoever takes too long without winding it up. Works in a process's main thread on Unix, where a timer
    can interrupt any code; elsewhere it does nothing. It rings again and again: a plugin may swallow what it raises.
    So does Python itself in a finaliser or a callback of a weak reference, where the clock then rings again at once."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._before: Any = None
        self._hook_before: Any = None
        self._timer_before: tuple[float, float] = (0.0, 0.0)
        self._runs = False

    def __enter__(self) -> None:
        self._runs = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
        if self._runs:
            self._before = signal.signal(signal.SIGALRM, self._ring)
            self._hook_before, sys.unraisablehook = sys.unraisablehook, self._swallowed
            self._timer_before = signal.getitimer(signal.ITIMER_REAL)
            self.wind()

    def __exit__(self, *exception: object) -> None:
        if self._runs:
            self._runs = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)
            sys.unraisablehook = self._hook_before
            # Somebody else's time limit goes on from where it stood.
            signal.setitimer(signal.ITIMER_REAL, *self._timer_before)

    def wind(self) -> None:
        """Begin to count anew."""
        if self._runs:
            signal.setitimer(signal.ITIMER_REAL, self.seconds, self.seconds)

    def _swallowed(self, unraisable: Any) -> None:
        """What Python calls with an exception that it cannot raise."""
        if not isinstance(unraisable.exc_value, _StuckError):
            self._hook_before(unraisable)
        elif self._runs:
            signal.setitimer(signal.ITIMER_REAL, _AT_ONCE, self.seconds)

    def _ring(self, number: int, frame: object) -> None:
        raise _StuckError(
            f"it does not end: for {self.seconds:g} seconds it passed no image and ended no epoch",
            remedy="see whether it loops for ever; one that only takes long calls passed() as it goes",
        )
