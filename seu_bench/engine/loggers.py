"""Loggers of a run: values sent while it learns."""

from __future__ import annotations

import json
import math
import queue
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from seu_bench._version import __version__
from seu_bench.config.options import Options, build_options, did_you_mean, flatten_options
from seu_bench.config.run import Request, ResultFields
from seu_bench.errors import OptionError, PluginError, SeuBenchError
from seu_bench.hookspecs import hookimpl
from seu_bench.metrics import avg_acc_curve
from seu_bench.plugin.loggers import LoggedRun, LoggedValues, LoggerFactory, RunLogger
from seu_bench.results.labels import protocol_settings
from seu_bench.results.record_metrics import EVALUATION, complete_matrix, known_metric, measured_rows
from seu_bench.utils.files import refuse_link
from seu_bench.utils.progress import bar
from seu_bench.utils.text import error_line, without_credentials

if TYPE_CHECKING:
    from seu_bench.plugin.registry import Entry, Registry
    from seu_bench.results.metric import Metric
    from seu_bench.results.record import Record
    from seu_bench.training.stage import StageProgress

#: Calls of a remote logger that may wait.
WAITING: Final = 1000
#: Seconds that the end of a run waits for a remote logger; the second number where the run was interrupted.
END_WITHIN: Final = (30.0, 1.0)
#: Axis of what is measured after each task: the number of tasks learned.
TASKS: Final = "tasks"
_SECRET: Final = re.compile(r"password|passwd|secret|token|api_?key|credential", re.IGNORECASE)


def choose_loggers(
    registry: Registry, names: Iterable[str], options: Mapping[str, Any] | None = None
) -> dict[str, tuple[Entry[LoggerFactory], Options]]:
    """Return loggers and their options by name; nothing is built."""
    entries = {name: registry.loggers.find(name) for name in names}
    given: dict[str, dict[str, Any]] = {name: {} for name in entries}
    for key, value in (options or {}).items():
        owner, _, name = key.partition(".")
        if owner not in entries:
            what = f"the option {key!r} is of no logger that was asked for{did_you_mean(owner, entries)}"
            remedy = "write it as LOGGER.KEY=VALUE, and ask for the logger with --log LOGGER"
            raise OptionError(what, where="--log-option", remedy=remedy)
        if _SECRET.search(name) or (isinstance(value, str) and without_credentials(value) != value):
            what = f"the option {key!r} is or holds a secret, and options are printed and stored"
            remedy = "give it by the environment variable that the logger's library reads, such as WANDB_API_KEY"
            raise OptionError(what, where="--log-option", remedy=remedy)
        given[owner][name] = value
    return {
        name: (entry, build_options(entry.factory.options, f"logger {name!r}", given[name]))
        for name, entry in entries.items()
    }


def add_loggers(registry: Registry, request: Request) -> None:
    """Register the loggers of a run; logs lie in the folder ``logs`` of the results folder."""
    for name, (entry, options) in choose_loggers(registry, request.log, request.log_options).items():
        from seu_bench.utils.seeding import preserve_rng

        folder = request.results / "logs" / name
        for path in (folder.parent, folder):
            refuse_link(path, "remove the link")
        try:
            with preserve_rng():
                logger = entry.factory.build(options, folder)
        except SeuBenchError:
            raise
        except Exception as error:
            what = f"logger {name!r} of package {entry.package} failed: {error_line(error)}"
            raise PluginError(what, remedy=f"run without --log {name}, or repair what it needs") from error
        if getattr(entry.factory, "is_remote", lambda _: False)(options):
            logger = BackgroundLogger(logger)
        registry.manager.register(LoggerPlugin(registry, entry, logger), name=f"logger {name}")


class LoggerPlugin:
    """Plugin that passes a run on to one logger; a logger that raises is not called again, and the run continues."""

    def __init__(self, registry: Registry, entry: Entry[LoggerFactory], logger: RunLogger) -> None:
        self.package = entry.package
        self._registry, self._name, self._logger = registry, entry.name, logger
        self._once = OnceLogger(logger)
        self._tasks = self._epochs_before = 0
        self._seen: tuple[str, int, int] | None = None

    # Before the progress display: opening a log may take longer than a small run.
    @hookimpl(tryfirst=True)
    def run_started(self, record: Record) -> None:
        """Open the log, and add what is missing in it of a resumed run."""
        self._tasks = len(record.task_names)
        self._epochs_before = sum(stage.epochs for stage in record.stages)
        with bar(f"opening the log of {self._name}"):
            self._logger.begin(describe_run(record))
        self.task_learned(record)

    @hookimpl
    def stage_progress(self, progress: StageProgress) -> None:
        """Log each epoch once, when it is over, though reports come twice a second."""
        position = self._epochs_before + progress.epoch
        if progress.done:
            self._epochs_before = position
        seen = (progress.stage, progress.task, progress.epoch)
        if progress.stage != EVALUATION and progress.epoch and seen != self._seen:
            self._seen = seen
            loss, accuracy = progress.report.loss, progress.report.accuracy
            self._once.log(_epoch_values(*seen, loss, accuracy, position, self._tasks))

    @hookimpl
    def task_learned(self, record: Record) -> None:
        """Log the row of the accuracy matrix and the sizes, and whatever is missing before."""
        for values in logged_values(record, self._registry.known_metrics):
            self._once.log(values)

    @hookimpl(trylast=True)
    def run_finished(self, record: Record) -> None:
        """Log the metrics of a run that is finished, and how it ended."""
        self.task_learned(record)
        with bar(f"closing the log of {self._name}"):
            self._logger.end(record.status)


class OnceLogger:
    """Passes numbers on to a logger once, also where an earlier process logged some of them."""

    def __init__(self, logger: RunLogger) -> None:
        self._logger = logger
        self._logged: dict[str, int] = {}

    def log(self, measured: LoggedValues) -> None:
        """Log what is new."""
        for name in measured.values.keys() - self._logged.keys():
            last = self._logger.last_step(name)
            self._logged[name] = -1 if last is None else last
        new = {name: value for name, value in measured.values.items() if measured.step > self._logged[name]}
        if new:
            self._logger.log(replace(measured, values=new))
        self._logged |= dict.fromkeys(new, measured.step)


class BackgroundLogger:
    """Calls a logger that waits for a server in a daemon thread, so that no run waits for it.

    A call raises what an earlier one failed with, or TimeoutError where too much is left to send.
    """

    def __init__(self, logger: RunLogger) -> None:
        self._calls: queue.Queue[tuple[str, Any]] = queue.Queue(WAITING)
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, args=(logger,), name="logger", daemon=True)
        self._thread.start()

    def begin(self, run: LoggedRun) -> None:
        """Queue it."""
        self._put("begin", run)

    def last_step(self, name: str) -> int | None:
        """``None``: the thread asks, and passes on what is new."""
        return None

    def log(self, measured: LoggedValues) -> None:
        """Queue it."""
        self._put("log", measured)

    def end(self, status: str) -> None:
        """Wait for what was not sent yet, but not long."""
        self._put("end", status)
        seconds = END_WITHIN[status == "interrupted"]
        self._thread.join(seconds)
        if self._failure is not None:
            raise self._failure
        if self._thread.is_alive():
            raise TimeoutError(f"not all was sent within {seconds:g} seconds")

    def _put(self, call: str, value: Any) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            self._calls.put_nowait((call, value))
        except queue.Full:
            raise TimeoutError(f"{WAITING} messages wait to be sent") from None

    def _work(self, logger: RunLogger) -> None:
        once, call = OnceLogger(logger), ""
        try:
            while call != "end":
                call, value = self._calls.get()
                getattr(once if call == "log" else logger, call)(value)
        except (Exception, SystemExit) as error:
            self._failure = error


def describe_run(record: Record) -> LoggedRun:
    """Describe a run before it trains: its tags, and its configuration as plain values by dotted key."""
    names = ("strategy", "searcher", "creator", "benchmark", "protocol")
    tables = ("options", "searcher_options", "creator_options", "benchmark_overrides", "task_names")
    fields = (*names, "benchmark_version", "seed", *ResultFields.model_fields, *tables)
    document = {name: getattr(record, name) for name in fields}
    document |= {"protocol_settings": protocol_settings(record), "tasks": len(complete_matrix(record))}
    parameters: dict[str, str | int | float | bool] = {}
    for name, value in flatten_options(document):
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


def logged_values(record: Record, metrics: Mapping[str, Metric]) -> Iterator[LoggedValues]:
    """Yield all that a logger is told of a run, in its order; at its end the ``metrics`` that follow from it."""
    matrix = complete_matrix(record)
    tasks, position, rows = len(record.task_names), 0, enumerate(measured_rows(record))
    for stage in record.stages:
        if stage.name != EVALUATION:
            for epoch, measured in enumerate(zip(stage.losses, stage.accuracies, strict=False), start=1):
                yield _epoch_values(stage.name, stage.task, epoch, *measured, position + epoch, tasks)
        position += stage.epochs
        if stage.name == EVALUATION and (found := next(rows, None)) is not None:
            place, row = found
            values = {f"accuracy/{_task(task, tasks)}": value for task, value in enumerate(matrix[row])}
            values["accuracy/average"] = avg_acc_curve(matrix)[row]
            for name in ("params_total", "mask_bits", "params_active", "macs", "memory_bytes"):
                values[f"size/{name}"] = next(iter(getattr(record, name)[place : place + 1]), None)
            yield LoggedValues(_finite(values), TASKS, row + 1, position)
    if record.status == "finished":
        own = {name: value for name, value in record.metrics.items() if known_metric(name, metrics).from_record}
        values = {f"final/{_plain(name)}": value for name, value in own.items()}
        yield LoggedValues(_finite(values), TASKS, len(matrix), position + 1)


def _epoch_values(
    stage: str, task: int, epoch: int, loss: float | None, accuracy: float | None, position: int, tasks: int
) -> LoggedValues:
    place = f"{_plain(stage)}/{_task(task, tasks)}"
    values = _finite({f"{place}/loss": loss, f"{place}/accuracy": accuracy})
    return LoggedValues(values, f"{place}/epoch", epoch, position)


def _task(task: int, tasks: int) -> str:
    """``task-3``, or ``task-03`` in a longer stream, so that sorting by name is sorting by number."""
    return f"task-{task:0{len(str(max(tasks - 1, 0)))}d}"


def _plain(name: str) -> str:
    """A plugin's name with nothing that a store of metrics may refuse, or take for a part of a path."""
    return re.sub(r"[^A-Za-z0-9_ -]", "_", name)[:60] or "_"


def _finite(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}
