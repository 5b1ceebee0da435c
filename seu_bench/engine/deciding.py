"""Options that are decided task by task, during a run, by the rule of :mod:`seu_bench.config.stability`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Final

from seu_bench.data.streams import DECIDING
from seu_bench.engine.checkpoint_manager import is_resumable
from seu_bench.engine.recorder import RunRecorder
from seu_bench.engine.resolve import ResolvedRun
from seu_bench.errors import RequestError
from seu_bench.results.record_parts import DecisionRecord
from seu_bench.training.interfaces import StrategyContext
from seu_bench.training.monitoring.evaluators import AccuracyMatrix
from seu_bench.training.stage import ProgressCallback, StageProgress

#: Name of the stages that trials learn in.
TUNING: Final = "tuning"
_RATE: Final = "learning_rate"


def with_options(run: ResolvedRun, values: Mapping[str, Any]) -> ResolvedRun:
    """The run with other values of its strategy's options.

    Raises:
        RequestError: the strategy has no such option, or it cannot take the value.
    """
    try:
        options = type(run.options).model_validate(run.options.model_dump() | dict(values))
    except ValueError as error:
        named = ", ".join(f"{key}={value}" for key, value in values.items())
        raise RequestError(
            f"strategy {run.spec.strategy!r} cannot be decided task by task: it does not take {named}",
            where="--stability-decay",
            remedy="decay an option of the strategy of which 0 means no penalty, as ewc_lambda is",
        ) from error
    return replace(run, options=options)


def require_decidable(strategy: Any, run: ResolvedRun) -> None:
    """Refuse a strategy that cannot try a task and go back, and options that it cannot take."""
    if run.spec.stability_decay is None:
        return
    if not is_resumable(strategy) or strategy.whole_stream:
        raise RequestError(
            f"strategy {run.spec.strategy!r} cannot be decided task by task: it cannot go back to where a task began",
            where="--stability-decay",
            remedy="choose a strategy that learns task by task and can resume",
        )
    rule = run.spec.stability_decay
    for value in (0.0, *rule.values):
        with_options(run, {rule.option: value})
    for rate in rule.learning_rates:
        with_options(run, {_RATE: rate})


@dataclass
class Decider:
    """Decides the options of each task by learning it in trials, from the strategy as it is.

    The stages of trials count only once a decision is made: where it is interrupted, it is made again.

    Attributes:
        run: whose options are replaced, by its rule.
        recorder: holds the decisions.
        context: gives a strategy's context for a run, a callback for progress and evaluators.
        show: called with progress of trials.
    """

    run: ResolvedRun
    recorder: RunRecorder
    context: Callable[..., StrategyContext]
    show: ProgressCallback

    @property
    def decided(self) -> ResolvedRun:
        """The run with the options that were decided last, if any were."""
        decisions = self.recorder.record.decisions
        return with_options(self.run, decisions[-1].options) if decisions else self.run

    def decide(
        self, task: int, strategy: Any, experience: Any, valid: Any, deciding: Any, pause: Callable[[object], None]
    ) -> bool:
        """Decide the options of a task, unless a run that was interrupted has, or nothing is to be decided.

        Args:
            task: 0-based.
            strategy: as it is before the task.
            experience: the task's training images.
            valid: the images that restore weights.
            deciding: those whose accuracy decides.
            pause: called after every epoch of a trial.

        Returns:
            Whether it was decided now.
        """
        rule, decisions = self.run.spec.stability_decay, self.recorder.record.decisions
        if rule is None or len(decisions) > task:
            return False
        state, stages, tried = strategy.state_dict(), list[StageProgress](), list[float]()

        def watch(progress: StageProgress) -> None:
            (stages.append if progress.done else self.show)(replace(progress, stage=TUNING))

        def learned(options: Mapping[str, float]) -> float:
            run, matrix = with_options(self.run, options), AccuracyMatrix(task + 1, DECIDING)
            trial: Any = run.build(self.context(run, watch, matrix))
            trial.load_state_dict(copy.deepcopy(state))
            trial.pause = pause
            trial.train(experience, eval_streams=[[valid]])
            trial.eval([deciding])
            tried.append(matrix.matrix[task][task] or 0.0)
            return tried[-1]

        rates: list[dict[str, float]] = [{_RATE: rate} for rate in rule.learning_rates] or [{}]
        reachable, rate = max(((learned({rule.option: 0.0} | one), one) for one in rates), key=itemgetter(0))
        options, accuracy = {rule.option: rule.start} | rate, reachable
        # Before the first task there is nothing to be stable about.
        for value in rule.values if task else ():
            options = {rule.option: value} | rate
            accuracy = learned(options)
            if accuracy >= (1 - rule.tolerance) * reachable:
                break
        made = DecisionRecord(options=options, accuracy=accuracy, reachable=reachable, trials=len(tried))
        for progress in stages:
            self.recorder.watch(progress)
        self.recorder.record = self.recorder.record.model_copy(update={"decisions": (*decisions, made)})
        return True
