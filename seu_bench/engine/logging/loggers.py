"""Loggers of a run: chosen, built, called, and switched off when they fail."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from seu_bench.config.options import Options, build_options, did_you_mean
from seu_bench.config.run import Request
from seu_bench.engine.hooks import HookCaller
from seu_bench.engine.logging.logged_values import describe_run, epoch_values, final_values, row_values
from seu_bench.engine.logging.logger_process import LoggerProcess, LoggerProcessError, OnceLogger
from seu_bench.errors import OptionError, PluginError, SeuBenchError
from seu_bench.hookspecs import hookimpl
from seu_bench.plugin.loggers import LoggerFactory, RunLogger
from seu_bench.results.record_metrics import EVALUATION, measured_rows
from seu_bench.utils.files import refuse_link
from seu_bench.utils.progress import bar
from seu_bench.utils.text import error_line, without_credentials

if TYPE_CHECKING:
    from seu_bench.plugin.entries import Entry
    from seu_bench.plugin.registry import Registry
    from seu_bench.results.record import Record
    from seu_bench.training.interfaces import Cost
    from seu_bench.training.stage import StageProgress

#: Folder of logs in a results folder.
LOGS_NAME: Final = "logs"


def add_loggers(registry: Registry, request: Request) -> None:
    """Register the loggers of a run; logs lie in the folder ``logs`` of the results folder."""
    chosen = choose_loggers(registry, request.log, request.log_options)
    if not chosen:
        return
    for name, (entry, options) in chosen.items():
        folder = request.results / LOGS_NAME / name
        logger = _build(entry, options, folder)
        registry.manager.register(GuardedLogger(registry, entry, logger, folder), name=f"logger {name}")


def _build(entry: Entry[LoggerFactory], options: Options, folder: Path) -> RunLogger:
    """Build a logger, in a process of its own where it talks to another machine."""
    from seu_bench.utils.seeding import undisturbed

    try:
        with undisturbed():
            if getattr(entry.factory, "is_remote", lambda _: False)(options):
                return LoggerProcess(entry.name, options.model_dump(mode="json"), folder)
            return entry.factory.build(options, folder)
    except SeuBenchError:
        raise
    except Exception as error:
        raise PluginError(
            f"logger {entry.name!r} of package {entry.package} cannot be used: {type(error).__name__}: {error}",
            remedy=f"run without --log {entry.name}, or repair what it needs",
        ) from error


def choose_loggers(
    registry: Registry, names: Iterable[str], options: Mapping[str, Any] | None = None
) -> dict[str, tuple[Entry[LoggerFactory], Options]]:
    """Return loggers and their options by name; nothing is built."""
    entries = {name: registry.loggers.find(name) for name in names}
    given: dict[str, dict[str, Any]] = {name: {} for name in entries}
    for key, value in (options or {}).items():
        owner = next((name for name in entries if key.startswith(f"{name}.")), None)
        if owner is None:
            raise OptionError(
                f"the option {key!r} is of no logger that was asked for{did_you_mean(key.partition('.')[0], entries)}",
                where="--log-option",
                remedy="write it as LOGGER.KEY=VALUE, and ask for the logger with --log LOGGER",
            )
        _refuse_credentials(key, value)
        given[owner][key.removeprefix(f"{owner}.")] = value
    return {
        name: (entry, build_options(entry.factory.options, f"logger {name!r}", given[name]))
        for name, entry in entries.items()
    }


def _refuse_credentials(key: str, value: Any) -> None:
    """Refuse what should be kept secret: options are printed, and stored with sweeps and jobs."""
    name = key.rpartition(".")[2]
    if re.search(r"password|passwd|secret|token|api_?key|credential", name, re.IGNORECASE):
        what = f"the option {key!r} is a secret"
    elif isinstance(value, str) and without_credentials(value) != value:
        what = f"the option {key!r} holds a user name or password"
    else:
        return
    raise OptionError(
        f"{what}, and options are printed and stored",
        where="--log-option",
        remedy="leave it out, and give it by the environment variable that the logger's library reads (for MLflow "
        "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, for Weights & Biases WANDB_API_KEY)",
    )


class GuardedLogger:
    """Plugin that passes a run on to one logger.

    An exception of the logger switches it off, with a notice, and the run continues. Whatever the logger draws, the
    run's random numbers stay as they are. Values that an earlier process logged of the same run are not logged again.
    """

    def __init__(self, registry: Registry, entry: Entry[LoggerFactory], logger: RunLogger, folder: Path) -> None:
        self._registry = registry
        self._entry = entry
        self._logger = logger
        self._once = OnceLogger(logger)
        self._folder = folder
        self._tasks = 0
        self._epochs_before = 0
        self._seen: tuple[str, int, int] | None = None

    # Before the progress display: opening a log may take longer than a small run.
    @hookimpl(tryfirst=True)
    def run_started(self, record: Record, cost: Cost) -> None:
        """Open the log, and add what is missing in it of a resumed run."""
        self._tasks = len(record.task_names)
        self._epochs_before = sum(stage.epochs for stage in record.stages)
        with self._guarded("begin"):
            for path in (self._folder.parent, self._folder):
                refuse_link(path, "remove the link")
            with bar(f"opening the log of {self._entry.name}"):
                self._logger.begin(describe_run(record))
            for row in measured_rows(record):
                self._once.log(row_values(record, row, self._epochs_before))

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        """Log each epoch once, when it is over, though reports come twice a second. Evaluations come as rows."""
        position = self._epochs_before + progress.epoch
        if progress.done:
            self._epochs_before = position
        seen = (progress.stage, progress.task, progress.epoch)
        if progress.stage == EVALUATION or progress.epoch == 0 or seen == self._seen:
            return
        self._seen = seen
        with self._guarded("log"):
            self._once.log(epoch_values(progress, position, self._tasks))

    @hookimpl
    def task_learned(self, record: Record, task: int) -> None:
        """Log the row of the accuracy matrix and the sizes."""
        with self._guarded("log"):
            self._once.log(row_values(record, task, self._epochs_before))

    @hookimpl(trylast=True)
    def run_finished(self, record: Record) -> None:
        """Log the metrics of a run that is finished, and how it ended."""
        with self._guarded("end"):
            if record.status == "finished":
                self._once.log(final_values(record, self._epochs_before + 1, self._registry.known_metrics))
            with bar(f"closing the log of {self._entry.name}"):
                self._logger.end(record.status)

    @contextlib.contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        """Switch the logger off if it fails: no hook calls it again."""
        from seu_bench.utils.seeding import undisturbed

        try:
            with undisturbed():
                yield
        except (Exception, SystemExit) as error:  # a library that ends the process must not end the run
            self._registry.manager.unregister(self)
            getattr(self._logger, "close", lambda: None)()
            later = ""
            if isinstance(error, LoggerProcessError):
                what, reason = error.call, str(error)
                later = f"; when it is finished, send it with seu-bench log RUN --to {self._entry.name}"
            else:
                reason = error_line(error)
            HookCaller(self._registry).notice(
                f"logger {self._entry.name!r} of package {self._entry.package} failed in {what} and is switched off: "
                f"{reason}; the run continues{later}"
            )
