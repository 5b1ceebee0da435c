"""Base of strategies: an Avalanche strategy that learns each task in phases, and can be resumed within one.

Avalanche's plugins and evaluators receive the callbacks they know, and it runs from a plain Avalanche script.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial, partialmethod
from typing import Any, Literal, Self

import torch
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.templates import SupervisedTemplate
from torch import Tensor, nn

from seu_bench.config.common_options import SelectingOptions, TrainingOptions
from seu_bench.config.protocol import Schedule
from seu_bench.config.run import ComputeConfig
from seu_bench.data.avalanche import BatchLoader, task_images
from seu_bench.data.images import TaskImages
from seu_bench.models.answers import Answers
from seu_bench.models.feature_cache import FeatureCache, feature_tiers
from seu_bench.models.modes import restore_modes, save_modes
from seu_bench.models.multihead import MultiHeadModel, NotLearnedError
from seu_bench.models.walk import names_of
from seu_bench.training.interfaces import StrategyContext
from seu_bench.training.loops import EpochMeter, TrainingStage, clip_gradients, evaluate, make_optimizer
from seu_bench.training.monitoring import SilentLogger, implements
from seu_bench.training.stage import Pause, Phase, ProgressCallback, Stage, TaskData
from seu_bench.training.state import checkpoint_error_context, difference, get_state, set_counts, set_state
from seu_bench.training.task_inference import TaskInference, task_inference
from seu_bench.utils.hardware import number_format
from seu_bench.utils.seeding import derive_seed

#: Keys of the states of what is attached begin so, unlike names of attributes.
_ATTACHED = "attached "
_CHANGED_BY_EVAL = ("experience", "is_training", "adapted_dataset", "dataloader")


class StagedStrategy(SupervisedTemplate):  # type: ignore[type-arg]
    """Base of strategies: override :meth:`phases` or :meth:`penalty`, list own state in :attr:`state_attributes`.

    Args:
        model: network with one head per task.
        schedule: epochs, batch size and learning rate of the training stage.
        seed: seed of everything random.
        lr_schedule: ``cosine`` (per task, to ``min_learning_rate``), or ``constant``.
        restore: whether the weights of the best validation loss are restored, or those of the last epoch remain.
        compute: precision, memory for outputs of frozen layers, compilation.
        on_progress: callback for the progress of every stage.
        evaluator: Avalanche's; silent by default.

    Example::

        class Anchored(StagedStrategy):
            state_attributes = ("anchor",)

            def phases(self, task: TaskData) -> Sequence[Phase]:
                return [Phase(lambda: self.training_stage(task), lambda _: self.drop_anchor())]
    """

    model: MultiHeadModel
    # Avalanche's annotations of these do not agree with one another.
    dataloader: Any
    experience: Any
    mbatch: Any

    #: How the task of a test image is found where it is not known; ``None``: it is known, or there are no paths.
    task_inference: TaskInference | None = None
    #: Whether it is trained once on the whole stream: a reference, and no continual (lifelong) learner.
    whole_stream = False
    #: Whether it learns from images of earlier tasks that it keeps nowhere: they are read again for a run that goes on.
    revisits_tasks = False
    #: Name of the option that is the strength of the penalty, for whoever should lower it; how much of it is left.
    penalty_strength, penalty_share = "the penalty's strength", 1.0
    #: Names of attributes that hold state beside the model's: tensors, plain values, a generator of torch, and objects
    #: with ``state_dict()`` and ``load_state_dict()`` that are there from the beginning.
    state_attributes: tuple[str, ...] = ()
    #: What a run attached, by name; it is saved and restored with the strategy.
    attached: Mapping[str, Any] = {}

    def __init__(
        self,
        *,
        model: MultiHeadModel,
        schedule: Schedule,
        seed: int = 0,
        lr_schedule: Literal["cosine", "constant", "plateau"] = "cosine",
        restore: Literal["best_valid", "last"] = "best_valid",
        device: str | torch.device = "cpu",
        eval_mb_size: int = 512,
        compute: ComputeConfig | None = None,
        on_progress: ProgressCallback | None = None,
        plugins: Sequence[Any] | None = None,
        evaluator: EvaluationPlugin | None = None,
    ) -> None:
        super().__init__(
            model=model,
            # Avalanche wants an optimiser now; each training stage makes its own. A group may be empty, as a model may.
            optimizer=torch.optim.SGD([{"params": list(model.parameters())}], lr=schedule.learning_rate),
            train_mb_size=schedule.batch_size,
            train_epochs=schedule.epochs,
            eval_mb_size=eval_mb_size,
            device=device,
            plugins=plugins,
            evaluator=EvaluationPlugin(loggers=[SilentLogger()]) if evaluator is None else evaluator,  # type: ignore[no-untyped-call]
        )
        self._listeners: dict[str, list[Callable[..., Any]]] = {}
        self.model.to(self.device)
        self.whole_schedule, self.lr_schedule, self.restore = schedule, lr_schedule, restore
        self.seed, self.compute, self.on_progress = seed, compute or ComputeConfig(), on_progress
        #: Called after every epoch of every stage.
        self.pause: Pause | None = None
        has_state = bool(self.state_attributes) or type(self).get_extra_state is not StagedStrategy.get_extra_state
        #: Whether a run can resume with it. The state of Avalanche's plugins is known to a subclass at best.
        self.resumable = has_state or not plugins
        #: Largest bytes of cached features so far; ``None`` where the model has no frozen layers.
        self.peak_feature_bytes = 0 if self.model.has_frozen_layers else None
        self.epoch_meter: EpochMeter | None = None
        self._clipped: list[nn.Parameter] = []
        self._answers: dict[int, Answers] = {}
        #: The strategy as it was when the present phase began; ``weights`` are their names.
        self._begun: Mapping[str, Any] | None = None
        self._stage: Stage[Any] | None = None
        self._pending: Mapping[str, Any] | None = None

    @classmethod
    def of(cls, context: StrategyContext, *, model: MultiHeadModel, **more: Any) -> Self:
        """Create the strategy for a run; ``more`` arguments of the constructor come before those of the context."""
        # Where nothing is trained by SGD the options have no schedule.
        options = context.options if isinstance(context.options, TrainingOptions) else TrainingOptions()
        arguments: dict[str, Any] = {
            "schedule": options.applied_to(context.protocol.training),
            "seed": context.seed,
            "lr_schedule": options.lr_schedule,
            "restore": options.restore if isinstance(options, SelectingOptions) else "last",
            "device": context.device,
            "eval_mb_size": context.protocol.eval_batch_size,
            "compute": context.compute,
            "on_progress": context.on_progress,
            "evaluator": context.evaluator,
        }
        strategy = cls(model=model, **(arguments | more))
        strategy.task_inference = task_inference(context)
        return strategy

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Return the phases that learn a task, in order; by default training alone.

        It must not change the strategy: a resumed run calls it again. Changes belong into a phase's functions.
        """
        return [Phase(lambda: self.training_stage(task))]

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state beside the model's, as it is now: by default that of :attr:`state_attributes`."""
        return {name: get_state(getattr(self, name)) for name in self.state_attributes}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned; the model is restored already."""
        for name in self.state_attributes:
            set_state(self, name, state[name])

    def kept(self) -> Mapping[str, Any]:
        """Return all that is kept for later tasks, by kind; its bytes are the record's ``memory_bytes``.

        By default the model and what :meth:`get_extra_state` returns, but for random generators. Override it where that
        is not all, or where the state stands for something else. See :func:`~seu_bench.training.bytes_by_kind`;
        nothing: it is not known.
        """
        if not self.resumable:
            return {}
        # What a model's state holds beside parameters is buffers: what is counted once is not counted again.
        counted = {"parameters": list(self.model.parameters()), "masks": list(self.model.packed_masks())}
        own = self.get_extra_state().items()
        learned = {name: value for name, value in own if not isinstance(getattr(self, name, None), torch.Generator)}
        return {**counted, "buffers": self.model, **learned}

    def validation_loss(self, task: TaskData, on_batch: Callable[[int], None]) -> float | None:
        """Return the mean cross-entropy per validation image with :meth:`penalty`, by which weights are selected;
        ``None`` without validation images. ``on_batch`` is called with the number of images of each batch."""
        if task.valid is None or not len(task.valid):
            return None
        self.model.eval()
        forward = partial(self.model.forward_single_task, task_label=task.index)
        _, loss = evaluate(forward, task.valid, self.eval_mb_size, on_batch)
        with torch.no_grad():
            penalty = self.penalty()
        self.model.train()
        return loss + (0.0 if penalty is None else float(penalty))

    def penalty(self) -> Tensor | None:
        """Return a scalar to add to each batch's and the validation loss of the task in training; ``None``: nothing."""
        return None

    def penalty_curvature(self, trained: Collection[str]) -> float | None:
        """Return the largest second derivative of a quadratic penalty, by which unstable settings are noticed, among
        the parameters of these names; ``None`` where there is no such penalty."""
        return None

    def trained_module(self, task: TaskData) -> nn.Module:
        """Return the module that the training stage trains; by default the trainable part of the task's path."""
        return self.model.trainable_module(task.index)

    def describe(self) -> dict[str, Any]:
        """Return fields of the record that only this strategy knows, e.g. ``genotypes`` and ``paths``."""
        return {}

    def batch_signature(self) -> Hashable:
        """Return what tells batches of different cost per image apart, whose operations are then counted once each."""
        return None

    def training_mode(self) -> None:
        """Make the model ready for an epoch of training; called once before each."""
        self.model.train()

    def training_stage(self, task: TaskData) -> TrainingStage:
        """Create the stage that trains the task's path, with Avalanche's callbacks around every batch."""
        return TrainingStage(self, task)

    def seed_for(self, purpose: str, task: int) -> int:
        """Return the seed of one purpose in one task, e.g. ``seed_for("search", 3)``."""
        return derive_seed(self.seed, purpose, task)

    def count_images(self, images: int) -> None:
        """Count images that a batch in training passes forward beyond its own, e.g. replayed ones.

        They should cost as much per image as the batch's own: operations are measured on one batch and multiplied.
        """
        if self._stage is not None:
            self._stage.count_images(images)

    @property
    def schedule(self) -> Schedule:
        """Schedule of the task in training; that of the first may be another."""
        return self.whole_schedule.of_task(self.learned)

    @property
    def learned(self) -> int:
        """Number of tasks learned so far."""
        return int(self.clock.train_exp_counter)

    # ------------------------------------------------------------------ Avalanche's flow, on whole batches

    @property
    def batches_per_epoch(self) -> int:
        """Batches of an epoch of the training that runs."""
        return len(self.dataloader)

    @property
    def batch_number(self) -> int:
        """0-based number of the present batch within its epoch of training; batches done after the epoch."""
        return int(self.clock.train_epoch_iterations)

    def make_train_dataloader(self, *arguments: Any, **kwargs: Any) -> None:
        """Load whole batches by index, shuffled."""
        self.dataloader = self._loader(self.train_mb_size, shuffle=True)

    def make_eval_dataloader(self, *arguments: Any, **kwargs: Any) -> None:
        """Load whole batches by index."""
        self.dataloader = self._loader(self.eval_mb_size, shuffle=False)

    def check_model_and_optimizer(self, *arguments: Any, **kwargs: Any) -> None:
        """Have the model take note of the task; stages grow it and make their optimisers."""
        self.model.begin_task(self._task_of(self.experience))

    def model_adaptation(self, model: Any = None) -> Any:
        """Return the model unchanged: evaluation must not adapt it."""
        return self.model if model is None else model

    @property
    def mb_task_id(self) -> Tensor:  # type: ignore[override]
        """Task labels of the present batch; 0 where the benchmark has none."""
        batch = self.mbatch
        return batch[-1] if len(batch) > 2 else torch.zeros(len(batch[1]), dtype=torch.int64)

    def forward(self) -> Tensor:
        """Logits of the present batch on its task's path, or on the path that is inferred; of a task that was not
        learned, where a model has no path for it, all the lowest number."""
        learned = self.learned
        try:
            if self.task_inference is not None and not self.is_training:
                logits = self.task_inference(self.model, self.mb_x, learned)
            else:
                logits = self.model(self.mb_x, self.mb_task_id)
        except NotLearnedError:
            logits = self.mb_x.new_zeros((len(self.mb_x), 0))
        if not self.is_training and self._task_of(self.experience) >= learned:
            # A stream may be evaluated whole: outputs of classes that were not seen yet are never the answer.
            missing = int(self.mb_y.max()) + 1 - logits.shape[1]
            logits = nn.functional.pad(logits, (0, max(missing, 0)), value=torch.finfo(logits.dtype).min)
        return logits

    def train_one_epoch(self) -> None:
        """One epoch over the training images, with Avalanche's callbacks."""
        self._listeners = {}
        self._before_training_epoch()  # type: ignore[no-untyped-call]
        self.training_epoch()  # type: ignore[no-untyped-call]
        self._after_training_epoch()  # type: ignore[no-untyped-call]

    def _call_listeners(self, event: str, **kwargs: Any) -> None:
        # Who listens is found out once per epoch: calling every plugin is a twentieth of the time of a small network.
        if event not in self._listeners:
            found = [plugin for plugin in self.plugins if implements(plugin, event)]
            self._listeners[event] = [getattr(plugin, event) for plugin in found]
        for listener in self._listeners[event]:
            listener(self, **kwargs)

    def _loader(self, batch_size: int, *, shuffle: bool) -> BatchLoader:
        images = task_images(self.adapted_dataset, task := self._task_of(self.experience), self.device)
        if self.task_inference is not None and self.is_training:
            images = self.task_inference.with_label(images)
        if not self.is_training and self.model.paths_stay and task < self.learned:
            if task not in self._answers or self._answers[task].origin is not images:
                self._answers[task] = Answers(images)
            images = self._answers[task].images
        return BatchLoader(images, batch_size, shuffle=shuffle)

    def _unpack_minibatch(self) -> None:
        # Batches are on the device already; the task labels stay on the CPU, where choosing a head costs no sync.
        batch = self.mbatch
        if isinstance(batch, list) and batch[0].device != self.device:
            self.mbatch = [*(tensor.to(self.device, non_blocking=True) for tensor in batch[:-1]), batch[-1]]

    @staticmethod
    def _task_of(experience: Any) -> int:
        return int(experience.current_experience)

    def _validation_of(self, experience: Any, eval_streams: Any) -> TaskImages | None:
        """The validation images among ``eval_streams``; streams of other names are never selected on."""
        task = self._task_of(experience)
        for stream in eval_streams or ():
            for candidate in stream if isinstance(stream, Iterable) else [stream]:
                is_own = candidate.origin_stream.name.startswith("valid") and self._task_of(candidate) == task
                if is_own and len(candidate.dataset):
                    images = task_images(candidate.dataset.eval(), task, self.device)
                    return images if self.task_inference is None else self.task_inference.with_label(images)
        return None

    # Avalanche's own walk below each module again, so that the time would grow faster than the model.
    def _save_train_state(self) -> dict[str, Any]:
        return {name: vars(self).get(name) for name in _CHANGED_BY_EVAL} | {"_modes": save_modes(self.model)}

    def _load_train_state(self, prev_state: dict[str, Any]) -> None:
        restore_modes(prev_state.pop("_modes"))
        vars(self).update(prev_state)

    def _before_eval_exp(self, **kwargs: Any) -> None:
        self._listeners = {}
        super()._before_eval_exp(**kwargs)  # type: ignore[no-untyped-call]

    def criterion(self) -> Tensor:
        """Loss of the present batch, in training (:attr:`is_training`) with :meth:`penalty`; in evaluation without."""
        loss: Tensor = super().criterion()  # type: ignore[no-untyped-call]
        penalty = self.penalty() if self.is_training else None
        return loss if penalty is None else loss + penalty

    def optimizer_step(self) -> None:
        """Clip the gradient's norm, then step."""
        clip_gradients(self._clipped, self.schedule.clip_norm)
        self.optimizer.step()

    def begin_training(self, module: nn.Module, schedule: Schedule) -> None:
        """Make a fresh optimiser over what trains in ``module``."""
        self._clipped = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.optimizer = make_optimizer(self._clipped, schedule)

    def _before_training_iteration(self, **kwargs: Any) -> None:
        if self.epoch_meter is not None:
            self.epoch_meter.begin(self.batch_signature())
        self._call_listeners("before_training_iteration", **kwargs)

    def _after_training_iteration(self, **kwargs: Any) -> None:
        if self.epoch_meter is not None and self.mb_output is not None:
            self.epoch_meter.add(self.loss, self.mb_output, self.mb_y)
        self._call_listeners("after_training_iteration", **kwargs)

    def _train_exp(self, experience: Any, eval_streams: Any = None, **kwargs: Any) -> None:
        index, loader = self._task_of(experience), self.dataloader
        is_ours = isinstance(loader, BatchLoader)  # and not a plugin's, e.g. one that mixes in a memory
        train = loader.images if is_ours else task_images(experience.dataset.train(), index, self.device)
        valid = self._validation_of(experience, eval_streams)
        with self._features_cached() as numbered:
            train, valid = numbered(train), None if valid is None else numbered(valid)
            if is_ours:
                self.dataloader = BatchLoader(train, loader.batch_size, shuffle=loader.shuffle)
            self._learn(TaskData(index, train, valid))

    def _learn(self, task: TaskData) -> None:
        """Run the phases of a task, from where :meth:`load_state_dict` resumes."""
        phases = self.phases(task)
        pending, self._pending = self._pending, None
        first = 0 if pending is None else int(pending["phase"])
        with checkpoint_error_context(f"task {task.index}"):
            if first >= len(phases):
                raise ValueError(f"there is no phase {first} among {len(phases)}")
        for number, phase in enumerate(phases[first:], start=first):
            self._begun = self._phase_start(task.index, number)
            stage = phase.make()
            if self.model.feature_cache is not None:
                self.model.feature_cache.begin_stage()
            if pending is not None:
                with checkpoint_error_context(f"stage {stage.name!r} of task {task.index}"):
                    stage.load_state_dict(pending["stage"])
                    self._set_own_state(pending["own_now"])
                    set_counts(self.clock, pending["clock"])  # Avalanche began to count the task from 0
                pending = None
            self._stage = stage
            compiles = self.compute.compile and isinstance(stage, TrainingStage)
            compiling = self.model.compiling(self.train_mb_size) if compiles else nullcontext()
            with number_format(self.compute.precision, self.device.type), compiling:
                result = stage.run(self.on_progress, self.pause)
            self._stage = None
            if phase.apply is not None:
                phase.apply(result)
        self._begun = None

    @contextmanager
    def _features_cached(self) -> Iterator[Callable[[TaskImages], TaskImages]]:
        """Cache outputs of frozen layers, if there are any, for images that went through the function it yields."""
        if not self.model.has_frozen_layers:
            yield lambda images: images
            return
        dtype = torch.bfloat16 if self.compute.precision.startswith("bf16") else None
        cache = FeatureCache(feature_tiers(self.device, self.compute.feature_cache), self.train_mb_size, dtype)
        self.model.feature_cache = cache
        try:
            yield cache.number
        finally:
            self.model.feature_cache = None
            self.peak_feature_bytes = max(self.peak_feature_bytes or 0, cache.peak_bytes)

    def state_dict(self) -> dict[str, Any]:
        """Return the strategy as it was when the present phase began, and its extra state and stage as they are now.

        In a file, what the phase did not change of the extra state is stored once. The weights are today's: those that
        the phase found and its stage trains are in the stage's state as well. What was loaded into the middle of a
        phase stays as it is until it is resumed.
        """
        if self._pending is not None:
            return dict(self._pending)
        begun = self._begun or self._phase_start(self.learned, 0)
        weights, own = self.model.state_dict(), begun["own"]
        return {
            **begun,
            "own_now": {
                name: own[name] if name in own and difference(own[name], value) is None else value
                for name, value in self._own_state().items()
            },
            "weights": {name: weights[name] for name in begun["weights"]},
            "stage": None if self._stage is None else self._stage.state_dict(),
            "clock": {name: value for name, value in vars(self.clock).items() if isinstance(value, int)},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned, on a strategy that has learned nothing; a CheckpointError: it does
        not fit."""
        with checkpoint_error_context("the strategy"):
            set_counts(self.clock, state["clock"])
            self.model.load_architecture(state["architecture"])
            self.model.to(self.device)
            self.model.load_state_dict(state["weights"])
            for name, weight in self.model.named_parameters():
                weight.requires_grad_(name not in state["frozen"])
            self._set_own_state(state["own"])
            if state["stage"] is not None and (state["task"] != self.learned or state["phase"] < 0):
                raise ValueError(f"task {state['task']} does not follow {self.learned} learned ones")
        self._pending = state if state["stage"] is not None else None

    def _own_state(self) -> dict[str, Any]:
        return {**self.get_extra_state(), **{_ATTACHED + name: get_state(it) for name, it in self.attached.items()}}

    def _set_own_state(self, state: Mapping[str, Any]) -> None:
        own = copy.deepcopy(dict(state))
        for name, it in self.attached.items():
            it.load_state_dict(own[_ATTACHED + name])
        self.set_extra_state({name: value for name, value in own.items() if not name.startswith(_ATTACHED)})

    def _phase_start(self, task: int, phase: int) -> dict[str, Any]:
        names = names_of(self.model)
        return {
            "task": task,
            "phase": phase,
            "architecture": self.model.architecture(),
            "frozen": [name for name, is_frozen in names.items() if is_frozen],
            "weights": list(names),
            "own": copy.deepcopy(self._own_state()),  # which the stage may change in place
        }


for _place in ("training_iteration", "forward", "backward", "update", "eval_iteration", "eval_forward"):
    for _event in (f"before_{_place}", f"after_{_place}"):
        if f"_{_event}" not in vars(StagedStrategy):
            setattr(StagedStrategy, f"_{_event}", partialmethod(StagedStrategy._call_listeners, _event))
