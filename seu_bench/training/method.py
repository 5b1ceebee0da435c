"""Base of methods: a way of learning tasks one after another as one class, which is its mathematics and no more."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Final, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from seu_bench.config.common_options import BackboneOptions, TrainingOptions
from seu_bench.config.options import Options
from seu_bench.config.streams import SCENARIOS, InputKind
from seu_bench.data.avalanche import MixedBatches
from seu_bench.data.images import TaskImages
from seu_bench.data.planning import StreamPlan
from seu_bench.errors import PluginError, RunError
from seu_bench.models.backbone import BackboneModel
from seu_bench.models.flops import RepeatedBatches
from seu_bench.models.modes import modes_kept
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.models.sizes import count_parameters
from seu_bench.models.walk import parameters_of
from seu_bench.training.backbones import backbone_model
from seu_bench.training.interfaces import Cost, StrategyContext
from seu_bench.training.memories import Memory
from seu_bench.training.rehearsal import on_meta
from seu_bench.training.stage import EpochlessStage, Phase, TaskData
from seu_bench.training.state import can_be_saved, checkpoint_error_context, get_state, grown
from seu_bench.training.strategy import StagedStrategy
from seu_bench.utils.seeding import RandomState, derive_seed

#: What a method overrides to do something where a task begins or ends, or with a task's images as a whole.
_AT_BOUNDARIES: Final = (
    "before_task",
    "training_images",
    "after_task",
    "phases",
    "trained_module",
    "training_stage",
    "train",
)


class Method(StagedStrategy):
    """Base of methods: override what differs from plain training on one task after another.

    It stays an Avalanche strategy, and is offered under its :attr:`name` by ``--plugin FILE``, by
    ``seu_bench.run(MyMethod)``, and by an entry point of the group ``seu_bench.methods``.

    Whatever :meth:`setup` assigns is the method's state, which is saved, restored, and counted among the bytes that it
    keeps: tensors, plain values, mappings and sequences of these, modules, memories, torch generators, and any object
    with ``state_dict()`` and ``load_state_dict()``. What is none, such as a constant, begins with an underscore.

    Attributes:
        name: by which it is offered; empty: it is not.
        title: display name in tables, as papers write it, e.g. ``"ER-ACE"``; empty: the name. No class inherits it.
        citation: BibTeX entries of its papers, or ``package:key`` of those in ``references.bib`` of a package, several
            divided by blanks; not inherited, either.
        scenarios: those that it can learn.
        inputs: kinds of samples that it can learn, of those that its backbone takes; ``None``: all of these, and images
            where it takes no backbone.
        needs_validation: whether it chooses by validation images, and cannot do without; or a function that says so,
            given its options.
        uses_encoder: whether it learns with the pretrained network of a stream, ``context.encoder``, and gets images;
            otherwise the network's features are its samples.
        trains_encoder: whether its model has a trained copy of that network, in place of which it is counted.
        online: whether it learns streams of ``kind = "online"``, where nothing may hang on a task's beginning and end;
            ``None``: where it is trained once on the whole stream, or overrides nothing that is done there.
        reference: what it is a reference of, for one that is never ranked; ``None``: a method.
        presets: option values by name of a preset.
        check_options: options with which it learns the tiny streams of ``seu-bench check-plugin``.
        after_task_stage: name of the stage of :meth:`after_task`, on which its seed hangs.
        options: of the run.
        plan: tasks, classes, and numbers and shape of images of the stream.

    Example:
        ::

            class Replay(Method):
                "Experience replay: each batch is joined by remembered images."

                name = "my_replay"

                def setup(self):
                    self.memory = Reservoir(200)

                def batch_loss(self, x, y, task, logits):
                    loss = cross_entropy(logits, y)
                    if len(self.memory):
                        old = self.memory.draw(len(y))
                        loss = loss + cross_entropy(self.replay(old.x, old.task), old.y)
                    self.memory.add(x=x, y=y, task=task)
                    return loss
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    citation: ClassVar[str] = ""
    #: Class of its options, by default those of a backbone and its training. Without
    #: :class:`~seu_bench.config.TrainingOptions` nothing is trained by SGD.
    Options: ClassVar[type[Options]] = BackboneOptions
    scenarios: ClassVar[Sequence[str]] = SCENARIOS
    inputs: ClassVar[tuple[InputKind, ...] | None] = None
    needs_validation: ClassVar[bool | staticmethod[..., bool]] = False
    uses_encoder: ClassVar[bool] = False
    trains_encoder: ClassVar[bool] = False
    online: ClassVar[bool | None] = None
    reference: ClassVar[str | None] = None
    components: ClassVar[Mapping[str, str]] = {}
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {}
    check_options: ClassVar[Mapping[str, object]] = {}
    after_task_stage: ClassVar[str] = "after_task"

    options: Any
    plan: StreamPlan

    # ------------------------------------------------------------------ overridden by methods

    def setup(self) -> None:
        """Assign the method's state; called once, when the model is there and nothing is learned yet."""

    def before_task(self, task: TaskData) -> None:
        """Prepare a task, before it is trained.

        A run that is resumed within the task calls it again: it draws the same, and finds the state as it was, but the
        weights of the checkpoint. What it makes of weights, such as a teacher, is to be state, which is restored then.
        """

    def training_images(self, task: TaskData) -> Sequence[TaskImages]:
        """Return the images to train on, in tables of one task each; by default the task's own. Which of them a batch
        has is told by :attr:`batch_positions`."""
        return [task.train]

    def extend_batch(self, x: Tensor, y: Tensor, task: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return images, labels and task labels to train on, before they pass the network, where they are counted; e.g.
        with remembered images behind the new ones. Arguments are as of :meth:`batch_loss`."""
        return x, y, task

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        """Return the loss of a batch in training, a scalar; by default cross-entropy.

        Args:
            x: images ``[N, C, H, W]``.
            y: labels ``[N]``.
            task: task labels ``[N]``, on the CPU.
            logits: ``[N, outputs]`` of the images.
        """
        return cross_entropy(logits, y)

    def after_task(self, task: TaskData) -> None:
        """Do what the method does when a task is learned, in a stage that is timed and counted.

        Images that pass the network are counted by :meth:`count_images`, or passed by :meth:`replay`.
        """

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return the logits ``[N, outputs]`` that answer for images in evaluation; by default those of the network.

        It may use the model alone, of which a saved run is made again: keep tensors there by :meth:`buffer`.

        Args:
            x: images ``[N, C, H, W]``.
            task: whose path answers; 0 where one head answers for all.
        """
        logits: Tensor = self.network.logits(x, task)
        return logits

    def needs_whole_stream(self) -> str | None:
        """Say why all tasks must be known before the first is learned, so that none can follow the last, and which
        option helps; ``None``: further ones may, and what is then learned is the same bit by bit as if they had been
        known.

        It is asked before anything is learned, and hangs on options and plan alone. Override it where something that
        cannot grow hangs on the number of tasks, such as a memory that is divided among them.
        """
        if self.whole_stream:
            return "it is trained once on the whole stream"
        return None if self.resumable else "its plugins have no state that can be saved"

    def lengthen(self, name: str, state: Any, added: Sequence[str]) -> Any:
        """Return the state of an attribute of :meth:`setup`, saved behind the last task of a stream, as it is in one of
        which further tasks are known, for which parameters of the model were ``added``. Where it is called, this method
        is set up for the longer stream, so that its own attribute shows the shape to grow to.

        By default a module keeps the rows that it has here. Tensors by names of weights, such as importances, get what
        :meth:`setup` made here, or zeros. Anything else stays as it is.
        """
        if isinstance(present := getattr(self, name, None), nn.Module):
            own = present.state_dict()
            return own | {key: grown(rows, own[key]) for key, rows in state.items()}
        weights = self.model.state_dict()
        if not isinstance(state, Mapping) or not state or not state.keys() <= weights.keys():
            return state
        made = {key: torch.zeros_like(weights[key]) for key in (*state, *added)} | (present or {})
        return made | {key: grown(rows, made[key]) for key, rows in state.items()}

    @classmethod
    def make_model(cls, context: StrategyContext) -> MultiHeadModel:
        """Return the network that learns; by default the backbone that was chosen, with the heads of the scenario."""
        return backbone_model(context)

    # ------------------------------------------------------------------ for methods

    @property
    def network(self) -> BackboneModel:
        """The model, where it is a backbone with heads."""
        if not isinstance(self.model, BackboneModel):
            raise TypeError(f"{type(self).__name__} has a {type(self.model).__name__} for a model, no BackboneModel")
        return self.model

    @property
    def batch_positions(self) -> Tensor:
        """Positions ``[N]`` of the batch's images in :meth:`training_images`, one table behind another."""
        positions: Tensor = self.mbatch[2]
        return positions

    def replay(self, x: Tensor, task: Tensor) -> Tensor:
        """Return logits ``[N, widest head]`` of other images than the batch's, and count them as passed."""
        self.count_images(len(x))
        logits: Tensor = self.model(x, task)
        return logits

    def counted(self, images: TaskImages, batch_size: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """Iterate over a table of images once, in their order, and count what is computed with each batch of images
        ``[b, C, H, W]`` and labels ``[b]``; by default as many as in evaluation."""
        with RepeatedBatches() as repeated:
            for x, y in images.batches(batch_size or self.eval_mb_size, shuffle=False):
                repeated.begin(len(y))
                yield x, y
                repeated.end(len(y))
                self.count_images(len(y))

    @contextmanager
    def measuring(self, *, training: bool = False) -> Iterator[None]:
        """Measure the network as it is for the length of a ``with`` block, after which all modes are as before. Layers
        with running statistics, such as BatchNorm, are in evaluation mode; the others where it is not ``training``."""
        with modes_kept(self.model):
            self.model.train(training)
            for module in self.model.modules():
                if getattr(module, "track_running_stats", False):
                    module.eval()
            yield

    def drawing(self, purpose: str, task: TaskData) -> AbstractContextManager[None]:
        """Draw under a seed of its own for the length of a ``with`` block, ``with self.drawing("expand", task):``."""
        return RandomState(self.seed_for(purpose, task.index), self.device).active()

    def buffer(self, name: str, tensor: Tensor) -> None:
        """Keep a tensor in the model, as ``self.model.NAME``, for :meth:`predict`; called in :meth:`setup`."""
        self.model.register_buffer(name, tensor.to(self.device))

    def batch_signature(self) -> Any:
        """Return what tells batches of different cost apart: the number of images and the sizes of all memories."""
        return len(self.mb_y), *self.memory_sizes

    @classmethod
    def learns_online(cls) -> bool:
        """Whether it can learn a stream whose tasks have no clear boundaries, by :attr:`online` or by what it is."""
        if cls.online is None:
            return cls.whole_stream or all(getattr(cls, it) is getattr(Method, it) for it in _AT_BOUNDARIES)
        return cls.online

    @classmethod
    def forecast(cls, context: StrategyContext) -> Cost:
        """Forecast the cost of a run, without data and weights; by default by a rehearsal."""
        from seu_bench.training.rehearsal import rehearse

        return rehearse(cls.build, context)

    @classmethod
    def fixed_parameters(cls, context: StrategyContext) -> int | None:
        """Count the parameters of a network that does not grow; ``None``: phases of its own may let it grow."""
        if cls.phases is not Method.phases:
            return None
        return count_parameters(on_meta(lambda: cls.make_model(context)))

    # ------------------------------------------------------------------ what core does with it

    @classmethod
    def build(cls, context: StrategyContext) -> Self:
        """Build the method of a run, as :meth:`begin`."""
        with RandomState(derive_seed(context.seed, "model")).active():
            model = cls.make_model(context)
        return cls.of(context, model=model).begin(context.options, context.plan)

    def begin(self, options: Any, plan: StreamPlan) -> Self:
        """Set a method up that was made by its constructor, before its first task, and return it; that :meth:`setup`
        assigns what cannot be saved is a PluginError."""
        self.options, self.plan = options, plan
        before = set(vars(self))
        self.setup()
        names = [name for name in vars(self) if name not in before and not name.startswith("_")]
        for name in names:
            if not can_be_saved(value := getattr(self, name)):
                raise PluginError(
                    f"{type(self).__name__}.setup() assigns {name!r}, a {type(value).__name__}, which cannot be saved",
                    where=getattr(sys.modules.get(type(self).__module__), "__file__", type(self).__module__),
                    remedy=f"give it state_dict() and load_state_dict(), or call it '_{name}' if it never changes",
                )
        self.state_attributes = (*type(self).state_attributes, *names)
        if type(self).predict is not Method.predict:
            self.network.predictor = self.predict
        return self

    def lengthened(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return a state behind the last task of a stream as a method made for a longer one can load it; afterwards
        this one, which is made for the longer one as well, is of no use. A CheckpointError: the state does not fit.

        Tensors of the model keep the rows that they have more here; :meth:`lengthen` says what becomes of the rest.
        """
        with checkpoint_error_context("the longer stream"):
            if state["stage"] is not None:
                raise ValueError("it is within a task")
            self.model.load_architecture(state["architecture"])
            present, named = self.model.state_dict(), dict(self.model.named_parameters())
            added = [name for name in named if name not in state["weights"]]  # in the model's order: files are equal
            return {
                **state,
                "weights": present | {name: grown(rows, present[name]) for name, rows in state["weights"].items()},
                "frozen": [*state["frozen"], *(name for name in added if not named[name].requires_grad)],
                "own": {name: self.lengthen(name, value, added) for name, value in state["own"].items()},
            }

    @property
    def memory_sizes(self) -> tuple[int, ...]:
        """Images in each memory."""
        return tuple(map(len, self._memories))

    @property
    def _memories(self) -> list[Memory]:
        return [it for it in (getattr(self, name) for name in self.state_attributes) if isinstance(it, Memory)]

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Return training, where there is SGD, and :meth:`after_task`, where a method has it."""
        for memory in self._memories:
            memory.begin_task(task.train)
        phases = [Phase(lambda: self._begin_training(task))] if isinstance(self.options, TrainingOptions) else []
        if type(self).after_task is not Method.after_task:
            phases.append(self.step(self.after_task_stage, task, self.after_task))
        return phases

    def step(self, name: str, task: TaskData, do: Callable[[TaskData], None]) -> Phase:
        """Return a phase without epochs, such as a pass over all images before they are trained on: a stage of this
        ``name``, which is timed, counted and seeded, that calls ``do(task)``, which changes the method's state."""
        return Phase(lambda: Step(self, name, task, do))

    def _begin_training(self, task: TaskData) -> Any:
        with self.drawing("before_task", task):
            self.before_task(task)
        stage = self.training_stage(task)
        if type(self).training_images is not Method.training_images:
            self.dataloader = MixedBatches(self.training_images(task), self.train_mb_size)
        return stage

    def trained_module(self, task: TaskData) -> nn.Module:
        """Return all of a backbone with its heads, which replay may reach; otherwise what trains of the task's path."""
        return self.model if isinstance(self.model, BackboneModel) else self.model.trainable_module(task.index)

    @property
    def extends_batches(self) -> bool:
        """Whether :meth:`extend_batch` does anything."""
        return type(self).extend_batch is not Method.extend_batch

    def _unpack_minibatch(self) -> None:
        super()._unpack_minibatch()
        if self.is_training and self.extends_batches:
            self.mbatch = list(self.extend_batch(self.mb_x, self.mb_y, self.mb_task_id))

    def criterion(self) -> Tensor:
        """Return :meth:`batch_loss` and :meth:`penalty` in training; in evaluation cross-entropy."""
        if not self.is_training:
            return super().criterion()
        loss, penalty = self.batch_loss(self.mb_x, self.mb_y, self.mb_task_id, self.mb_output), self.penalty()
        if not isinstance(loss, Tensor) or loss.dim():
            found = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"{loss!r:.60}"
            raise RunError(
                f"{type(self).__name__}.batch_loss() returned {found}, no scalar",
                remedy="return the mean over the batch, a tensor of no dimension",
            )
        return loss if penalty is None else loss + penalty

    def kept(self) -> Mapping[str, Any]:
        """Return the model and the state, but for generators; of memories the images that they stand for."""
        model = self.model
        held: dict[str, Any] = {"parameters": parameters_of(model), "masks": list(model.packed_masks())}
        held["buffers"] = model
        for name in self.state_attributes:
            value = getattr(self, name)
            if isinstance(value, Memory):
                for kind, part in value.kept(self.plan).items():
                    held[kind] = [held.get(kind, ()), part]
            elif not isinstance(value, torch.Generator):
                held[name] = get_state(value)
        return held


class Step(EpochlessStage[None]):
    """A part of learning a task without epochs; a run that is stopped within it does it again."""

    def __init__(self, method: Method, name: str, task: TaskData, do: Callable[[TaskData], None]) -> None:
        super().__init__(name, task.index, method.seed_for(name, task.index), method.device)
        self.do, self.data = do, task

    def result(self) -> None:
        """Do it."""
        self.do(self.data)
