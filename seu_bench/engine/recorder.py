"""Measurements of a run, and the record made of them."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from avalanche.evaluation import PluginMetric

from seu_bench.config.benchmark import names_a_file
from seu_bench.config.run import ResultFields
from seu_bench.data.planning import StreamPlan, stream_warnings
from seu_bench.data.streams import TaskStream
from seu_bench.engine.environment import describe_environment
from seu_bench.engine.resolve import ResolvedRun
from seu_bench.errors import CheckpointError, ResultsError
from seu_bench.plugin.paths import make_attached
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import (
    CodeRecord,
    Parent,
    Record,
    StabilityRecord,
    StageRecord,
    TuningRecord,
    differing_code,
    record_digest,
    refuse_other_code,
)
from seu_bench.results.record_metrics import METRICS, compute_metrics
from seu_bench.training.monitoring import AccuracyMatrix, AttachedValues, ModelSizes, has_state
from seu_bench.training.stage import EpochReport, StageProgress


@dataclass
class RunRecorder:
    """Fills a run's record, and has it written.

    Attributes:
        record: what is known before training, then as it was written last.
        on_progress, notice: called with the progress of every stage, and with a message for the user.
        code: that the run uses, every metric of a plugin included; ``accept_code``: what other code made is continued.
        feature_bytes: peak memory of cached features; ``None``: the strategy caches none.
        matrix, sizes: the evaluators that measure for it.
        attached, attached_values: metrics that were attached to the run, by path, and the values that they gave.
    """

    write: Callable[[Record], object]
    record: Record
    registry: Registry
    device: torch.device
    on_progress: Callable[[StageProgress], None]
    notice: Callable[[str], None]
    code: Sequence[CodeRecord] = ()
    accept_code: bool = False
    feature_bytes: int | None = None

    def __post_init__(self) -> None:
        record = self._before = self.record
        classes = record.task_classes if record.scenario == "class" else ()
        self.matrix = AccuracyMatrix(len(record.task_names), classes=classes, labels=record.task_labels)
        self.sizes = ModelSizes(record.encoder_sizes)
        found = make_attached(record.attach)
        self.attached = {path: it for path, it in found.items() if isinstance(it, PluginMetric)}
        self.attached_values = AttachedValues([*self.attached.values()])
        #: Of each task the accuracy before it is learned, and before anything is, where one head answers for all.
        self.forward: list[tuple[float | None, float | None]] = []
        self._stages: list[StageRecord] = []
        self._unstable = False
        self._began = time.perf_counter()
        if self.device.type == "cuda":
            # The most that this run holds, not an earlier one of the same process.
            torch.cuda.reset_peak_memory_stats(self.device)
        for warning in stream_warnings(record.task_names, record.one_class_tasks):
            self.notice(warning)

    @property
    def evaluators(self) -> list[PluginMetric[Any]]:
        """What a strategy's evaluation is to have."""
        return [self.matrix, self.sizes, *self.attached.values()]

    def note_features(self, tasks: Iterable[int]) -> None:
        """Count the features of the images of ``tasks`` as computed once, each by a stage of its own."""
        record = self.record
        if record.encoder is None or record.input_kind != "features":
            return
        noted = {stage.task for stage in self._stages if stage.name == "features"}
        for task in (task for task in tasks if task not in noted):
            images = sum(record.task_images[task][:2])
            flops = 2 * record.encoder.macs * images
            self.watch(StageProgress("features", task, 0, 0, EpochReport(), images, 0.0, done=True, flops=flops))

    @property
    def evaluated(self) -> int:
        """Tasks after which the model was evaluated."""
        return sum(stage.name == "evaluation" for stage in self._stages)

    def watch(self, progress: StageProgress) -> None:
        """Note a stage when it is done, warn of one that cannot learn, and pass its progress on."""
        stability, place = progress.stability, f"task {progress.task + 1}"
        if stability is not None and not stability.holds and not self._unstable:
            self._unstable = True
            self.notice(f"warning: {place} is trained with unstable settings: {stability.advice}")
        if progress.done:
            steep = None
            if stability is not None and math.isfinite(stability.value):
                share = stability.share if stability.share < 1 else None
                steep = StabilityRecord(value=stability.value, bound=stability.bound, share=share)
            same = ("task", "seconds", "image_passes", "cpu_seconds", "flops", "chance_share")
            self._stages.append(
                StageRecord(
                    name=progress.stage,
                    epochs=progress.epoch,
                    stability=steep,
                    losses=_curve(report.loss for report in progress.curve),
                    accuracies=_curve(report.accuracy for report in progress.curve),
                    **{name: getattr(progress, name) for name in same},
                )
            )
            if progress.chance_share == 1:
                what = f"the {progress.stage} of {place} learned from rewards at chance, which guessing reaches"
                self.notice(f"warning: {what}; more epochs or images, or another learning rate, may help")
        self.on_progress(progress)

    def mean_accuracy(self, task: int) -> float | None:
        """Over the tasks that were evaluated after ``task``."""
        measured = [value for value in self.matrix.matrix[task] if value is not None]
        return sum(measured) / len(measured) if measured else None

    def update(self, **fields: Any) -> None:
        """Bring the record up to what is known now, with these fields, and write it."""
        record = self._measure(**fields)
        if record.status == "finished":
            metrics = dict(record.metrics)
            for name in self.registry.metrics.keys() - METRICS.keys():
                entry = self.registry.metrics[name]
                try:
                    metrics[name] = entry.factory(record)
                except Exception as error:  # it costs its own value, and not the run that was finished
                    metrics[name] = None
                    what = f"metric {name!r} of package {entry.package} is excluded: {type(error).__name__}: {error}"
                    warnings.warn(what, RuntimeWarning, stacklevel=2)
            measured = [it for it in self.code if it.kind == "metric" and metrics.get(it.name) is not None]
            record = record.model_copy(update={"metrics": metrics, "code": (*record.code, *measured)})
            record = record.model_copy(update={"record_sha256": record_digest(record.model_dump(mode="json"))})
        self.write(record)
        self.record = record

    def state_dict(self) -> dict[str, Any]:
        """Plain values: the record as it would be written now."""
        return self._measure().model_dump(mode="json")

    def check_state(self, state: object) -> Record:
        """Return the record in a state. A CheckpointError: it is none of this run; a ResultsError: other data or,
        unless that is accepted, other code made it."""
        try:
            before = Record.model_validate(state)
        except ValueError as error:
            raise CheckpointError("a checkpoint cannot be used: it holds no record") from error
        now = self.record
        if before.data_fingerprint != now.data_fingerprint:
            remedy = "bring them back, or start over with --restart"
            raise ResultsError("the data sets are not those that the run began with", remedy=remedy)
        if not self.accept_code:
            refuse_other_code(before.code, self.code, now.run_id)
        if len(before.accuracy_matrix) != len(now.task_names):
            raise CheckpointError("a checkpoint cannot be used: its record is of another stream")
        return before

    def load_state_dict(self, state: object) -> None:
        """Resume from a state that :meth:`check_state` accepts; other environments and code are recorded."""
        before, now = self.check_state(state), self.record
        earlier = list(before.earlier_environments)
        if before.environment != now.environment and before.environment not in earlier:
            earlier.append(before.environment)
        self.matrix.matrix = [list(row) for row in before.accuracy_matrix]
        self.forward = list(before.forward_accuracies)
        if before.task_class_counts:
            self.matrix.class_counts = [list(counts) for counts in before.task_class_counts]
        if self.matrix.confusion and before.task_confusion:
            self.matrix.confusion = [list(row) for row in before.task_confusion]
        for name, values in self.sizes.result().items():
            values[:] = getattr(before, name)
        self.sizes.memory_by_kind = dict(before.memory_by_kind)
        self._stages = list(before.stages)
        self.attached_values.values = dict(before.attached)
        for path in (path for path, it in self.attached.items() if not has_state(it)):
            self.notice(f"{path} has no state_dict(): what it returns from now on is of what it sees from now on")
        self._unstable = any(it.stability and it.stability.value >= it.stability.bound for it in before.stages)
        self._before = before
        other_code = (code for code, _ in differing_code(before.code, self.code))
        kept: dict[str, Any] = {"started": before.started, "earlier_environments": tuple(earlier)}
        kept["earlier_code"] = tuple(dict.fromkeys([*before.earlier_code, *other_code]))
        if before.parent is not None:  # whose request was made of the parent's record
            kept |= {"parent": before.parent, "given_options": before.given_options, "tuned": before.tuned}
        self.record = now.model_copy(update=kept)

    def continue_from(self, parent: Record) -> None:
        """Begin with what was measured of a finished run, whose tasks are the first of this one's."""
        if not self.accept_code:
            refuse_other_code(parent.code, self.code, parent.run_id)
        now = self.record
        further = len(now.task_names) - len(parent.task_names)
        blank: tuple[None, ...] = (None,) * further
        measured = {
            "accuracy_matrix": (
                *((*row, *blank) for row in parent.accuracy_matrix),
                *[(None,) * len(now.task_names)] * further,
            ),
            "task_confusion": (),
            "task_class_counts": (),
            "data_fingerprint": now.data_fingerprint,
            "started": now.started,
            "parent": Parent(
                run_id=parent.run_id, record_sha256=str(parent.record_sha256), tasks=len(parent.task_names)
            ),
        }
        self.load_state_dict(parent.model_copy(update=measured).model_dump(mode="json"))

    def _measure(self, **fields: Any) -> Record:
        """The record with what is measured by now, added to what was before the run was resumed."""
        measured = {
            "accuracy_matrix": tuple(tuple(row) for row in self.matrix.matrix),
            "task_confusion": tuple(map(tuple, self.matrix.confusion)),
            "task_class_counts": tuple(map(tuple, self.matrix.class_counts)) if any(self.matrix.class_counts) else (),
            "forward_accuracies": tuple(self.forward),
            **{name: tuple(values) for name, values in self.sizes.result().items()},
            "memory_by_kind": dict(self.sizes.memory_by_kind),
            "stages": tuple(self._stages),
            "attached": dict(self.attached_values.values),
            "seconds": (self._before.seconds or 0.0) + time.perf_counter() - self._began,
        }
        record = self.record.model_copy(update=measured | fields)
        # Not measured on a CPU, where libraries and the data sets would count.
        on_device = int(torch.cuda.max_memory_allocated(self.device)) if self.device.type == "cuda" else None
        metrics = compute_metrics(record)
        for name, now in (("peak_memory_bytes", on_device), ("peak_feature_bytes", self.feature_bytes)):
            if now is not None:
                metrics[name] = max(int(self._before.metrics.get(name) or 0), now)
        return record.model_copy(update={"metrics": metrics})


def _curve(values: Iterable[float | None]) -> tuple[float | None, ...]:
    """Values of the epochs to six digits; empty: none was measured."""
    measured = tuple(None if value is None or not math.isfinite(value) else float(f"{value:.6g}") for value in values)
    return measured if any(value is not None for value in measured) else ()


def initial_record(run: ResolvedRun, stream: TaskStream, device: str) -> Record:
    """The record of ``run`` on ``stream``, of which nothing is learned yet."""
    request, tuned, file = run.request, None, None
    parts = {"": run.options, **{f"{it.kind}.": it.options for it in (run.searcher, run.creator) if it is not None}}
    changed = [f"{prefix}{key}" for prefix, own in parts.items() for key in own.model_dump(exclude_defaults=True)]
    if run.tuned is not None:
        own = run.tuned.model_dump(include={"id", "sha256", "method", "seeds", "options"})
        tuned = TuningRecord(**own, **run.tuned.cost.model_dump())
    if names_a_file(request.benchmark):  # from the results folder, so that it tells nothing of where both lie
        file = os.path.relpath(Path(request.benchmark).expanduser().resolve(), request.results.resolve())
    return Record(
        status="running",
        benchmark_file=file,
        given_options=tuple(key for key in changed if key in request.options),
        tuned=tuned,
        matched=request.matched,
        data_fingerprint=stream.fingerprint,
        code=tuple(code for code in run.code if code.kind != "metric"),
        environment=describe_environment(device, compile=request.compile),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        task_inputs=stream.inputs,
        encoder=run.encoder_record,
        **requested_fields(run, stream.plan),
    )


def requested_fields(run: ResolvedRun, plan: StreamPlan) -> dict[str, Any]:
    """Fields of a record that follow from its request and the shape of its stream."""
    spec = run.spec
    parts = (part for part in (run.searcher, run.creator) if part is not None)
    return {
        "run_id": spec.run_id,
        "options": run.options.model_dump(mode="json"),
        "benchmark": spec.benchmark.name,
        "benchmark_version": spec.benchmark.version,
        "benchmark_overrides": dict(run.overrides),
        "protocol": spec.protocol_name,
        "protocol_settings": spec.protocol.model_dump(mode="json", exclude={"summary", "ranked", "tuned"}),
        "ranked": spec.protocol.ranked,
        "reference": run.reference,
        **{f"{part.kind}_options": part.options.model_dump(mode="json") for part in parts},
        **stream_fields(plan),
        **spec.model_dump(include={"strategy", "searcher", "creator", "seed", *ResultFields.model_fields}),
    }


def stream_fields(plan: StreamPlan) -> dict[str, Any]:
    """Fields of a record that describe the stream."""
    return {
        "scenario": plan.scenario,
        "task_order": plan.order,
        "task_names": tuple(task.name for task in plan.tasks),
        "task_classes": plan.classes_per_task,
        "task_labels": tuple(task.test_labels for task in plan.tasks) if plan.repeats_classes else (),
        "task_class_names": names if any(names := tuple(task.class_names for task in plan.tasks)) else (),
        "one_class_tasks": plan.one_class_tasks,
        "task_images": tuple((task.num_train, task.num_valid, task.num_test) for task in plan.tasks),
        "input_shape": plan.input.shape,
        "input_kind": plan.kind,
        "vocabulary": plan.vocabulary,
        "open_ended": plan.open_ended,
    }
