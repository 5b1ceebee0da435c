"""Measurements of a run, and the record made of them."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from seu_bench.config.run import ResultFields
from seu_bench.engine.environment import describe_environment
from seu_bench.engine.resolve import ResolvedRun
from seu_bench.errors import CheckpointError, ResultsError
from seu_bench.plugin.entries import Entry
from seu_bench.plugin.registry import Registry
from seu_bench.results.metric import Metric, Value
from seu_bench.results.record import Record, StageRecord, write_record
from seu_bench.results.record_metrics import METRICS, compute_metrics
from seu_bench.training.evaluators import AccuracyMatrix, ModelSizes
from seu_bench.training.stage import StageProgress

if TYPE_CHECKING:
    from seu_bench.data.streams import TaskStream


class RunRecorder:
    """Fills a run's record, and writes it.

    Args:
        record: what is known before training.
        on_progress: called with the progress of every stage.

    Attributes:
        record: as it was written last.
        matrix, sizes: the evaluators that measure for it.
        feature_bytes: peak memory of cached features; ``None``: the strategy caches none.
    """

    def __init__(
        self,
        results: Path,
        record: Record,
        registry: Registry,
        device: torch.device,
        on_progress: Callable[[StageProgress], None],
    ) -> None:
        self.results = results
        self.record = record
        self.registry = registry
        self.device = device
        self.matrix = AccuracyMatrix(len(record.task_names))
        self.sizes = ModelSizes()
        self.feature_bytes: int | None = None
        self._on_progress = on_progress
        self._stages: list[StageRecord] = []
        self._began = time.perf_counter()
        self._seconds_before = 0.0
        self._memory_before = 0
        self._features_before = 0
        if device.type == "cuda":
            # The most that this run holds, not an earlier one of the same process.
            torch.cuda.reset_peak_memory_stats(device)

    @property
    def evaluated(self) -> int:
        """Tasks after which the model was evaluated."""
        return sum(stage.name == "evaluation" for stage in self._stages)

    def watch(self, progress: StageProgress) -> None:
        """Note a stage when it is done, and pass its progress on."""
        if progress.done:
            self._stages.append(
                StageRecord(
                    name=progress.stage,
                    task=progress.task,
                    epochs=progress.epoch,
                    seconds=progress.seconds,
                    image_passes=progress.image_passes,
                    cpu_seconds=progress.cpu_seconds,
                    losses=_curve([report.loss for report in progress.curve]),
                    accuracies=_curve([report.accuracy for report in progress.curve]),
                )
            )
        self._on_progress(progress)

    def mean_accuracy(self, task: int) -> float | None:
        """Over the tasks that were evaluated after ``task``."""
        measured = [value for value in self.matrix.matrix[task] if value is not None]
        return sum(measured) / len(measured) if measured else None

    def update(self, **fields: Any) -> None:
        """Bring the record up to what is known now, with these fields, and write it."""
        record = self._measured(fields)
        if record.status == "finished":
            metrics = {
                name: _metric(entry, record) for name, entry in self.registry.metrics.items() if name not in METRICS
            }
            record = record.model_copy(update={"metrics": record.metrics | metrics})
        write_record(self.results, record)
        self.record = record

    def state_dict(self) -> dict[str, Any]:
        """Plain values: the record as it would be written now."""
        return self._measured({}).model_dump(mode="json")

    def load_state_dict(self, state: object) -> None:
        """Resume from what :meth:`state_dict` returned; environments other than the present one are recorded."""
        try:
            before = Record.model_validate(state)
        except ValueError as error:
            raise CheckpointError("a checkpoint cannot be used: it holds no record") from error
        now = self.record
        if before.data_fingerprint != now.data_fingerprint:
            raise ResultsError(
                "the data sets are not those that the run began with",
                remedy="bring them back, or start over with --restart",
            )
        if len(before.accuracy_matrix) != len(now.task_names):
            raise CheckpointError("a checkpoint cannot be used: its record is of another stream")
        earlier = list(before.earlier_environments)
        if before.environment != now.environment and before.environment not in earlier:
            earlier.append(before.environment)
        self.matrix.matrix = [list(row) for row in before.accuracy_matrix]
        self.sizes.params_total = list(before.params_total)
        self.sizes.params_active = list(before.params_active)
        self.sizes.macs = list(before.macs)
        self._stages = list(before.stages)
        self._seconds_before = before.seconds or 0.0
        self._memory_before = int(before.metrics.get("peak_memory_bytes") or 0)
        self._features_before = int(before.metrics.get("peak_feature_bytes") or 0)
        self.record = now.model_copy(update={"started": before.started, "earlier_environments": tuple(earlier)})

    def _measured(self, fields: Mapping[str, Any]) -> Record:
        record = self.record.model_copy(
            update={
                "accuracy_matrix": tuple(tuple(row) for row in self.matrix.matrix),
                "params_total": tuple(self.sizes.params_total),
                "params_active": tuple(self.sizes.params_active),
                "macs": tuple(self.sizes.macs),
                "stages": tuple(self._stages),
                "seconds": self._seconds_before + time.perf_counter() - self._began,
                **fields,
            }
        )
        metrics = compute_metrics(record)
        metrics["peak_memory_bytes"] = self._peak_memory()
        if self.feature_bytes is not None:
            metrics["peak_feature_bytes"] = max(self._features_before, self.feature_bytes)
        return record.model_copy(update={"metrics": metrics})

    def _peak_memory(self) -> int | None:
        """Bytes on an accelerator at the most; not measured on a CPU, where libraries and the data sets would count."""
        if self.device.type != "cuda":
            return None
        return max(self._memory_before, int(torch.cuda.max_memory_allocated(self.device)))


def _curve(values: Sequence[float | None]) -> tuple[float | None, ...]:
    """Values of the epochs to six digits: more would make records long and no curve clearer. Empty: none measured."""
    measured = tuple(None if value is None or not math.isfinite(value) else float(f"{value:.6g}") for value in values)
    return measured if any(value is not None for value in measured) else ()


def _metric(entry: Entry[Metric], record: Record) -> Value:
    """A plugin's metric. One that fails costs its own value, with a warning, and not the run that was finished."""
    try:
        return entry.factory(record)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    warnings.warn(
        f"metric {entry.name!r} of package {entry.package} is excluded: {problem}", RuntimeWarning, stacklevel=2
    )
    return None


def initial_record(run: ResolvedRun, stream: TaskStream, device: str) -> Record:
    """The record of ``run`` on ``stream``, of which nothing is learned yet."""
    spec, plan = run.spec, stream.plan
    return Record(
        run_id=spec.run_id,
        status="running",
        strategy=spec.strategy,
        options=run.options.model_dump(mode="json"),
        searcher=spec.searcher,
        searcher_options=run.searcher.options.model_dump(mode="json") if run.searcher else {},
        creator=spec.creator,
        creator_options=run.creator.options.model_dump(mode="json") if run.creator else {},
        benchmark=spec.benchmark.name,
        benchmark_version=spec.benchmark.version,
        benchmark_overrides=dict(run.overrides),
        protocol=spec.protocol_name,
        protocol_settings=spec.protocol.model_dump(mode="json", exclude={"summary", "ranked"}),
        ranked=spec.protocol.ranked,
        seed=spec.seed,
        task_order=plan.order,
        task_names=tuple(task.name for task in plan.tasks),
        task_classes=plan.classes_per_task,
        task_images=tuple((task.num_train, task.num_valid, task.num_test) for task in plan.tasks),
        input_shape=(plan.channels, plan.height, plan.width),
        data_fingerprint=stream.fingerprint,
        environment=describe_environment(device),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        **spec.model_dump(include=set(ResultFields.model_fields)),
    )
