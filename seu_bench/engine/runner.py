"""One run: data, strategy, tasks one after another, and a record and checkpoints that are complete at every moment."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from avalanche.training.plugins import EvaluationPlugin

from seu_bench.config.run import ComputeConfig
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.engine.checkpoint import CheckpointManager, Position, is_resumable
from seu_bench.engine.environment import choose_device, require_memory
from seu_bench.engine.forecast import ProgressFile, differences
from seu_bench.engine.learner_file import Ancestor, learner_bytes, needs_whole_stream
from seu_bench.engine.recorder import RunRecorder, initial_record
from seu_bench.engine.resolve import ResolvedRun
from seu_bench.engine.run_folder import RunFolder
from seu_bench.engine.saved_model import model_bytes
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import Interruption, PluginError, RequestError, ResultsError, SeuBenchError
from seu_bench.models.modes import modes_kept
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, code_fault, record_text
from seu_bench.training.interfaces import Cost, StrategyContext
from seu_bench.training.monitoring import has_state
from seu_bench.training.stage import EpochReport, Stage, StageProgress
from seu_bench.utils.files import write_atomic
from seu_bench.utils.hardware import computing_with, usable_cores
from seu_bench.utils.locks import RunLock
from seu_bench.utils.seeding import preserve_rng
from seu_bench.utils.text import error_line


def execute(
    registry: Registry, run: ResolvedRun, *, stop: StopRequest | None = None, parent: Ancestor | None = None
) -> Outcome:
    """Make a run, resume it, or return its record if it is finished already.

    Args:
        registry: plugins whose hooks are called.
        run: from :func:`seu_bench.engine.resolve.resolve`.
        stop: whether and when to stop; by default when the request's ``max_seconds`` are over.
        parent: the finished run of the first tasks from which this one continues where it was not begun.

    Returns:
        The record of the finished run, and what this call did for it.

    Raises:
        DataError: a data set is missing or corrupt; nothing is written.
        ResultsError: the results folder cannot be written to, or another process makes this run, or other code made
            it.
        RunError: the strategy failed; the record says so.
        Interruption: the run was stopped; the record says so, and the same call resumes it.

    Example:
        ``execute(registry, resolve(registry, Request(strategy="ewc"))).record``
    """
    stop = stop or StopRequest(run.request.max_seconds)
    request, folder = run.request, RunFolder(run.request.results, run.spec.run_id)
    hooks, lock = HookCaller(registry), RunLock(folder.folder)
    code = None if request.accept_code else run.code
    known = folder.finished(code, restart=request.restart)
    if known is None or folder.has_leftovers:
        lock.acquire(hooks.notice)
        try:
            folder.refuse_links()
            known = folder.finished(code, restart=request.restart)  # by whoever held the lock before
            if known is None:
                gc.freeze()  # to look for garbage in all that is loaded takes 0.3 s each time
                try:
                    with computing_with(run.spec.threads):
                        return _Run(registry, run, stop, folder, lock, hooks, parent).make()
                finally:
                    gc.collect()  # of this run alone
                    gc.unfreeze()
            folder.remove_remains()
            folder.remove_unfinished()
        finally:
            lock.release()
    if (fault := code_fault(known.code, run.code)) is not None:
        hooks.notice(f"{fault}; it is shown as it is")
    return Outcome(known, folder.record, reused=True)


class HookCaller:
    """Calls the hooks of plugins that watch a run, each by itself and without drawing a random number of the run.

    Who only watches may not stop a run: a plugin that fails is not called again, and the others are told.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._failed: list[Any] = []

    def notice(self, message: str) -> None:
        """Show a message to the user."""
        self.notify("run_notice", message=message)

    def notify(self, hook: str, **values: Any) -> None:
        """Call a hook of every plugin that watches, in pluggy's order."""
        manager = self._registry.manager
        found = reversed(getattr(manager.hook, hook).get_hookimpls())
        watching = list({id(implementation.plugin): implementation.plugin for implementation in found}.values())
        for plugin in watching:
            if any(plugin is other for other in self._failed):
                continue
            alone = manager.subset_hook_caller(hook, [other for other in watching if other is not plugin])
            try:
                with preserve_rng():
                    alone(**values)
            except (Exception, SystemExit) as error:  # a library that ends the process must not end the run
                self._failed.append(plugin)
                name = manager.get_name(plugin) or "?"
                package = getattr(plugin, "package", None) or self._registry.manager.package(name)
                what = f"plugin {name!r} of package {package} failed in {hook} and is not called again"
                self.notice(f"{what}: {error_line(error)}; the run continues")


@dataclass
class _Run:
    registry: Registry
    run: ResolvedRun
    stop: StopRequest
    folder: RunFolder
    lock: RunLock
    hooks: HookCaller
    parent: Ancestor | None = None
    strategy: Any = None

    def make(self) -> Outcome:
        run, request, spec, hooks = self.run, self.run.request, self.run.spec, self.hooks
        self.device = choose_device(request.device)
        if spec.threads > (cores := usable_cores()):
            hooks.notice(f"this computes with {spec.threads} threads on {cores} cores, which is slower")
        device = torch.device(self.device)
        _ = run.encoder_record  # refuses images that the network does not take before any is encoded
        self.stream = self._stream(0 if request.restart else self._known_tasks())
        if request.keep_learner and not self.stream.plan.open_ended:
            why, remedy = "images of all tasks normalise its input", "-o benchmark.stream.input.normalise=first_task"
            self._refuse_learner(why, f"add {remedy}")
        if request.keep_learner and not request.keep_weights:
            self._refuse_learner("it is of no use without the weights", "leave out --no-weights, or --keep-learner")
        for fault in self.registry.faults.values():  # a plugin may only watch, or measure
            hooks.notice(f"unavailable: {fault.what}")
        self.recorder = RunRecorder(
            lambda record: write_atomic(self.folder.record, record_text(record)),
            initial_record(run, self.stream, self.device),
            *(self.registry, device, self._report, hooks.notice, run.code, request.accept_code),
        )
        try:
            cost = run.cost(self._context())
            require_memory(min(cost.params_total_min, default=0), self.device)
            self.strategy = self._build()
        except Exception as error:
            if isinstance(error, SeuBenchError) and not isinstance(error, PluginError):
                raise  # the request does not fit the strategy: nothing has begun, and nothing is written
            raise self._record_failure(error) from error
        if request.keep_learner:
            self._refuse_learner(needs_whole_stream(self.strategy), "leave it out, or choose another strategy")
        self.checkpoints = CheckpointManager(
            self.folder.checkpoints,
            lambda: {"strategy": self.strategy.state_dict(), "record": self.recorder.state_dict()},
            every=request.checkpoint_every,
            stop=self.stop,
            notice=hooks.notice,
        )
        if not is_resumable(self.strategy):
            lacking = [path for path, it in getattr(self.strategy, "attached", {}).items() if not has_state(it)]
            what = " and ".join(lacking or [f"strategy {spec.strategy}"])
            hooks.notice(f"{what} has no state that can be saved: if it is stopped, the run starts over")
        if request.restart:
            self.folder.start_over()
        else:
            self.strategy = self.checkpoints.resume(self.strategy, self._build, self.recorder, self.device)
        if self.parent is not None and self.recorder.evaluated < len(self.parent.tasks):
            self._continue_from(self.parent)
        known = self._known_tasks()
        if known and (self.strategy.learned < known or getattr(self.strategy, "revisits_tasks", False)):
            self.stream = self._stream(0)
        self.folder.remove_remains()
        self._update(status="running", error=None)
        self._learn_and_end(cost)
        return Outcome(self.recorder.record, self.folder.record)

    def _learn_and_end(self, cost: Cost) -> None:
        try:
            self.progress = ProgressFile(self.folder.folder, self.recorder.record, cost)
            self.hooks.notify("run_started", record=self.recorder.record, cost=cost)
            self.strategy.pause = self._between_epochs
            self._learn()
            weights = self._save_model()
            self._update(status="finished", weights_sha256=weights, **self._save_learner(weights is not None))
        except KeyboardInterrupt as stopped:
            self.stop.settle()
            reason = stopped.reason if isinstance(stopped, Interruption) else "interrupted by the user"
            self._update(status="interrupted", error=reason)
            self._notify_end()
            raise
        except ResultsError as error:
            # No failure of the strategy: the record cannot be written either, or belongs to another process by now.
            self._notify_end(status="interrupted", error=error.what)
            raise
        except Exception as error:
            failure = self._record_failure(error)
            self._notify_end()
            raise failure from error
        self.folder.remove_unfinished()
        if missed := differences(cost, self.recorder.record.stages):
            more = f" (and {len(missed) - 1} more)" if len(missed) > 1 else ""
            self.hooks.notice(f"the forecast was wrong: {missed[0]}{more}")
        self._notify_end()

    def _known_tasks(self) -> int:
        """Tasks that are learned before this call, as far as can be told before their state is loaded."""
        if (position := self.folder.checkpoints.position()) is not None:
            return position.task
        return 0 if self.parent is None else len(self.parent.tasks)

    def _stream(self, learned: int) -> TaskStream:
        run, device = self.run, torch.device(self.device)
        part = {**run.part, "learned": learned}
        return build_stream(run.spec.benchmark, run.load, run.limits, run.spec.seed, device, **part)

    def _continue_from(self, parent: Ancestor) -> None:
        """Go on from the last task of another run, as if its tasks had been learned here."""
        parent.check(self.stream, self.recorder.record)
        fresh, self.strategy = self._build(), self._build()  # one may have begun without the other run
        self.strategy.load_state_dict(fresh.lengthened(parent.state))
        self.recorder.continue_from(parent.record)
        if self.recorder.forward:
            self.recorder.forward += self._untrained(fresh, len(self.recorder.forward))

    @staticmethod
    def _refuse_learner(reason: str | None, remedy: str) -> None:
        if reason is not None:
            raise RequestError(f"no learner can be kept: {reason}", where="--keep-learner", remedy=remedy)

    def _report(self, progress: StageProgress) -> None:
        self.progress(progress)
        self.hooks.notify("stage_progress", progress=progress)

    def _context(self) -> StrategyContext:
        recorder = self.recorder
        evaluator = EvaluationPlugin(*recorder.evaluators, loggers=[recorder.attached_values], collect_all=False)
        return self.run.context(self.stream.plan, self.device, on_progress=recorder.watch, evaluator=evaluator)

    def _build(self) -> Any:
        strategy = self.run.build(self._context())
        if is_resumable(strategy):
            metrics = {path: it for path, it in self.recorder.attached.items() if has_state(it)}
            strategy.attached = {**strategy.attached, **metrics}
        precision = self.run.spec.precision
        if precision == "tf32" and not self.device.startswith("cuda"):
            remedy = "leave the precision out, or give --device cuda where there is an NVIDIA accelerator"
            raise RequestError(f"there is no TF32 on {self.device}", where="--precision tf32", remedy=remedy)
        if precision != getattr(strategy, "compute", ComputeConfig()).precision:
            what = f"strategy {self.run.spec.strategy!r} computes in float32 only"
            raise RequestError(what, where=f"--precision {precision}", remedy="leave the precision out")
        return strategy

    def _learn(self) -> None:
        scenario = self.stream.avalanche()
        train, valid, test = (scenario.streams[name] for name in ("train", "valid", "test"))
        whole = getattr(self.strategy, "whole_stream", False)
        lessons = [(len(train) - 1, train, [valid])] if whole else [(t, e, [[valid[t]]]) for t, e in enumerate(train)]
        for number, (task, experiences, streams) in enumerate(lessons):
            if number < self.recorder.evaluated:
                continue
            if self.strategy.clock.train_exp_counter <= task:
                self.recorder.note_features(range(task + 1))
                self._look_ahead(task)
                self.strategy.train(experiences, eval_streams=streams)
                self._pause(Position(task=task, stage="evaluation"))
            self._evaluate(task, test[: task + 1])
            self._update(status="running")
            self.hooks.notify("task_learned", record=self.recorder.record, task=task)
            if number < len(lessons) - 1:
                self._pause(Position(task=task + 1))

    def _look_ahead(self, task: int) -> None:
        """Measure the accuracy on a task before it is learned, and before anything is, where one head answers for all
        tasks. A run that is resumed within the task has done so."""
        forward, strategy = self.recorder.forward, self.strategy
        if task == 0 and not forward and self.folder.checkpoints.position() is None:
            forward += self._untrained(strategy, 0)
        elif task and forward and forward[task][0] is None:
            forward[task] = (self._accuracy(strategy, task, task - 1), forward[task][1])

    def _untrained(self, strategy: Any, first: int) -> list[tuple[float | None, float | None]]:
        """What :attr:`RunRecorder.forward` has of the tasks from ``first`` on while none of them is learned."""
        model, tasks = getattr(strategy, "model", None), range(first, len(self.stream.tasks))
        is_shared = self.stream.plan.scenario == "domain" and getattr(strategy, "task_inference", None) is None
        if not is_shared or not isinstance(model, MultiHeadModel) or getattr(strategy, "whole_stream", False):
            return []
        return [(None, self._accuracy(strategy, task, 0) if task else None) for task in tasks]

    def _accuracy(self, strategy: Any, task: int, asked: int) -> float | None:
        """The share of a task's test images that the head of the task ``asked`` answers right; ``None``: it cannot."""
        images, model, right = self.stream.tasks[task].test, strategy.model, 0
        # A method that has learned nothing may fail in many ways, and loses nothing but this number.
        with modes_kept(model), torch.no_grad(), contextlib.suppress(Exception):
            model.eval()
            for x, y in images.batches(self.run.spec.protocol.eval_batch_size, shuffle=False):
                right += int((model.forward_single_task(x, asked).argmax(dim=1) == y).sum())
            return right / len(images)
        return None

    def _evaluate(self, task: int, experiences: Any) -> None:
        tests = [planned.num_test for planned in self.stream.plan.tasks]
        ahead = dict(enumerate(self.recorder.forward)).get(task, ())
        images = sum(tests[: task + 1]) + tests[task] * sum(value is not None for value in ahead)
        watch = self.recorder.watch
        watch(StageProgress("evaluation", task, 0, 1, EpochReport(), 0, 0.0))
        began = time.perf_counter()
        self.strategy.eval(experiences)
        seconds = time.perf_counter() - began
        report = EpochReport(None, self.recorder.mean_accuracy(task))
        watch(StageProgress("evaluation", task, 1, 1, report, images, seconds, done=True))

    def _between_epochs(self, stage: Stage[Any]) -> None:
        self._pause(Position(task=stage.task, stage=stage.name, epoch=stage.epoch, epochs=stage.epochs))

    def _pause(self, position: Position) -> None:
        self.lock.check()
        self.checkpoints.maybe_save(position, resumable=is_resumable(self.strategy))

    def _update(self, **fields: Any) -> None:
        self.lock.check()
        self.recorder.feature_bytes = getattr(self.strategy, "peak_feature_bytes", None)
        # A strategy that was stopped in the middle may not be able to describe itself.
        excused = (Exception,) if fields["status"] in ("failed", "interrupted") else ()
        with contextlib.suppress(*excused):
            fields |= getattr(self.strategy, "describe", dict)()
        self.recorder.update(**fields)

    def _record_failure(self, error: Exception) -> SeuBenchError:
        """Write down why the strategy failed, and return the error that says so."""
        strategy = self.registry.strategies[self.run.spec.strategy]
        failure = self.folder.keep_failure(error, strategy, self.run.request.options)
        self._update(status="failed", error=failure.what)
        return failure

    def _save_model(self) -> str | None:
        """Write the model and return the SHA-256 of its file; ``None``: it is not wanted, or no model of ours."""
        model = self.strategy.model
        if not self.run.request.keep_weights or not isinstance(model, MultiHeadModel):
            self.folder.model.unlink(missing_ok=True)
            return None
        content = model_bytes(model, self.recorder.record)
        write_atomic(self.folder.model, content)
        return hashlib.sha256(content).hexdigest()

    def _save_learner(self, has_weights: bool) -> dict[str, Any]:
        """Write what further tasks can be learned from, and return the fields of the record that tell of it."""
        self.folder.learner.unlink(missing_ok=True)
        if self.run.request.keep_learner is False or not has_weights or not self.stream.plan.open_ended:
            return {}
        spec, reason = self.run.spec, needs_whole_stream(self.strategy)
        try:
            if reason is not None:
                raise TypeError(reason)
            state = self.strategy.state_dict()
            content = learner_bytes(state, self.stream.identities, spec.run_id, spec.benchmark)
        except TypeError as error:  # also of a strategy whose state is of kinds that cannot be written as data
            self.hooks.notice(f"no learner is kept, and no further task can follow: {error}")
            return {}
        write_atomic(self.folder.learner, content)
        return {"learner_sha256": hashlib.sha256(content).hexdigest(), "learner_bytes": len(content)}

    def _notify_end(self, **fields: Any) -> None:
        self.hooks.notify("run_finished", record=self.recorder.record.model_copy(update=fields))


@dataclass(frozen=True)
class Outcome:
    """A record, where it lies, and whether the run had been finished before."""

    record: Record
    path: Path
    reused: bool = False
