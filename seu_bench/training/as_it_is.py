"""A strategy of Avalanche as it is: its own loop and loaders, on the run's model and data, timed and counted."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from avalanche.core import SupervisedPlugin
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import JointTraining
from torch import Tensor, nn

from seu_bench.config.common_options import TrainingOptions
from seu_bench.models.backbone import BackboneModel
from seu_bench.models.flops import active_counter
from seu_bench.models.sizes import count_macs, count_parameters
from seu_bench.training.backbones import backbone_model
from seu_bench.training.interfaces import Cost, StageCost, StrategyContext, checked_options
from seu_bench.training.monitoring import SilentLogger
from seu_bench.training.rehearsal import evaluation_passes, on_meta
from seu_bench.training.stage import EpochReport, Stage
from seu_bench.utils.seeding import RandomState, derive_seed


def build(context: StrategyContext, kind: type[Any], takes: Mapping[str, Any], own: Collection[str]) -> Any:
    """Construct a strategy of Avalanche of this ``kind``, and have its training timed, counted and seeded as one stage
    of each task. Its constructor ``takes`` these parameters by name; ``own`` are the options among them."""
    options, model = checked_options(context, TrainingOptions), backbone_model(context, may_be_frozen=False)
    schedule = options.applied_to(context.protocol.training)
    rate = schedule.learning_rate
    given: dict[str, Any] = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), rate, schedule.momentum, weight_decay=schedule.weight_decay),
        "train_mb_size": schedule.batch_size,
        "train_epochs": schedule.epochs,
        "eval_mb_size": context.protocol.eval_batch_size,
        "device": context.device,
        "evaluator": context.evaluator or EvaluationPlugin(loggers=[SilentLogger()]),  # type: ignore[no-untyped-call]
        "eval_every": -1,  # nothing is selected, so that nothing is validated
    }
    if "criterion" in takes and takes["criterion"].default is takes["criterion"].empty:
        given["criterion"] = nn.CrossEntropyLoss()
    takes_all = any(it.kind is it.VAR_KEYWORD for it in takes.values())
    arguments = {name: value for name, value in given.items() if takes_all or name in takes}
    with RandomState(derive_seed(context.seed, "strategy")).active(), _without_deprecations():
        strategy = kind(**arguments, **{name: getattr(options, name) for name in own})
    strategy.on_progress, strategy.pause = context.on_progress, None
    strategy.whole_stream = isinstance(strategy, JointTraining)
    meter = _Meter(model)
    learn = strategy.train

    def train(experiences: Any, **_: Any) -> None:
        if meter not in strategy.plugins:  # behind the plugins that learn, and before what evaluates
            strategy.plugins.insert(strategy.plugins.index(strategy.evaluator), meter)
        meter.experiences = list(experiences) if strategy.whole_stream else [experiences]
        task = int(meter.experiences[-1].current_experience)
        meter.begin_tasks(strategy.model)
        seed = derive_seed(context.seed, "training", task)
        stage = AvalancheTraining(task, schedule.epochs, seed, strategy, lambda: learn(experiences, []))
        meter.stage = stage
        stage.run(strategy.on_progress, strategy.pause)
        strategy.clock.train_exp_counter = task + 1  # training on the whole stream counts once

    strategy.train = train
    return strategy


def cost(context: StrategyContext) -> Cost:
    """Forecast sizes, and passes as of naive training; operations and memory are not estimated."""
    options, plan = checked_options(context, TrainingOptions), context.plan
    model = on_meta(lambda: backbone_model(context, may_be_frozen=False)).eval()
    epochs = options.applied_to(context.protocol.training).epochs
    learning = [StageCost("training", index, epochs * task.num_train, 0) for index, task in enumerate(plan.tasks)]
    macs = []
    for task in range(len(plan.tasks)):
        model.begin_task(task)
        answer = partial(model.forward_single_task, task_label=task)
        macs.append(count_macs(answer, plan.input.shape, torch.device("meta"), plan.input.dtype))
    params, passes = (count_parameters(model),) * len(macs), (*learning, *evaluation_passes(plan))
    return Cost(params, params, tuple(macs), tuple(macs), passes)


class AvalancheTraining(Stage[None]):
    """The training of a task by a strategy's own loop."""

    def __init__(self, task: int, epochs: int, seed: int, strategy: Any, learn: Callable[[], object]) -> None:
        super().__init__("training", task, epochs, seed, strategy.device)
        self.strategy, self.learn, self.reports = strategy, learn, list[EpochReport]()

    def run_epoch(self) -> EpochReport:
        """Run all epochs at once; each is noted by :meth:`end_epoch`."""
        with _without_deprecations():
            self.learn()
        self.ended = True
        # The last one is noted by the stage itself.
        self.epoch, self.curve = max(0, len(self.reports) - 1), self.reports[:-1]
        return self.reports[-1] if self.reports else EpochReport()

    def end_epoch(self, report: EpochReport) -> None:
        """Note an epoch, after which the run may be stopped."""
        self.reports.append(report)
        self.epoch = min(len(self.reports), self.epochs)
        if self.strategy.pause is not None:
            self.strategy.pause(self)

    def result(self) -> None:
        """Return nothing: the strategy has learned."""


class _Meter(SupervisedPlugin):  # type: ignore[type-arg]
    """Counts images that pass the backbone or a copy of it, and notes epochs in the stage that runs."""

    def __init__(self, model: BackboneModel) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.stage: AvalancheTraining | None = None
        self.experiences: Sequence[Any] = ()
        self._losses: list[Tensor] = []

        # A plain function, which copies of the network share: passes of teachers are counted too.
        def count(_module: nn.Module, arguments: tuple[Tensor, ...], _output: object) -> None:
            if self.stage is not None and active_counter() is not None:
                self.stage.count_images(len(arguments[0]))

        model.backbone.register_forward_hook(count)

    def begin_tasks(self, model: Any) -> None:
        tasks = [int(it.current_experience) for it in self.experiences]
        model.begin_task(tasks[-1])
        model.known_train_tasks_labels.update(tasks)  # Avalanche's own models note it when they adapt

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        self.begin_tasks(strategy.model)  # a plugin may have put another one there, as GDumb does

    def after_training_iteration(self, strategy: Any, **kwargs: Any) -> None:
        self._losses.append(torch.as_tensor(strategy.loss).detach().mean())

    def after_training_epoch(self, strategy: Any, **kwargs: Any) -> None:
        losses, self._losses = self._losses, []
        if self.stage is not None:
            self.stage.end_epoch(EpochReport(float(torch.stack(losses).mean()) if losses else None))

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        strategy.experience = self.experiences[-1]  # training on the whole stream stops at the first
        self.stage = None  # what evaluates the model from here on is no training


@contextmanager
def _without_deprecations() -> Iterator[None]:
    """Hide that Avalanche calls parts of itself that it deprecates, by warnings that it sets to be shown always."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
    for warning in caught:
        if not issubclass(warning.category, DeprecationWarning):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
