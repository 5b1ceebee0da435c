"""Interfaces of strategies, their components and backbones: light factories, the context of a run, estimated costs.

A *factory* is any object with the attributes named here; :class:`seu_bench.LazyFactory` makes one from functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from seu_bench.config.options import Options
from seu_bench.config.run import ComputeConfig
from seu_bench.errors import RequestError

if TYPE_CHECKING:
    from avalanche.training.templates import SupervisedTemplate
    from torch import nn

    from seu_bench.config.protocol import ProtocolSpec
    from seu_bench.data.dataset import InputShape
    from seu_bench.data.planning import StreamPlan
    from seu_bench.models.encoder import Encoder, EncoderInfo
    from seu_bench.training.stage import ProgressCallback, Stage


class BackboneFactory(Protocol):
    """A network below the heads, for strategies that take one (``-o backbone=``).

    One that stands for many has a method ``select(name)``, which returns the factory for ``-o backbone=KIND:NAME``, and
    ``example``, a name that contracts try. One that takes other samples than images has ``inputs``, the kinds that it
    takes, e.g. ``("image", "features")``.
    """

    summary: str

    def build(self, sample: InputShape, factor: float) -> tuple[nn.Module, int]:
        """Build a module from batches ``[N, *sample.shape]`` to features ``[N, F]``, and return it with ``F``.

        Args:
            sample: what the network takes, e.g. of images ``channels, height, width = sample.shape``.
            factor: multiplies the widths of hidden layers; 1 is the published network.

        Raises:
            RequestError: the network does not fit such samples.
        """


class EncoderFactory(Protocol):
    """A pretrained network that makes features of images (``[stream.input] encoder = NAME``).

    One that stands for many has a method ``select(name)``, which returns the factory for ``encoder = "KIND:NAME"``, and
    ``names(text)`` for ``seu-bench weights``: those with a text in them; ``None``: whose weights are on this machine.
    Where weights are to be fetched ``fetch()`` does so, and ``about()`` returns what is known before, as a dictionary
    with names of :class:`~seu_bench.models.encoder.EncoderInfo`. ``tensors`` says how they go: ``"by name"``.
    """

    summary: str

    def info(self) -> EncoderInfo:
        """Describe it without loading its weights.

        Raises:
            RequestError: they are not at hand; the hint says how they come.
        """

    def load(self) -> Encoder:
        """Build it with its weights."""


class ComponentFactory(Protocol):
    """Factory of a searcher or a creator: a part that some strategies take, such as ``seu``.

    It may have ``contract``, ``"package.module:Class"``, the tests that ``seu-bench check-plugin`` runs on it.

    Attributes:
        summary: one line for ``seu-bench list``.
        options: the class of its options.
    """

    summary: str
    options: type[Options]

    def build(self, options: Any, task: Any) -> Stage[Any]:
        """Build the stage of a task, given validated options and what the strategy hands it."""


class SpaceFactory(Protocol):
    """Factory of a search space of extension units (``-o space=``); ``seu_bench_kit`` says what a space is.

    It may have ``contract``, as a :class:`ComponentFactory`, and ``inputs``, as a :class:`BackboneFactory`.
    """

    summary: str

    def build(self, **options: Any) -> Any:
        """Build the space; none but ``darts_cell`` is given options."""


@dataclass(frozen=True)
class Component:
    """A searcher or a creator (``kind``) that was chosen for a run, with its validated options."""

    kind: str
    name: str
    factory: Any
    options: Options
    plugin: str
    package: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} (plugin {self.plugin!r} of package {self.package})"


@dataclass(frozen=True)
class StrategyContext:
    """A run as a strategy's factory receives it.

    Attributes:
        plan: tasks, numbers of classes and images, and the shape of an image.
        protocol: budgets of the benchmark's protocol.
        options: validated options, of the strategy's own class.
        seed: seed of everything random.
        device: device to train on, e.g. ``cpu`` or ``cuda``.
        searcher, creator: those chosen, for strategies that take them.
        backbone: the one chosen, for strategies whose options are :class:`~seu_bench.config.BackboneOptions`.
        encoder: the pretrained network of the stream, for methods that declare ``uses_encoder``, whose samples are
            images; those of others are its features.
        space: the one chosen, for strategies whose options are :class:`~seu_bench.config.SpaceOptions`.
        on_progress: callback to pass every stage's progress to; ``None`` for none.
        evaluator: Avalanche's ``EvaluationPlugin`` to pass to the strategy; ``None`` for a silent one.
        compute: precision, feature cache and compilation. A strategy without an attribute of this name computes in
            float32, and any other precision is refused.
        restores: whether the model will be filled with weights that were saved, so that none need be loaded before.
    """

    plan: StreamPlan
    protocol: ProtocolSpec
    options: Any
    seed: int = 0
    device: str = "cpu"
    searcher: Component | None = None
    creator: Component | None = None
    backbone: BackboneFactory | None = None
    encoder: Encoder | None = None
    space: SpaceFactory | None = None
    on_progress: ProgressCallback | None = None
    evaluator: Any = None
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    restores: bool = False


OptionsT = TypeVar("OptionsT", bound=Options)


def checked_options(context: StrategyContext, kind: type[OptionsT]) -> OptionsT:
    """Return the context's options; those of another class than ``kind`` are a RequestError."""
    if not isinstance(context.options, kind):
        raise RequestError(
            f"the strategy needs options of the kind {kind.__name__}, not {type(context.options).__name__}",
            remedy=f"derive {type(context.options).__name__} from {kind.__name__}",
        )
    return context.options


@dataclass(frozen=True)
class StageCost:
    """Image passes of one stage of one task.

    Attributes:
        name: of the stage, e.g. ``training``.
        task: 0-based.
        train: images passed forward and backward.
        evaluate: images passed forward only.
        flops, flops_min: floating-point operations, as in records, at most and at least. ``None``: not estimated.
    """

    name: str
    task: int
    train: int
    evaluate: int
    flops: int | None = None
    flops_min: int | None = None

    @property
    def image_passes(self) -> int:
        """Images that train and images that are only evaluated."""
        return self.train + self.evaluate


@dataclass(frozen=True)
class Cost:
    """Estimated cost of a run, computed without data, training or weights; ``_min`` is the same at least.

    Attributes:
        params_total: parameters after each task, all heads included; at most, where the strategy decides as it goes.
        macs: multiply-accumulates per image on each task's path, forward; at most.
        stages: image passes by stage and task.
        memory_bytes: bytes of all that is kept after each task, as in records; at most. Empty: not estimated.
        mask_bits: bits of binary masks after each task; at most. Empty: there are none.
    """

    params_total: tuple[int, ...]
    params_total_min: tuple[int, ...]
    macs: tuple[int, ...]
    macs_min: tuple[int, ...]
    stages: tuple[StageCost, ...] = field(repr=False)
    memory_bytes: tuple[int, ...] = ()
    memory_bytes_min: tuple[int, ...] = ()
    mask_bits: tuple[int, ...] = ()
    mask_bits_min: tuple[int, ...] = ()

    @property
    def image_passes(self) -> int:
        """Image passes of learning, as in the record's metrics: all stages but evaluation."""
        return sum(stage.image_passes for stage in self.stages if stage.name != "evaluation")

    @property
    def all_passes(self) -> int:
        """Image passes of the run, evaluation included."""
        return sum(stage.image_passes for stage in self.stages)

    @property
    def train_flops(self) -> int | None:
        """Operations of learning, as in the record's metrics, at most; ``None``: not estimated."""
        return self._operations("flops")

    @property
    def train_flops_min(self) -> int | None:
        """The same at least."""
        return self._operations("flops_min")

    def _operations(self, name: str) -> int | None:
        found = [getattr(stage, name) for stage in self.stages if stage.name != "evaluation" and stage.image_passes]
        return None if None in found else sum(found)


class StrategyFactory(Protocol):
    """Factory of a strategy, which learns a stream of tasks.

    A factory may also have ``scenarios``, the scenarios that it can learn; without it, only ``task``. One whose options
    are :class:`~seu_bench.config.TaskInferenceOptions` can learn the others where ``infer_task`` is given. It may have
    ``inputs``, the kinds of samples that it can learn, or a function that returns them, given its options; without it,
    those of its backbone, or images. Where ``learns_online()`` says so it learns streams of ``kind = "online"``, and
    otherwise not. It may have ``needs_validation``, whether it cannot do without validation images,
    or a function that says so, given its options; searchers and creators may, too. It may have
    ``reference``, a few words on what it is a reference of: its runs are then shown beside the rows of a leaderboard,
    never ranked. With ``reference_components``, names by kind, only runs with these are.

    Attributes:
        summary: one line for ``seu-bench list``.
        options: the class of its options.
        components: the default searcher and creator, e.g. ``{"searcher": "mdl"}``; empty where it takes none.
        presets: option values by name of a preset, chosen with the strategy's own option ``preset``; keys that begin
            with ``searcher.`` or ``creator.`` go to the components. Empty where there are none.
    """

    summary: str
    options: type[Options]
    components: Mapping[str, str]
    presets: Mapping[str, Mapping[str, object]]

    def build(self, context: StrategyContext) -> SupervisedTemplate:  # type: ignore[type-arg]
        """Build an Avalanche strategy; usually a :class:`~seu_bench.training.strategy.StagedStrategy`.

        Raises:
            RequestError: the options do not fit the run.
        """

    def cost(self, context: StrategyContext) -> Cost:
        """Estimate the cost of a run, without data and weights."""
