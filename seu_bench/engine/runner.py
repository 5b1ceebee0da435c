"""The story of one run: data, strategy, tasks one after another, and a record and checkpoints that are whole at every
moment, so that the same run can be gone on with wherever it was left."""

from __future__ import annotations

import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seu_bench.config.run import ComputeConfig
from seu_bench.engine.checkpoint import Position, read_checkpoint
from seu_bench.engine.hook_caller import HookCaller
from seu_bench.engine.resolve import ResolvedRun
from seu_bench.engine.run_folder import RunFolder
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import (
    CheckpointError,
    Interruption,
    NewerRecordError,
    PluginError,
    RequestError,
    ResultsError,
    RunError,
    SeuBenchError,
)
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, read_record
from seu_bench.training.interfaces import Cost
from seu_bench.training.stage import EpochReport, Stage, StageProgress
from seu_bench.utils.files import write_atomic
from seu_bench.utils.locks import RunLock


def execute(registry: Registry, run: ResolvedRun, *, stop: StopRequest | None = None) -> Outcome:
    """Make a run, go on with it where it was left, or return its record if it is finished already.

    Args:
        registry: whose hooks are told of the progress.
        stop: whether and when to stop; ``None``: at the end.

    Raises:
        DataError: a data set is missing or corrupt; nothing is written.
        ResultsError: the results folder cannot be written to, or another process makes this run.
        RunError: the strategy failed; the record says so.
        Interruption: the run was stopped; the record says so, and the same call goes on with it.
    """
    stop = stop or StopRequest(run.request.max_seconds)
    folder = RunFolder(run.request.results, run.spec.run_id)
    known = _finished(folder.record, restart=run.request.restart)
    if known is not None and folder.is_tidy:
        return Outcome(known, folder.record, reused=True)
    listeners = HookCaller(registry)
    lock = RunLock(folder.folder)
    lock.acquire(listeners.notice)
    try:
        folder.refuse_links()
        # Whoever held the lock before may have finished it.
        if (known := _finished(folder.record, restart=run.request.restart)) is not None:
            folder.clean()
            folder.clear()
            return Outcome(known, folder.record, reused=True)
        return _Run(registry, run, stop, lock, listeners).make()
    finally:
        lock.release()


def _finished(path: Path, *, restart: bool) -> Record | None:
    """The record of this run if it is finished and may be taken as it is.

    Raises:
        NewerRecordError: there is one that only a later version can read; it must not be written over.
    """
    try:
        known = read_record(path)
    except NewerRecordError:
        raise
    except ResultsError:
        return None  # there is none, or a damaged one, which is made again
    if restart:
        return None
    is_it = known.status == "finished" and known.run_id == path.parent.name
    return known if is_it else None


class _Run:
    def __init__(
        self,
        registry: Registry,
        run: ResolvedRun,
        stop: StopRequest,
        lock: RunLock,
        listeners: HookCaller,
    ) -> None:
        self.registry = registry
        self.run = run
        self.stop = stop
        self.lock = lock
        self.listeners = listeners
        self.folder = RunFolder(run.request.results, run.spec.run_id)

    def make(self) -> Outcome:
        import torch

        from seu_bench.data.streams import build_stream
        from seu_bench.engine.checkpoint_manager import CheckpointManager
        from seu_bench.engine.environment import choose_device
        from seu_bench.engine.recorder import RunRecorder, opening_record

        request, spec = self.run.request, self.run.spec
        self.device = choose_device(request.device)
        self.stream = build_stream(
            spec.benchmark,
            self.run.load,
            self.run.limits,
            spec.seed,
            torch.device(self.device),
        )
        self.recorder = RunRecorder(
            request.results,
            opening_record(self.run, self.stream, self.device),
            self.registry,
            torch.device(self.device),
            self.listeners.progress,
        )
        try:
            self.strategy, cost = self._built()
        except Exception as error:
            if isinstance(error, SeuBenchError) and not isinstance(error, PluginError):
                raise  # the request does not fit the strategy: nothing has begun, and nothing is written
            failure = self._failure(error)
            self.recorder.update(status="failed", error=failure.what)
            raise failure from error
        if request.restart:
            self.folder.begin_anew()
        else:
            self._go_on()
        self.checkpoint_manager = CheckpointManager(
            self.folder.checkpoints,
            lambda: {"strategy": self.strategy.state_dict(), "record": self.recorder.state_dict()},
            self._checkpoint_bytes,
            every=request.checkpoint_every,
            stop=self.stop,
            notice=self.listeners.notice,
        )
        self.folder.clean()
        self._update(status="running", error=None)
        self._learn_and_end(cost)
        checkpoint_manager = self.checkpoint_manager
        return Outcome(
            self.recorder.record,
            self.folder.record,
            checkpoints=checkpoint_manager.written,
            checkpoint_seconds=checkpoint_manager.seconds,
            checkpoint_bytes=checkpoint_manager.bytes,
        )

    def _learn_and_end(self, cost: Cost) -> None:
        try:
            self.listeners.tell("run_started", record=self.recorder.record, cost=cost)
            self.strategy.pause = self._between_epochs
            self._learn()
            self._update(status="finished", weights_sha256=self._kept_model())
        except KeyboardInterrupt as stopped:
            self.stop.settle()
            reason = stopped.reason if isinstance(stopped, Interruption) else "interrupted by the user"
            self._update(status="interrupted", error=reason)
            self._told_end()
            raise
        except ResultsError as error:
            # No failure of the strategy: the record cannot be written either, or is somebody else's by now.
            self._told_end(status="interrupted", error=error.what)
            raise
        except Exception as error:
            failure = self._failure(error)
            self._update(status="failed", error=failure.what)
            self._told_end()
            raise failure from error
        self.folder.clear()
        self._told_end()

    # ------------------------------------------------------------------ before training

    def _built(self) -> tuple[Any, Cost]:
        """The strategy, which has learned nothing yet, and what the run will cost."""
        from avalanche.training.plugins import EvaluationPlugin

        from seu_bench.training.callbacks import SilentLogger

        recorder = self.recorder
        measures = (recorder.matrix, recorder.sizes)
        evaluator = EvaluationPlugin(*measures, loggers=[SilentLogger()], collect_all=False)  # type: ignore[no-untyped-call]
        context = self.run.context(self.stream.plan, self.device, on_progress=recorder.watch, evaluator=evaluator)
        strategy = self.run.strategy.build(context)
        precision = self.run.spec.precision
        if precision != getattr(strategy, "compute", ComputeConfig()).precision:
            raise RequestError(
                f"strategy {self.run.spec.strategy!r} computes in float32 only",
                where=f"--precision {precision}",
                remedy="leave the precision out",
            )
        return strategy, self.run.strategy.cost(context)

    def _go_on(self) -> None:
        """Bring strategy and record to where the newest checkpoint that can be used stands, if there is one.

        Raises:
            ResultsError: the data are not those that the run began with.
        """
        if not self._is_resumable:
            return
        checkpoints = self.folder.checkpoints
        known = checkpoints.newest_first()
        for path in known:
            try:
                state = read_checkpoint(path, self.run.spec.run_id, self.device)
                self.strategy.load_state_dict(state.get("strategy"))
                self.recorder.load_state_dict(state.get("record"))
                self._check_tasks()
            except CheckpointError as error:
                self.listeners.notice(f"{error.what} ({path})")
                checkpoints.set_aside(path)
                self.strategy, _ = self._built()
                continue
            self.listeners.notice(f"the run goes on from {checkpoints.position()}")
            if self.recorder.record.earlier_environments:
                self.listeners.notice("parts of it were made elsewhere or by other versions; the record says which")
            return
        if known:
            self.listeners.notice("no checkpoint can be used: the run begins anew")

    def _check_tasks(self) -> None:
        learned, evaluated = self.strategy.learned, self.recorder.evaluated
        if not self.strategy.whole_stream and learned not in (evaluated, evaluated + 1):
            raise CheckpointError(f"a checkpoint cannot be used: {learned} tasks are learned, {evaluated} evaluated")

    # ------------------------------------------------------------------ training

    def _learn(self) -> None:
        scenario = self.stream.avalanche()
        train, valid, test = (scenario.streams[name] for name in ("train", "valid", "test"))
        whole = getattr(self.strategy, "whole_stream", False)
        lessons = [(len(train) - 1, train, [valid])] if whole else [(t, e, [[valid[t]]]) for t, e in enumerate(train)]
        for number, (task, experiences, streams) in enumerate(lessons):
            if number < self.recorder.evaluated:
                continue
            if self.strategy.clock.train_exp_counter <= task:
                self.strategy.train(experiences, eval_streams=streams)
                self._pause(Position(task=task, stage="evaluation"), resumable=self._is_resumable)
            self._evaluate(task, test[: task + 1])
            self._update(status="running")
            self.listeners.tell("task_learned", record=self.recorder.record, task=task)
            if number < len(lessons) - 1:
                self._pause(Position(task=task + 1), resumable=self._is_resumable)

    def _evaluate(self, task: int, tests: Any) -> None:
        images = sum(planned.num_test for planned in self.stream.plan.tasks[: task + 1])
        watch = self.recorder.watch
        watch(StageProgress("evaluation", task, 0, 1, EpochReport(), 0, 0.0))
        began = time.perf_counter()
        self.strategy.eval(tests)
        seconds = time.perf_counter() - began
        report = EpochReport(None, self.recorder.mean_accuracy(task))
        watch(StageProgress("evaluation", task, 1, 1, report, images, seconds, done=True))

    def _between_epochs(self, stage: Stage[Any]) -> None:
        position = Position(task=stage.task, stage=stage.name, epoch=stage.epoch, epochs=stage.epochs)
        self._pause(position, resumable=self._is_resumable and self.strategy.resumes_within_tasks)

    def _pause(self, position: Position, *, resumable: bool) -> None:
        self.lock.check()
        self.checkpoint_manager.maybe_save(position, resumable=resumable)

    def _checkpoint_bytes(self) -> int:
        """What trains is there three times: as it is, its momentum, and the best so far."""
        weights = self.strategy.model.parameters()
        return sum(weight.nbytes * (3 if weight.requires_grad else 1) for weight in weights)

    @property
    def _is_resumable(self) -> bool:
        """Whether the strategy can be gone on with."""
        from seu_bench.training.strategy import StagedStrategy

        return isinstance(self.strategy, StagedStrategy) and self.strategy.resumable

    # ------------------------------------------------------------------ the record

    def _update(self, **fields: Any) -> None:
        self.lock.check()
        self.recorder.feature_bytes = getattr(self.strategy, "peak_feature_bytes", None)
        described = self._described(ending=fields["status"] in ("failed", "interrupted"))
        self.recorder.update(**described, **fields)

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

    def _kept_model(self) -> str | None:
        """Write the model; the SHA-256 of its file. ``None`` where it is not wanted, or no model of ours."""
        from seu_bench.engine.saved_model.file import save_model
        from seu_bench.models.multihead import MultiHeadModel

        model = self.strategy.model
        if not self.run.request.keep_weights or not isinstance(model, MultiHeadModel):
            self.folder.model.unlink(missing_ok=True)
            return None
        return save_model(self.folder.model, model, self.recorder.record)

    def _told_end(self, **fields: Any) -> None:
        self.listeners.tell("run_finished", record=self.recorder.record.model_copy(update=fields))

    def _failure(self, error: Exception) -> RunError:
        """Keep the traceback beside the record; say in one message what failed and where to look."""
        log = self.folder.log
        write_atomic(log, "".join(traceback.format_exception(error)))
        if isinstance(error, SeuBenchError):
            return RunError(error.what, where=error.where or str(log), remedy=error.remedy)
        entry = self.registry.strategies[self.run.spec.strategy]
        return RunError(
            f"strategy {entry.name!r} of package {entry.package} failed: {type(error).__name__}: {error}",
            where=str(log),
            remedy="report it to the strategy's author with that file",
        )


@dataclass(frozen=True)
class Outcome:
    """What a call left.

    Attributes:
        path: where the record lies.
        reused: whether the run had been finished before.
        checkpoints: how many were written by this call; their seconds in all, and bytes of the last one.
    """

    record: Record
    path: Path
    reused: bool = False
    checkpoints: int = 0
    checkpoint_seconds: float = 0.0
    checkpoint_bytes: int | None = None
