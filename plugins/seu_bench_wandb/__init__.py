"""Runs for Weights & Biases (``--log wandb``)."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field

from seu_bench import hookimpl
from seu_bench.config import Options
from seu_bench.plugin import LoggedRun, LoggedValues, LoggerFactory
from seu_bench.plugin.registration import LazyFactory, offer
from seu_bench.utils import write_atomic

if TYPE_CHECKING:
    from seu_bench.plugin import Register

#: Seconds that the beginning of a run, and its end, may wait for the server; all is in the files, for ``wandb sync``.
WITHIN: Final = 30.0
#: Tags that are labels of a run there; the others are part of its configuration.
_LABELS: Final = ("strategy", "searcher", "creator", "benchmark", "protocol")
#: Only what is passed: no console output, no code, no machine statistics.
_SETTINGS: Final = {
    **dict.fromkeys(("silent", "disable_code", "disable_git", "disable_job_creation"), True),
    **dict.fromkeys(("x_disable_machine_info", "x_disable_meta", "x_disable_stats"), True),
    **dict.fromkeys(("save_code", "symlink", "x_save_requirements"), False),
    "console": "off",
}


class WandbOptions(Options):
    """Mode and destination of runs."""

    mode: Literal["offline", "online"] = Field(
        "offline", description="offline: files, for wandb sync; online: sent as well, after wandb login"
    )
    project: str = Field("seu-bench", min_length=1, max_length=128, description="the project that runs are put into")
    entity: str | None = Field(None, description="the user or team that the project is of")
    folder: str | None = Field(None, description="where to write instead of logs/wandb in the results folder")


class WandbLogger:
    """Writes ``<folder>/<attempt>/wandb/``, and beside it the last step of each name, for a run that is resumed."""

    def __init__(self, options: WandbOptions, folder: Path) -> None:
        # Weights & Biases reports errors to its makers unless disabled before it is imported.
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        self._wandb, self._options = wandb, options
        self._folder = folder if options.folder is None else Path(options.folder).expanduser()
        self._run: Any = None
        self._steps: dict[str, int] = {}
        self._axes: set[str] = set()

    def begin(self, run: LoggedRun) -> None:
        """Open the run; a resumed one keeps its id there."""
        folder = (self._folder / run.attempt).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        self._steps_file = folder / "steps.json"
        with contextlib.suppress(OSError, ValueError):
            self._steps = dict(json.loads(self._steps_file.read_text(encoding="utf-8")))
        # wandb asks for a key where it finds a terminal; a run that waits for an answer would stand still.
        with Path(os.devnull).open(encoding="utf-8") as nothing:
            before, sys.stdin = sys.stdin, nothing
            try:
                self._run = self._wandb.init(
                    **self._options.model_dump(include={"project", "entity", "mode"}),
                    id=run.attempt.replace("/", "-")[-128:],
                    name=run.run_id,
                    dir=str(folder),
                    config={**run.parameters, **{name: run.tags[name] for name in run.tags if name not in _LABELS}},
                    tags=list(dict.fromkeys(run.tags[name][:64] for name in _LABELS if name in run.tags)),
                    resume="allow" if self._options.mode == "online" else None,  # wandb sync joins the others
                    reinit="create_new",
                    settings=self._wandb.Settings(**_SETTINGS, init_timeout=WITHIN, finish_timeout=WITHIN),
                )
            finally:
                sys.stdin = before

    def last_step(self, name: str) -> int | None:
        """Last step, saved beside the files."""
        return self._steps.get(name)

    def log(self, measured: LoggedValues) -> None:
        """A row of the history, and the axis that its numbers are drawn over."""
        for name in measured.values.keys() - self._axes:
            self._run.define_metric(name, step_metric=measured.axis)
        self._axes |= measured.values.keys()
        self._run.log({**measured.values, measured.axis: measured.step}, step=measured.position)
        self._steps |= dict.fromkeys(measured.values, measured.step)
        write_atomic(self._steps_file, json.dumps(self._steps), durable=False)

    def end(self, status: str) -> None:
        """Close the run; its summary has our word for how it ended."""
        self._run.summary["status"] = status
        self._run.finish(exit_code=0 if status == "finished" else 1)


@hookimpl
def register_loggers(register: Register[LoggerFactory]) -> None:
    """Offer ``wandb``."""
    factory = LazyFactory("runs for Weights & Biases, by default offline", options=WandbOptions, build=WandbLogger)
    register("wandb", offer(factory, "wandb", "wandb"))
