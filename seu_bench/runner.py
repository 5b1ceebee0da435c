"""The story of one run: data, strategy, tasks one after another, a record that is whole at every moment."""

from __future__ import annotations

import math
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from seu_bench.errors import PluginError, ResultsError, RunError, SeuBenchError
from seu_bench.interfaces import PATIENCE, MetricFunction, StreamPlan
from seu_bench.metrics import KnownMetric, compute_metrics
from seu_bench.record import Record, StageRecord, Status, read_record, record_path, write_record, write_whole
from seu_bench.registry import Entry, Registry
from seu_bench.resolve import ResolvedRun
from seu_bench.stages import EpochReport, StageProgress


@dataclass(frozen=True)
class Outcome:
    """A run's record, where it lies, and whether it had been finished before."""

    record: Record
    path: Path
    reused: bool = False


@dataclass
class _Ledger:
    """Stages as they finish, told on to whoever watches."""

    tell: Callable[[StageProgress], None]
    stages: list[StageRecord] = field(default_factory=list)

    def __call__(self, progress: StageProgress) -> None:
        if progress.done:
            self.stages.append(
                StageRecord(
                    name=progress.stage,
                    task=progress.task,
                    epochs=progress.epoch,
                    seconds=progress.seconds,
                    image_passes=progress.image_passes,
                )
            )
        self.tell(progress)


def execute(
    registry: Registry,
    run: ResolvedRun,
    *,
    results: Path = Path("results"),
    data_root: Path | None = None,
    device: str = "auto",
    force: bool = False,
    patience: float = PATIENCE,
) -> Outcome:
    """Make a run, or return the record of the same run if it is finished already.

    Args:
        registry: whose hooks are told of the progress.
        force: run again in any case.
        patience: seconds that a searcher or a creator may compute without an image or an epoch.

    Raises:
        DataError: a data set is absent or damaged; nothing is written.
        ResultsError: the results folder cannot be written to.
        RunError: the strategy failed; the record says so.
    """
    path = record_path(results, run.spec.run_id)
    if not force and _answers(path.is_file):
        try:
            known = read_record(path)
        except ResultsError:
            known = None  # a damaged record is made again
        if known is not None and known.status == "finished":
            return Outcome(known, path, reused=True)
    return Outcome(_Run(registry, run, results, data_root, device, patience).make(), path)


class _Run:
    def __init__(
        self,
        registry: Registry,
        run: ResolvedRun,
        results: Path,
        data_root: Path | None,
        device: str,
        patience: float,
    ) -> None:
        self.registry = registry
        self.hook: Any = registry.manager.hook
        self.run = run
        self.results = results
        self.data_root = data_root
        self.device_name = device
        self.patience = patience
        self.ledger = _Ledger(lambda progress: self._tell("stage_progress", progress=progress))
        self.strategy: Any = None

    def make(self) -> Record:
        check_writable(self.results)
        import torch
        from avalanche.training.plugins import EvaluationPlugin

        from seu_bench.environment import choose_device
        from seu_bench.evaluators import AccuracyMatrix, ModelSizes
        from seu_bench.strategy import SilentLogger
        from seu_bench.streams import build_stream

        device = choose_device(self.device_name)
        run, spec = self.run, self.run.spec
        self.stream = build_stream(
            spec.benchmark,
            lambda name: run.load(name, self.data_root),
            run.limits,
            spec.seed,
            torch.device(device),
        )
        plan = self.stream.plan
        self.matrix = AccuracyMatrix(len(plan.tasks))
        self.sizes = ModelSizes()
        evaluator = EvaluationPlugin(self.matrix, self.sizes, loggers=[SilentLogger()], collect_all=False)  # type: ignore[no-untyped-call]
        setting = run.setting(plan, device, watch=self.ledger, evaluator=evaluator, patience=self.patience)
        self.device = torch.device(device)
        self.began = time.perf_counter()
        self.record = self._opening_record(plan, device)
        try:
            self.strategy = run.strategy.build(setting)
            cost = run.strategy.cost(setting)
        except Exception as error:
            if isinstance(error, SeuBenchError) and not isinstance(error, PluginError):
                raise  # the request does not fit the strategy: nothing has begun, and nothing is written
            failure = self._failure(error)
            self._update(status="failed", error=failure.what)
            raise failure from error
        self._log.unlink(missing_ok=True)
        write_record(self.results, self.record)
        try:
            self._tell("run_started", record=self.record, cost=cost)
            self._learn()
        except KeyboardInterrupt:
            self._end("interrupted", "interrupted by the user")
            raise
        except Exception as error:
            failure = self._failure(error)
            self._end("failed", failure.what)
            raise failure from error
        self._end("finished")
        return self.record

    def _opening_record(self, plan: StreamPlan, device: str) -> Record:
        """Everything that is decided before training."""
        from seu_bench.environment import describe_environment

        run, spec = self.run, self.run.spec
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
            limit=spec.limit,
            synthetic=spec.synthetic,
            task_order=plan.order,
            task_names=tuple(task.name for task in plan.tasks),
            task_classes=plan.classes,
            data_fingerprint=self.stream.fingerprint,
            environment=describe_environment(device),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def _learn(self) -> None:
        scenario = self.stream.avalanche()
        train, valid, test = (scenario.streams[name] for name in ("train", "valid", "test"))
        if getattr(self.strategy, "whole_stream", False):
            self.strategy.train(train, eval_streams=[valid])
            self._learned(len(train) - 1, test)
            return
        for task, experience in enumerate(train):
            self.strategy.train(experience, eval_streams=[[valid[task]]])
            self._learned(task, test[: task + 1])

    def _learned(self, task: int, tests: Any) -> None:
        self._evaluate(task, tests)
        self._update(status="running")
        self._tell("task_learned", record=self.record, task=task)

    def _evaluate(self, task: int, tests: Any) -> None:
        images = sum(split.test for split in self.stream.plan.tasks[: task + 1])
        self.ledger(StageProgress("evaluation", task, 0, 1, EpochReport(), 0, 0.0))
        began = time.perf_counter()
        self.strategy.eval(tests)
        seconds = time.perf_counter() - began
        measured = [value for value in self.matrix.matrix[task][: task + 1] if value is not None]
        mean = sum(measured) / len(measured) if measured else None
        self.ledger(StageProgress("evaluation", task, 1, 1, EpochReport(None, mean), images, seconds, done=True))

    def _update(self, **fields: Any) -> None:
        """Bring the record up to what is known now, and write it."""
        described = self._described(ending=fields.get("status") in ("failed", "interrupted"))
        record = self.record.model_copy(
            update={
                "accuracy_matrix": tuple(tuple(row) for row in self.matrix.matrix),
                "params_total": tuple(self.sizes.params_total),
                "params_active": tuple(self.sizes.params_active),
                "macs": tuple(self.sizes.macs),
                "stages": tuple(self.ledger.stages),
                "seconds": time.perf_counter() - self.began,
                **described,
                **fields,
            }
        )
        metrics = compute_metrics(record)
        metrics["peak_memory_bytes"] = _peak_memory(self.device)
        if record.status == "finished":
            metrics |= {
                name: _metric(entry, record)
                for name, entry in self.registry.metrics.items()
                if not isinstance(entry.factory, KnownMetric)
            }
        self.record = record.model_copy(update={"metrics": metrics})
        write_record(self.results, self.record)

    def _described(self, *, ending: bool) -> dict[str, Any]:
        """What only the strategy knows. One that was stopped half-way may not be able to say; its failure is told."""
        if not hasattr(self.strategy, "describe"):
            return {}
        try:
            described: dict[str, Any] = self.strategy.describe()
        except Exception:
            if not ending:
                raise
            return {}
        return described

    def _end(self, status: Status, error: str | None = None) -> None:
        self._update(status=status, error=error)
        self._tell("run_finished", record=self.record)

    def _tell(self, hook: str, **values: Any) -> None:
        """Call a hook of whoever watches. What is raised there is that plugin's fault, and not the strategy's.

        Raises:
            PluginError: a plugin failed; it is named.
        """
        caller = getattr(self.hook, hook)
        try:
            caller(**values)
        except SeuBenchError:
            raise
        except Exception as error:
            entered = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
            found = [impl for impl in caller.get_hookimpls() if getattr(impl.function, "__code__", None) in entered]
            name = found[0].plugin_name if found else "?"
            raise PluginError(
                f"plugin {name!r} of package {self.registry.package(name)} failed in {hook}: "
                f"{type(error).__name__}: {error}",
                remedy="repair or uninstall it",
            ) from error

    @property
    def _log(self) -> Path:
        return record_path(self.results, self.run.spec.run_id).with_name("error.txt")

    def _failure(self, error: Exception) -> RunError:
        """Keep the traceback beside the record; say in one message what failed and where to look."""
        write_whole(self._log, "".join(traceback.format_exception(error)))
        if isinstance(error, SeuBenchError):
            return RunError(error.what, where=error.where or str(self._log), remedy=error.remedy)
        entry = self.registry.strategies[self.run.spec.strategy]
        return RunError(
            f"strategy {entry.name!r} of package {entry.package} failed: {type(error).__name__}: {error}",
            where=str(self._log),
            remedy="report it to the strategy's author with that file",
        )


def check_writable(results: Path) -> None:
    """Fail before anything is computed if records cannot be written.

    Raises:
        ResultsError: the folder cannot be made or written to.
    """
    probe = results / "runs" / ".writable"
    made = [folder for folder in (probe.parent, *probe.parent.parents) if not _answers(folder.exists)]
    try:
        write_whole(probe, "")
    finally:
        if _answers(probe.is_file):
            probe.unlink()
        for folder in made:
            if _answers(folder.is_dir) and not any(folder.iterdir()):
                folder.rmdir()


def _answers(question: Callable[[], bool]) -> bool:
    """What a path says of itself; no, where it may not be asked or cannot be a path."""
    try:
        return question()
    except (OSError, ValueError):
        return False


def _metric(entry: Entry[MetricFunction], record: Record) -> float | int | None:
    """A plugin's metric. One that fails costs its own value, with a warning, and not the run that was finished."""
    try:
        value = entry.factory(record)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    else:
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
            # NaN and infinity are no measurements.
            return value if value is not None and math.isfinite(value) else None
        problem = f"it gave {value!r}, which is no number"
    warnings.warn(
        f"metric {entry.name!r} of package {entry.package} is left out: {problem}", RuntimeWarning, stacklevel=2
    )
    return None


def _peak_memory(device: Any) -> int | None:
    """Bytes on an accelerator at the most; not measured on a CPU, where libraries and the data sets would count."""
    import torch

    return int(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else None
