"""Phases of learning a task: run one after another, and resumed in the middle of one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import torch

from seu_bench.config.run import ComputeConfig, Precision
from seu_bench.data.avalanche import BatchLoader, task_images
from seu_bench.data.images import TaskImages
from seu_bench.models.feature_cache import FeatureCache
from seu_bench.models.feature_store import feature_tiers
from seu_bench.models.multihead import CompiledUnits, MultiHeadModel
from seu_bench.training.stage import Pause, ProgressCallback, Stage
from seu_bench.training.state import difference, fitting, get_state, set_state
from seu_bench.training.template import LeanTemplate

#: Keys of the states of what is attached begin so, unlike names of attributes.
_ATTACHED: Final = "attached "


@dataclass(frozen=True)
class TaskData:
    """Data to learn a task from. Its test images are not here, and those of other tasks are not either.

    Attributes:
        index: 0-based position of the task in the stream; also the number of its head.
        train: training images, already shuffled: ``train.batches(64, shuffle=True)`` yields images ``[b, C, H, W]``,
            float32 and normalised, and labels ``[b]`` from 0, on the run's device.
        valid: validation images; ``None`` where the benchmark has none. Select by them, never train on them.
    """

    index: int
    train: TaskImages
    valid: TaskImages | None


@dataclass(frozen=True)
class Phase:
    """A stage of learning a task, made when its turn comes, and what is done with its result.

    A strategy's model changes in :attr:`make` and :attr:`apply` only, its extra state while the stage runs as well; and
    :attr:`make` does the same whenever it finds the strategy as it was. A resumed run makes the stage again, gives it
    its state, and then gives the strategy its extra state as of the checkpoint. Whatever else changes while the stage
    runs belongs to the stage's ``get_extra_state``; so does what :attr:`make` computes from weights that the stage
    trains, which a resumed run finds as they were at the checkpoint.

    Attributes:
        make: returns the stage; called when the earlier phases of the task are over.
        apply: called with the stage's result; ``None``: nothing is left to do.
    """

    make: Callable[[], Stage[Any]]
    apply: Callable[[Any], None] | None = None


class PhasedStrategy(LeanTemplate):
    """Mixin for an Avalanche strategy that learns each task in phases and can be resumed at every moment."""

    model: MultiHeadModel

    #: Names of attributes that hold state beside the model's: tensors, plain values, a generator of torch, and objects
    #: with ``state_dict()`` and ``load_state_dict()`` that are there from the beginning.
    state_attributes: tuple[str, ...] = ()

    #: What a run attached, by name; it is saved and restored with the strategy.
    attached: Mapping[str, Any] = {}

    #: Whether a run resumes between two epochs, or between two tasks only; see :attr:`resumable`.
    resumes_within_tasks = True

    def __init__(self, *, compute: ComputeConfig, on_progress: ProgressCallback | None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.model.to(self.device)
        self.compute = compute
        self.on_progress = on_progress
        #: Called after every epoch of every stage.
        self.pause: Pause | None = None
        #: Whether a run can resume with it. The state of Avalanche's plugins is known to a subclass at best.
        knows_itself = bool(self.state_attributes) or type(self).get_extra_state is not PhasedStrategy.get_extra_state
        self.resumable = knows_itself or not arguments["plugins"]
        #: Largest bytes of cached features so far; ``None`` where the model has no frozen layers.
        self.peak_feature_bytes = 0 if self.model.has_frozen_layers else None
        #: The strategy as it was when the present phase began; ``weights`` are their names.
        self._begun: Mapping[str, Any] | None = None
        self._stage: Stage[Any] | None = None
        self._pending: Mapping[str, Any] | None = None

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Return the phases that learn a task, in order."""
        raise NotImplementedError

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state beside the model's, as it is now: tensors and plain values.

        By default that of the attributes named by :attr:`state_attributes`.
        """
        return {name: get_state(getattr(self, name)) for name in self.state_attributes}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`get_extra_state` returned; the model is restored already."""
        for name in self.state_attributes:
            set_state(self, name, state[name])

    def kept(self) -> Mapping[str, Any]:
        """Return all that is kept for later tasks, by kind; its bytes are the record's ``memory_bytes``.

        By default the model and what :meth:`get_extra_state` returns, each of its keys a kind, but for random
        generators. A strategy overrides it where that is not all, such as a teacher that its state leaves out because
        it equals the model between two tasks; or where the state stands for something else, such as places of images
        for the images. What it may return is told at
        :func:`~seu_bench.training.monitoring.memory.bytes_by_kind`; nothing: it is not known.
        """
        if not self.resumable:
            return {}
        # What a model's state holds beside parameters is buffers: what is counted once is not counted again.
        counted = {"parameters": list(self.model.parameters()), "masks": list(self.model.packed_masks())}
        own = self.get_extra_state().items()
        learned = {name: value for name, value in own if not isinstance(getattr(self, name, None), torch.Generator)}
        return {**counted, "buffers": self.model, **learned}

    def passed(self, images: int) -> None:
        """Count images that a batch in training passes forward beyond its own, e.g. replayed ones.

        The record's image passes and operations have them. What is counted so should cost as much per image as the
        batch's own images: operations are measured on one batch and multiplied.

        Args:
            images: number of images.
        """
        if self._stage is not None:
            self._stage.passed(images)

    @property
    def learned(self) -> int:
        """Number of tasks learned so far."""
        return int(self.clock.train_exp_counter)

    def state_dict(self) -> dict[str, Any]:
        """Return the strategy as it was when the present phase began, and its extra state and stage as they are now.

        In a file, what the phase did not change of the extra state is stored once. The weights are today's: those that
        the phase found and its stage trains are in the stage's state as well, and are stored once, too. What was loaded
        into the middle of a phase stays as it is until it is resumed.
        """
        if self._pending is not None:
            return dict(self._pending)
        begun = self._begun or self._beginning(self.learned, 0)
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
        """Restore what :meth:`state_dict` returned; on a strategy that has learned nothing yet.

        Raises:
            CheckpointError: it does not fit this strategy.
        """
        with fitting("the strategy"):
            self._set_clock(state["clock"])
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

    def _set_clock(self, counts: Mapping[str, Any]) -> None:
        for name, value in counts.items():
            if not isinstance(value, int) or not isinstance(getattr(self.clock, name), int):
                raise ValueError(f"the clock's {name} is {value!r}")
            setattr(self.clock, name, value)

    def _beginning(self, task: int, phase: int) -> dict[str, Any]:
        model = self.model
        return {
            "task": task,
            "phase": phase,
            "architecture": model.architecture(),
            "frozen": [name for name, weight in model.named_parameters() if not weight.requires_grad],
            "weights": list(model.state_dict()),
            # It is remembered while the stage runs, which may change it in place.
            "own": copy.deepcopy(self._own_state()),
        }

    def _train_exp(self, experience: Any, eval_streams: Any = None, **kwargs: Any) -> None:
        index, loader = self._task_of(experience), self.dataloader
        # A plugin may have put a loader of its own there, e.g. one that mixes in a memory.
        is_ours = isinstance(loader, BatchLoader)
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
        with fitting(f"task {task.index}"):
            if first >= len(phases):
                raise ValueError(f"there is no phase {first} among {len(phases)}")
        for number, phase in enumerate(phases[first:], start=first):
            if self.resumes_within_tasks:
                self._begun = self._beginning(task.index, number)
            stage = phase.make()
            if self.model.feature_cache is not None:
                self.model.feature_cache.begin_stage()
            if pending is not None:
                with fitting(f"stage {stage.name!r} of task {task.index}"):
                    stage.load_state_dict(pending["stage"])
                    self._set_own_state(pending["own_now"])
                    self._set_clock(pending["clock"])  # Avalanche's counts of a task began at 0 with this training
                pending = None
            self._stage = stage
            compiles = self.compute.compile and self.model.has_units and stage.compiles_units
            compiling = units_compiled(self.model, self.train_mb_size) if compiles else nullcontext()
            with computing_in(self.compute.precision, self.device), compiling:
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
        dtype = None if self.compute.precision == "float32" else torch.bfloat16
        cache = FeatureCache(feature_tiers(self.device, self.compute.feature_cache), self.train_mb_size, dtype)
        self.model.feature_cache = cache
        try:
            yield cache.number
        finally:
            self.model.feature_cache = None
            self.peak_feature_bytes = max(self.peak_feature_bytes or 0, cache.peak_bytes)


@contextmanager
def units_compiled(model: MultiHeadModel, batch: int) -> Iterator[None]:
    """Compile the model's units for batches of one size, for the length of a ``with`` block."""
    model.compiled = CompiledUnits(batch)
    try:
        yield
    finally:
        model.compiled = None
        # There is a limit to what torch remembers to have compiled, beyond which it silently does not.
        torch._dynamo.reset()


def computing_in(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Products in bfloat16 for the length of a ``with`` block, if ``precision`` says so; weights stay in float32."""
    if precision != "bf16":
        return nullcontext()
    # Without its cache of converted weights: the block lasts for many steps of the optimiser, which change them.
    return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)
