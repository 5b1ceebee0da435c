"""Shared by tests of loggers: a run that is logged, and the expected log, made from what hooks received."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from seu_bench import hookimpl
from seu_bench.config.options import Options
from seu_bench.config.run import Request
from seu_bench.engine.launcher import launch
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import Interruption
from seu_bench.plugin.loggers import LoggedRun, LoggedValues
from seu_bench.plugin.registry import Registry, load_plugins
from seu_bench.results.record import Record
from seu_bench.training.stage import StageProgress

#: Steps and values by name, in the order in which they were logged.
Log: TypeAlias = dict[str, list[tuple[int, float]]]

EPOCHS = 3


@dataclass(eq=False)
class Witness:
    """A plugin that watches without any logger: what the stages measured, and notices. It can stop the run."""

    stop_after: int = 0
    stop: StopRequest = field(default_factory=StopRequest)
    curves: Log = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        """Keep each epoch once, and stop after so many."""
        if progress.stage == "evaluation" or not progress.epoch:
            return
        for name in ("loss", "accuracy"):
            curve = self.curves.setdefault(f"{progress.stage}/task-{progress.task}/{name}", [])
            if len(curve) < progress.epoch:
                curve.append((progress.epoch, getattr(progress.report, name)))
        self.stop_after -= 1
        if self.stop_after == 0:
            self.stop.ask(Interruption("stopped by the test", 143))

    @hookimpl
    def run_notice(self, message: str) -> None:
        """Keep."""
        self.notices.append(message)


def logged_run(
    results: Path,
    names: Iterable[str] = (),
    *,
    plugins: Mapping[str, object] | None = None,
    witness: Witness | None = None,
    log_options: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    **fields: Any,
) -> tuple[Record, Witness]:
    """A run of ``tiny`` on eight images of each task of ``split_digits``, with a checkpoint after each epoch."""
    witness = witness or Witness()
    manager = load_plugins()
    for name, plugin in {**(plugins or {}), "witness": witness}.items():
        manager.register(plugin, name=name)
    registry = Registry(manager)
    request = Request(
        strategy="tiny",
        protocol="smoke",
        limit=8,
        options={"epochs": EPOCHS, **(options or {})},
        results=results,
        log=names,
        log_options=log_options or {},
        **{"device": "cpu", "checkpoint_every": 0.0, **fields},
    )
    return launch(request, registry, stop=witness.stop).record, witness


def due(record: Record, *attempts: Log) -> Log:
    """Expected log of a finished run, each step once, by the curves of its attempts."""
    curves = {name: [] for curves in attempts for name in curves}
    for name in curves:
        curves[name] = list(dict(step for attempt in attempts for step in attempt.get(name, [])).items())
    rows: Log = {}
    for learned, row in enumerate(record.accuracy_matrix, start=1):
        measured = [value for value in row if value is not None]
        for task, value in enumerate(measured):
            rows.setdefault(f"accuracy/task-{task}", []).append((learned, value))
        rows.setdefault("accuracy/average", []).append((learned, sum(measured) / len(measured)))
    for name in ("params_total", "mask_bits", "params_active", "macs", "memory_bytes"):
        rows[f"size/{name}"] = [(learned, value) for learned, value in enumerate(getattr(record, name), start=1)]
    final = {
        f"final/{name}": [(len(record.task_names), value)]
        for name, value in record.metrics.items()
        if value is not None and not name.startswith("peak_")
    }
    return {**curves, **rows, **final}


class NoOptions(Options):
    """None."""


class Keeping:
    """A stranger's logger and its plugin: keeps what it is told for all runs, and does harm where it is asked to."""

    summary = "keeps everything"
    options: type[Options] = NoOptions

    def __init__(self, harm: Mapping[str, Callable[[], None]] | None = None) -> None:
        self.harm = harm or {}
        self.told: list[tuple[str, Any]] = []

    @hookimpl
    def register_loggers(self, register: Any) -> None:
        """Offer itself."""
        register("keeping", self)

    def build(self, options: Options, folder: Path) -> Keeping:
        """One logger for all runs."""
        self._tell("build", folder)
        return self

    def begin(self, run: LoggedRun) -> None:
        """Keep."""
        self._tell("begin", run)

    def last_step(self, name: str) -> int | None:
        """As it was kept of this attempt."""
        return max((step for step, _ in self.kept(self.attempts[-1]).get(name, [])), default=None)

    def log(self, measured: LoggedValues) -> None:
        """Keep."""
        self._tell("log", measured)

    def end(self, status: str) -> None:
        """Keep."""
        self._tell("end", status)

    @property
    def attempts(self) -> list[str]:
        """Of all runs that began or went on, in that order."""
        return [run.attempt for what, run in self.told if what == "begin"]

    def kept(self, attempt: str) -> Log:
        """All numbers of one attempt."""
        found: Log = {}
        current = ""
        for what, value in self.told:
            current = value.attempt if what == "begin" else current
            for name, number in value.values.items() if what == "log" and current == attempt else ():
                found.setdefault(name, []).append((value.step, number))
        return found

    def _tell(self, what: str, value: Any) -> None:
        self.told.append((what, value))
        if what in self.harm:
            self.harm[what]()


def draw() -> None:
    """Disturb every global generator there is."""
    random.seed(7)
    np.random.rand()
    torch.manual_seed(11)
    torch.rand(3)
