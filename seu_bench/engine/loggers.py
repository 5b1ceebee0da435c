"""Plugins that watch a run: their hooks called, and loggers built, called, and switched off when they fail."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from seu_bench._version import __version__
from seu_bench.config.options import Options, build_options, did_you_mean, flattened
from seu_bench.config.run import Request, ResultFields
from seu_bench.errors import OptionError, PluginError, SeuBenchError
from seu_bench.hookspecs import hookimpl
from seu_bench.metrics import avg_acc_curve
from seu_bench.plugin.loggers import LoggedRun, LoggedValues, LoggerFactory, RunLogger
from seu_bench.results.labels import protocol_settings
from seu_bench.results.record_metrics import EVALUATION, METRICS, complete_matrix, known_metric, measured_rows
from seu_bench.utils.files import refuse_link
from seu_bench.utils.progress import bar
from seu_bench.utils.text import printable, without_credentials

if TYPE_CHECKING:
    from seu_bench.plugin.entries import Entry
    from seu_bench.plugin.registry import Registry
    from seu_bench.results.metric import Metric
    from seu_bench.results.record import Record
    from seu_bench.training.interfaces import Cost
    from seu_bench.training.stage import StageProgress

#: Folder of logs in a results folder.
LOGS_NAME: Final = "logs"
#: Axis of what is measured after each task: the number of tasks learned.
TASKS: Final = "tasks"


class HookCaller:
    """Calls the watching hooks of a registry's plugins, each by itself.

    Who only watches may not stop a run: a plugin that fails is not called again, and the others are told.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._failed: list[Any] = []

    def on_progress(self, progress: StageProgress) -> None:
        """Call ``stage_progress``."""
        self.notify("stage_progress", progress=progress)

    def notice(self, message: str) -> None:
        """Call ``run_notice`` with a message for the user."""
        self.notify("run_notice", message=message)

    def notify(self, hook: str, **values: Any) -> None:
        """Call a hook of every plugin that watches, in pluggy's order."""
        manager = self._registry.manager
        found = reversed(getattr(manager.hook, hook).get_hookimpls())
        watching = list({id(implementation.plugin): implementation.plugin for implementation in found}.values())
        for plugin in watching:
            if any(plugin is other for other in self._failed) or not manager.is_registered(plugin):
                continue
            # A part of the plugins has hook wrappers, which only a caller of pluggy's own knows how to call.
            alone = manager.subset_hook_caller(hook, [other for other in watching if other is not plugin])
            try:
                alone(**values)
            except Exception as error:
                self._failed.append(plugin)
                name = manager.get_name(plugin) or "?"
                self.notice(
                    f"plugin {name!r} of package {self._registry.package(name)} failed in {hook} and is not called "
                    f"again: {printable(f'{type(error).__name__}: {error}')[:300]}; the run continues"
                )


def add_loggers(registry: Registry, request: Request) -> None:
    """Register the loggers of a run; logs lie in the folder ``logs`` of the results folder."""
    chosen = choose_loggers(registry, request.log, request.log_options)
    if not chosen:
        return
    from seu_bench.utils.seeding import undisturbed

    for name, (entry, options) in chosen.items():
        folder = request.results / LOGS_NAME / name
        try:
            with undisturbed():
                logger = entry.factory.build(options, folder)
        except SeuBenchError:
            raise
        except Exception as error:
            raise PluginError(
                f"logger {name!r} of package {entry.package} cannot be used: {type(error).__name__}: {error}",
                remedy=f"run without --log {name}, or repair what it needs",
            ) from error
        registry.manager.register(GuardedLogger(registry, entry, logger, folder), name=f"logger {name}")


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
        self._folder = folder
        self._tasks = 0
        self._epochs_before = 0
        self._logged: dict[str, int] = {}
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
                self._log(row_values(record, row, self._epochs_before))

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
            self._log(epoch_values(progress, position, self._tasks))

    @hookimpl
    def task_learned(self, record: Record, task: int) -> None:
        """Log the row of the accuracy matrix and the sizes."""
        with self._guarded("log"):
            self._log(row_values(record, task, self._epochs_before))

    @hookimpl(trylast=True)
    def run_finished(self, record: Record) -> None:
        """Log the metrics of a run that is finished, and how it ended."""
        with self._guarded("end"):
            if record.status == "finished":
                self._log(final_values(record, self._epochs_before + 1, self._registry.known_metrics))
            with bar(f"closing the log of {self._entry.name}"):
                self._logger.end(record.status)

    def _log(self, measured: LoggedValues) -> None:
        for name in measured.values:
            if name not in self._logged:
                last = self._logger.last_step(name)
                self._logged[name] = -1 if last is None else last
        new = {name: value for name, value in measured.values.items() if measured.step > self._logged[name]}
        if new:
            self._logger.log(replace(measured, values=new))
        self._logged |= dict.fromkeys(new, measured.step)

    @contextlib.contextmanager
    def _guarded(self, what: str) -> Iterator[None]:
        """Switch the logger off if it fails: no hook calls it again."""
        from seu_bench.utils.seeding import undisturbed

        try:
            with undisturbed():
                yield
        except (Exception, SystemExit) as error:  # a library that ends the process must not end the run
            self._registry.manager.unregister(self)
            reason = without_credentials(printable(f"{type(error).__name__}: {error}"))[:300]
            HookCaller(self._registry).notice(
                f"logger {self._entry.name!r} of package {self._entry.package} failed in {what} and is switched off: "
                f"{reason}; the run continues"
            )


def describe_run(record: Record) -> LoggedRun:
    """Describe a run before it trains: its tags, and its configuration as plain values by dotted key."""
    names = ("strategy", "searcher", "creator", "benchmark", "protocol")
    tables = ("options", "searcher_options", "creator_options", "benchmark_overrides", "task_names")
    fields = (*names, "benchmark_version", "seed", *ResultFields.model_fields, *tables)
    document = {name: getattr(record, name) for name in fields} | {
        "protocol_settings": protocol_settings(record),
        "tasks": len(complete_matrix(record)),
    }
    parameters: dict[str, str | int | float | bool] = {}
    for name, value in flattened(document):
        head, dot, rest = name.partition(".")
        plain = head + dot + re.sub(r"[^A-Za-z0-9_. -]", "_", rest)[:200]
        if value is not None:
            simple = isinstance(value, str | int | float)
            parameters[plain] = value if simple else json.dumps(value, ensure_ascii=False, sort_keys=True)
    given = {name: getattr(record, name) for name in (*names, "data_fingerprint")}
    tags = {name: str(value) for name, value in given.items() if value is not None}
    tags["seu_bench"] = record.environment.versions.get("seu-bench", __version__)
    tags["ranked"] = "yes" if record.ranked and not record.synthetic and record.limit is None else "no"
    begun = re.sub(r"[^0-9T]", "", record.started.partition("+")[0])
    return LoggedRun(record.run_id, f"{record.run_id}/{begun or 'begun'}", parameters, tags)


def epoch_values(progress: StageProgress, position: int, tasks: int) -> LoggedValues:
    """Return what the last epoch of a stage measured; ``position`` counts the epochs of all stages so far."""
    place = f"{_plain(progress.stage)}/{_task(progress.task, tasks)}"
    measured = {"loss": progress.report.loss, "accuracy": progress.report.accuracy}
    values = _finite({f"{place}/{name}": value for name, value in measured.items()})
    return LoggedValues(values, f"{place}/epoch", progress.epoch, position)


def row_values(record: Record, row: int, position: int) -> LoggedValues:
    """Return what was measured after task ``row`` (0-based): accuracies on the tasks so far, their mean, sizes."""
    matrix = complete_matrix(record)
    tasks = len(matrix)
    values = {f"accuracy/{_task(task, tasks)}": value for task, value in enumerate(matrix[row])}
    values["accuracy/average"] = avg_acc_curve(matrix)[row]
    place = measured_rows(record).index(row)
    for name in ("params_total", "params_active", "macs", "memory_bytes"):
        values[f"size/{name}"] = next(iter(getattr(record, name)[place : place + 1]), None)
    return LoggedValues(_finite(values), TASKS, row + 1, position)


def final_values(record: Record, position: int, metrics: Mapping[str, Metric] = METRICS) -> LoggedValues:
    """Return the metrics of a finished run, but for those that were read off its process, e.g. its memory."""
    values = {
        f"final/{_plain(name)}": value
        for name, value in record.metrics.items()
        if known_metric(name, metrics).from_record
    }
    return LoggedValues(_finite(values), TASKS, len(complete_matrix(record)), position)


def _task(task: int, tasks: int) -> str:
    """``task-3``, or ``task-03`` in a longer stream, so that sorting by name is sorting by number."""
    return f"task-{task:0{len(str(max(tasks - 1, 0)))}d}"


def _plain(name: str) -> str:
    """A name of a plugin's with nothing that a store of metrics may refuse, or take for a part of a path."""
    return re.sub(r"[^A-Za-z0-9_ -]", "_", name)[:60] or "_"


def _finite(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}
