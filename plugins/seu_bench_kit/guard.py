"""Guard around the stages of searchers and creators: failures name the plugin, and come before any harm."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from seu_bench.errors import RunError, SeuBenchError
from seu_bench.training.interfaces import Component
from seu_bench.training.stage import EpochReport, Result, Stage, StageProgress
from seu_bench_kit.components import CreationTask, SearchTask, component_passes


class GuardedStage(Stage[Result]):
    """A plugin's stage under supervision: errors name plugin, package, stage and task, the announced budget of images
    and epochs is enforced, results are checked before anybody uses them.

    Budgets are counted, never timed: a stage that loops without counting images is seen by the progress of the run,
    which stands still. It is driven epoch by epoch; its own ``run`` is not called.

    Args:
        owner: searcher or creator that was chosen for the run.
        task: images, schedule and seed that it is given.
        fault: returns why a result cannot be used, or ``None`` if it can.

    Raises:
        PluginError: its factory cannot say what the stage will take.
        RunError: the stage cannot be made.
    """

    def __init__(
        self, owner: Component, task: SearchTask | CreationTask, fault: Callable[[object], str | None]
    ) -> None:
        name = "search" if owner.kind == "searcher" else "creation"
        self._owner = owner
        self._place = f"in stage {name!r} of task {task.task}"
        self._passes = sum(component_passes(owner, task.schedule, len(task.images)))
        self._fault = fault
        self._callback_error: BaseException | None = None
        with self._guard():
            self.inner: Stage[Result] = owner.factory.build(owner.options, task)
            if not isinstance(self.inner, Stage):
                raise RunError(f"it is no Stage but {type(self.inner).__name__}")
            # A number that no loop ends at, such as infinity, is none.
            epochs: object = self.inner.epochs
            if not isinstance(epochs, int) or epochs < 0:
                raise RunError(f"its number of epochs is {epochs!r}, and must be a whole one")
            super().__init__(name, task.task, epochs, 0, self.inner.device)
            self.randomness = self.inner.randomness
        self.inner._on_progress = self._report_progress
        self.inner._on_passed = self._check_passes

    def advance(self) -> None:
        """One epoch of the plugin's stage."""
        inner = self.inner
        with self._guard():
            inner.advance()
            self.epoch += 1
            self._copy_progress()
            if inner.epochs != self.epochs:
                raise RunError(f"it does not end: its {self.epochs} epochs became {inner.epochs} while it ran")
            if inner.epoch != self.epoch:
                raise RunError(f"it does not end: it stands at epoch {inner.epoch} after {self.epoch} epochs")
            self._check_passes(inner.image_passes)
            for name, value in (("loss", self.report.loss), ("accuracy", self.report.accuracy)):
                if value is not None and not math.isfinite(value):
                    raise RunError(f"it measured the {name} {value}")
            if not 0 <= (self.report.accuracy or 0) <= 1:
                raise RunError(f"it measured the accuracy {self.report.accuracy}, and accuracies are from 0 to 1")

    def result(self) -> Result:
        """Return the checked result of the plugin's stage."""
        with self._guard():
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
        """Restore what :meth:`get_extra_state` returned."""
        with self._guard():
            self.inner.load_state_dict(state)
        self.randomness = self.inner.randomness

    def _copy_progress(self) -> None:
        self.ended = self.inner.ended
        self.image_passes = self.inner.image_passes
        self.flops = self.inner.flops
        self.seconds = self.inner.seconds
        self.cpu_seconds = self.inner.cpu_seconds
        self.report = self.inner.report
        self.guessing = self.inner.guessing

    def _report_progress(self, progress: StageProgress) -> None:
        if self._on_progress is not None:
            try:
                mine = replace(progress, stage=self.name, task=self.task, epoch=self.epoch, epochs=self.epochs)
                self._on_progress(mine)
            except BaseException as error:
                self._callback_error = error  # not this plugin's fault
                raise

    def _check_passes(self, passed: int) -> None:
        if passed > self._passes:
            raise RunError(
                f"it passed {passed} images forward, and had announced {self._passes} at most",
                remedy="its factory's estimate_passes() must announce all images that the stage passes",
            )

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except (Exception, SystemExit) as error:
            if error is self._callback_error:
                raise
            known = error if isinstance(error, SeuBenchError) else RunError(f"{type(error).__name__}: {error}")
            raise RunError(
                f"{self._owner} failed {self._place}: {known.what}",
                where=known.where,
                remedy=known.remedy
                or f"choose another {self._owner.kind}, or report it to the author of {self._owner.package}",
            ) from error
