"""A finished record sent to a logger: what it would have been told during the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seu_bench.engine.logging.logged_values import describe_run, epoch_values, final_values, row_values
from seu_bench.engine.logging.logger_process import OnceLogger
from seu_bench.engine.logging.loggers import LOGS_NAME, choose_loggers
from seu_bench.errors import PluginError, RequestError, SeuBenchError
from seu_bench.plugin.loggers import LoggedValues
from seu_bench.results.metric import Metric
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import EVALUATION, measured_rows
from seu_bench.training.stage import EpochReport, StageProgress
from seu_bench.utils.progress import tracked
from seu_bench.utils.text import error_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from seu_bench.plugin.registry import Registry


def log_record(
    registry: Registry, record: Record, name: str, results: Path, options: Mapping[str, Any] | None = None
) -> None:
    """Send a finished record to a logger. What the logger has of the run already is not sent again.

    Args:
        registry: installed plugins.
        record: of a run that is finished or failed.
        name: of the logger.
        results: the results folder, whose ``logs`` local loggers write to.
        options: of the logger, as ``<logger>.<option>``.

    Raises:
        RequestError: the run goes on, or there is no such logger or option.
        PluginError: the logger failed.

    Example:
        ``log_record(Registry(), find_record(results, "split_digits-quick-ewc"), "tensorboard", results)``
    """
    if record.status == "running":
        raise RequestError(
            f"run {record.run_id} is not finished", where=f"--to {name}", remedy="send it when it has ended"
        )
    ((_, (entry, chosen)),) = choose_loggers(registry, (name,), options).items()
    try:
        logger = entry.factory.build(chosen, results / LOGS_NAME / name)
        logger.begin(describe_run(record))
        once = OnceLogger(logger)
        for values in tracked(list(logged_values(record, registry.known_metrics)), f"sending to {name}"):
            once.log(values)
        logger.end(record.status)
    except SeuBenchError:
        raise
    except Exception as error:
        raise PluginError(
            f"logger {name!r} of package {entry.package} failed: {error_line(error)}",
            remedy="repair what it needs, and give the same command again: nothing is sent twice",
        ) from error


def logged_values(record: Record, metrics: Mapping[str, Metric]) -> Iterator[LoggedValues]:
    """Yield all that a logger is told of a run, in the order of the run."""
    tasks, position, rows = len(record.task_names), 0, iter(measured_rows(record))
    for stage in record.stages:
        if stage.name == EVALUATION:
            position += stage.epochs
            if (row := next(rows, None)) is not None:
                yield row_values(record, row, position)
            continue
        for epoch, (loss, accuracy) in enumerate(zip(stage.losses, stage.accuracies, strict=False), start=1):
            report = EpochReport(loss, accuracy)
            progress = StageProgress(stage.name, stage.task, epoch, stage.epochs, report, 0, 0.0)
            yield epoch_values(progress, position + epoch, tasks)
        position += stage.epochs
    if record.status == "finished":
        yield final_values(record, position + 1, metrics)
