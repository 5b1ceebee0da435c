"""Loggers of a run: those asked for are built before anything runs, hear of it by its hooks, and cannot harm it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seu_bench.config.options import Options, build_options, did_you_mean
from seu_bench.config.run import Request
from seu_bench.engine.hook_caller import HookCaller
from seu_bench.engine.logged_values import epoch_values, final_values, opening, row_values
from seu_bench.errors import OptionError, PluginError, SeuBenchError
from seu_bench.hookspecs import hookimpl
from seu_bench.plugin.loggers import LoggedValues, LoggerFactory, RunLogger
from seu_bench.results.record_metrics import EVALUATION, measured_rows
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

#: The folder of logs in a results folder.
LOGS_NAME = "logs"


def add_loggers(registry: Registry, request: Request) -> None:
    """Have the next run of this registry logged; logs lie in the folder ``logs`` of the results folder.

    Raises:
        UnknownNameError: there is no such logger, or what it needs is not installed.
        OptionError: an option is unknown, does not fit, or is of a logger that was not asked for.
        PluginError: a logger cannot be built, e.g. because what it needs cannot be imported.
    """
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
    """Loggers and their options, by name; nothing is built.

    Raises:
        UnknownNameError: there is no such logger, or what it needs is not installed.
        OptionError: an option is unknown, does not fit, or is of a logger that was not asked for.
    """
    entries = {name: registry.loggers.find(name) for name in names}
    given = _by_logger(entries, options or {})
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


def _by_logger(names: Iterable[str], options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {name: {} for name in names}
    for key, value in options.items():
        owner = next((name for name in found if key.startswith(f"{name}.")), None)
        if owner is None:
            raise OptionError(
                f"the option {key!r} is of no logger that was asked for{did_you_mean(key.partition('.')[0], found)}",
                where="--log-option",
                remedy="write it as LOGGER.KEY=VALUE, and ask for the logger with --log LOGGER",
            )
        found[owner][key.removeprefix(f"{owner}.")] = value
    return found


class GuardedLogger:
    """A plugin that tells one logger of a run.

    What the logger raises switches it off, with a notice, and the run goes on. Whatever it draws, the run's random
    numbers stay as they are. What an earlier process logged of the same run is not logged again.

    Args:
        entry: whose logger it is.
        logger: of this run alone.
        folder: where it writes by default.
        notice: told why it is switched off.
        metrics: those known.
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

    # Before whoever shows the run's progress: opening a log may take longer than a small run.
    @hookimpl(tryfirst=True)
    def run_started(self, record: Record, cost: Cost) -> None:
        """Open the log, and bring it up to what is known of a run that goes on."""
        self._tasks = len(record.task_names)
        self._epochs_before = sum(stage.epochs for stage in record.stages)

        def begin() -> None:
            for path in (self._folder.parent, self._folder):
                refuse_link(path, "remove the link")
            with bar(f"opening the log of {self._entry.name}"):
                self._logger.begin(opening(record))
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
                f"{reason}; the run goes on"
            )
