"""One run of Weights & Biases."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import wandb

from seu_bench.plugin import LoggedRun, LoggedValues
from seu_bench.utils import write_atomic

#: Seconds that the end of a run may wait for what was not sent yet; all of it is in the files.
SEND_WITHIN: Final = 60.0

#: Tags that are labels of a run there; the others are part of its configuration.
LABELS: Final = ("strategy", "searcher", "creator", "benchmark", "protocol")


class WandbLogger:
    """Writes ``<folder>/<attempt>/wandb/``, and sends it where the mode is ``online``.

    Files of an offline run cannot be asked for what is in them, so the last step of each name is saved beside them.

    Args:
        folder: made when the run begins.
        mode: ``offline`` or ``online``.
    """

    def __init__(self, folder: Path, mode: Literal["offline", "online"], project: str, entity: str | None) -> None:
        self._folder = folder
        self._mode = mode
        self._project = project
        self._entity = entity
        self._run: Any = None
        self._steps_file = folder
        self._steps: dict[str, int] = {}
        self._axes: set[str] = set()

    def begin(self, run: LoggedRun) -> None:
        """Open the run; a resumed one keeps its id there."""
        folder = (self._folder / run.attempt).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        self._steps_file = folder / "steps.json"
        self._steps = _read_steps(self._steps_file)
        with _nobody_to_ask():
            self._run = wandb.init(
                project=self._project,
                entity=self._entity,
                id=run.attempt.replace("/", "-")[-128:],
                name=run.run_id,
                dir=str(folder),
                mode=self._mode,
                config={**run.parameters, **{name: run.tags[name] for name in run.tags if name not in LABELS}},
                tags=list(dict.fromkeys(run.tags[name][:64] for name in LABELS if name in run.tags)),
                resume="allow" if self._mode == "online" else None,  # offline, wandb sync joins them by the id
                reinit="create_new",
                settings=_settings(),
            )

    def last_step(self, name: str) -> int | None:
        """Last step, saved beside the files."""
        return self._steps.get(name)

    def log(self, measured: LoggedValues) -> None:
        """A row of the history, and the axis that its numbers are drawn over."""
        for name in measured.values:
            if name not in self._axes:
                self._run.define_metric(name, step_metric=measured.axis)
                self._axes.add(name)
        self._run.log({**measured.values, measured.axis: measured.step}, step=measured.position)
        self._steps |= dict.fromkeys(measured.values, measured.step)
        write_atomic(self._steps_file, json.dumps(self._steps), durable=False)

    def end(self, status: str) -> None:
        """Close the run; its summary has our word for how it ended."""
        self._run.summary["status"] = status
        self._run.finish(exit_code=0 if status == "finished" else 1)


def _settings() -> wandb.Settings:
    """Log only what is passed: no console output, no code, no machine statistics."""
    return wandb.Settings(
        silent=True,
        console="off",
        disable_code=True,
        disable_git=True,
        disable_job_creation=True,
        save_code=False,
        symlink=False,
        finish_timeout=SEND_WITHIN,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )


def _read_steps(file: Path) -> dict[str, int]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    known = document.items() if isinstance(document, dict) else ()
    return {name: step for name, step in known if isinstance(step, int)}


@contextlib.contextmanager
def _nobody_to_ask() -> Iterator[None]:
    """wandb asks for a key where it finds a terminal; a run that waits for an answer would stand still."""
    with open(os.devnull, encoding="utf-8") as nothing:  # noqa: PTH123 - os.devnull is no path to build on
        before, sys.stdin = sys.stdin, nothing
        try:
            yield
        finally:
            sys.stdin = before
