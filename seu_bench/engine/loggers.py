"""Loggers of a run: built before anything runs, called by its hooks, and switched off when they fail."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from seu_bench._version import __version__
from seu_bench.config.options import Options, build_options, did_you_mean, flattened
from seu_bench.config.run import Request, ResultFields
from seu_bench.engine.hook_caller import HookCaller
from seu_bench.errors import OptionError, PluginError, SeuBenchError
from seu_bench.hookspecs import hookimpl
from seu_bench.metrics import avg_acc_curve
from seu_bench.plugin.loggers import LoggedRun, LoggedValues, LoggerFactory, RunLogger
from seu_bench.results.labels import protocol_settings
from seu_bench.results.record_metrics import EVALUATION, METRICS, complete_matrix, known_metric, measured_rows
from seu_bench.utils.files import refuse_link
from seu_bench.utils.progress import bar
from seu_bench.utils.text import printable

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


def add_loggers(registry: Registry, request: Request) -> None:
    """Register the loggers of a run; logs lie in the folder ``logs`` of the results folder."""
    chosen = choose_loggers(registry, request.log, request.log_options)
    if not chosen:
        return
    from seu_bench.utils.seeding import undisturbed

    notice = HookCaller(registry).notice
    with undisturbed():
        for name, (entry, given) in chosen.items():
            folder = request.results / LOGS_NAME / name
            watcher = GuardedLogger(entry, _built(entry, given, folder), folder, notice, registry.known_metrics)
            registry.manager.register(watcher, name=f"logger {name}")


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
        given[owner][key.removeprefix(f"{owner}.")] = value
    return {
        name: (entry, build_options(entry.factory.options, f"logger {name!r}", given[name]))
        for name, entry in entries.items()
    }


def _built(entry: Entry[LoggerFactory], options: Options, folder: Path) -> RunLogger:
    try:
        return entry.factory.build(options, folder)
    except SeuBenchError:
        raise
    except Exception as error:
        raise PluginError(
            f"logger {entry.name!r} of package {entry.package} cannot be used: {type(error).__name__}: {error}",
            remedy=f"run without --log {entry.name}, or repair what it needs",
        ) from error


class GuardedLogger:
    """Plugin that passes a run on to one logger.

    An exception of the logger switches it off, with a notice, and the run continues. Whatever the logger draws, the
    run's random numbers stay as they are. Values that an earlier process logged of the same run are not logged again.

    Args:
        entry: the logger's name and package.
        logger: of this run alone.
        folder: where it writes by default.
        notice: called with the reason why it is switched off.
        metrics: known metrics by id.
    """

    def __init__(
        self,
        entry: Entry[LoggerFactory],
        logger: RunLogger,
        folder: Path,
        notice: Callable[[str], None],
        metrics: Mapping[str, Metric],
    ) -> None:
        self._entry = entry
        self._logger = logger
        self._folder = folder
        self._notice = notice
        self._metrics = metrics
        self._is_on = True
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

        def begin() -> None:
            for path in (self._folder.parent, self._folder):
                refuse_link(path, "remove the link")
            with bar(f"opening the log of {self._entry.name}"):
                self._logger.begin(describe_run(record))
            for row in measured_rows(record):
                self._log(row_values(record, row, self._epochs_before))

        self._safely("begin", begin)

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
        self._safely("log", lambda: self._log(epoch_values(progress, position, self._tasks)))

    @hookimpl
    def task_learned(self, record: Record, task: int) -> None:
        """Log the row of the accuracy matrix and the sizes."""
        self._safely("log", lambda: self._log(row_values(record, task, self._epochs_before)))

    @hookimpl(trylast=True)
    def run_finished(self, record: Record) -> None:
        """Log the metrics of a run that is finished, and how it ended."""

        def end() -> None:
            if record.status == "finished":
                self._log(final_values(record, self._epochs_before + 1, self._metrics))
            with bar(f"closing the log of {self._entry.name}"):
                self._logger.end(record.status)

        self._safely("end", end)

    def _log(self, measured: LoggedValues) -> None:
        new = {name: value for name, value in measured.values.items() if measured.step > self._last_step(name)}
        if new:
            self._logger.log(LoggedValues(new, measured.axis, measured.step, measured.position))
        self._logged |= dict.fromkeys(new, measured.step)

    def _last_step(self, name: str) -> int:
        if name not in self._logged:
            last = self._logger.last_step(name)
            self._logged[name] = -1 if last is None else last
        return self._logged[name]

    def _safely(self, what: str, call: Callable[[], None]) -> None:
        if not self._is_on:
            return
        from seu_bench.utils.seeding import undisturbed

        try:
            with undisturbed():
                call()
        except (Exception, SystemExit) as error:  # a library that ends the process must not end the run
            self._is_on = False
            reason = printable(f"{type(error).__name__}: {error}")[:300]
            self._notice(
                f"logger {self._entry.name!r} of package {self._entry.package} failed in {what} and is switched off: "
                f"{reason}; the run continues"
            )


def describe_run(record: Record) -> LoggedRun:
    """Describe a run before it trains."""
    begun = re.sub(r"[^0-9T]", "", record.started.partition("+")[0])
    return LoggedRun(record.run_id, f"{record.run_id}/{begun or 'begun'}", dict(_parameters(record)), _tags(record))


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
    for name in ("params_total", "params_active", "macs"):
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


def _parameters(record: Record) -> Iterator[tuple[str, str | int | float | bool]]:
    """The configuration as plain values, each of a table's by ``name.key``; unset values are omitted."""
    single = ("strategy", "searcher", "creator", "benchmark", "benchmark_version", "protocol", "seed")
    tables = ("options", "searcher_options", "creator_options", "benchmark_overrides", "protocol_settings")
    document = {name: getattr(record, name) for name in (*single, *ResultFields.model_fields, *tables)}
    document |= {"protocol_settings": protocol_settings(record), "tasks": len(complete_matrix(record))}
    document["task_names"] = list(record.task_names)
    for name, value in flattened(document):
        head, dot, rest = name.partition(".")
        plain = head + dot + re.sub(r"[^A-Za-z0-9_. -]", "_", rest)[:200]
        if value is not None:
            simple = isinstance(value, str | int | float)
            yield plain, value if simple else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _tags(record: Record) -> dict[str, str]:
    names = ("strategy", "searcher", "creator", "benchmark", "protocol", "data_fingerprint")
    tags = {name: str(value) for name in names if (value := getattr(record, name)) is not None}
    made_by = {"seu_bench": record.environment.versions.get("seu-bench", __version__)}
    ranked = record.ranked and not record.synthetic and record.limit is None
    return {**tags, **made_by, "ranked": "yes" if ranked else "no"}
