"""What a plugin implements: factories that are cheap to import, and what they build.

A *factory* is any object with the attributes named here (a module-level instance of a small class is usual). It says
what it is (``summary``), which options it takes (``options``), what a run will cost (``cost``, ``passes``) and builds
the real thing (``build``), which is where torch may be imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from seu_bench.config.options import Options
from seu_bench.config.run import ComputeConfig
from seu_bench.errors import RequestError

if TYPE_CHECKING:
    import torch
    from avalanche.training.templates import SupervisedTemplate
    from torch import Tensor, nn

    from seu_bench.config.protocol import CreationSchedule, ProtocolSpec, SearchSchedule
    from seu_bench.data.images import TaskImages
    from seu_bench.data.planning import StreamPlan
    from seu_bench.search_space import Genotype, SearchSpace
    from seu_bench.training.stage import ProgressCallback, Stage


@dataclass(frozen=True)
class Component:
    """A searcher or a creator that was chosen for a run, with its validated options.

    Attributes:
        kind: ``searcher`` or ``creator``.
        plugin, package: who registered it.
    """

    kind: str
    name: str
    factory: Any
    options: Options
    plugin: str
    package: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} (plugin {self.plugin!r} of package {self.package})"


class BackboneFactory(Protocol):
    """A network below the heads, for strategies that take one (``-o backbone=``)."""

    summary: str

    def build(self, channels: int, height: int, width: int, factor: float) -> tuple[nn.Module, int]:
        """The network, images ``[N, channels, height, width]`` to features ``[N, F]``, and ``F``.

        Args:
            factor: of the widths of its hidden layers; 1 is the published network.

        Raises:
            RequestError: the network does not fit such images.
        """


@dataclass(frozen=True)
class StrategyContext:
    """What a strategy's factory is given.

    Attributes:
        device: where to train, e.g. ``cpu`` or ``cuda``.
        searcher, creator: those chosen, for strategies that take them.
        backbone: the one chosen, for strategies whose options are
            :class:`~seu_bench.config.common_options.BackboneOptions`.
        on_progress: told of every stage's progress; ``None``: nobody watches.
        evaluator: Avalanche's ``EvaluationPlugin`` to hand to the strategy; ``None``: a silent one.
        compute: how stages compute. A strategy that has no such attribute itself computes in float32, and is refused
            any other precision.
    """

    plan: StreamPlan
    protocol: ProtocolSpec
    options: Options
    seed: int = 0
    device: str = "cpu"
    searcher: Component | None = None
    creator: Component | None = None
    backbone: BackboneFactory | None = None
    on_progress: ProgressCallback | None = None
    evaluator: Any = None
    compute: ComputeConfig = field(default_factory=ComputeConfig)


OptionsT = TypeVar("OptionsT", bound=Options)


def checked_options(context: StrategyContext, kind: type[OptionsT]) -> OptionsT:
    """The context's options, which must be of ``kind``.

    Raises:
        RequestError: they are not.
    """
    if not isinstance(context.options, kind):
        raise RequestError(
            f"the strategy needs options of the kind {kind.__name__}, not {type(context.options).__name__}"
        )
    return context.options


@dataclass(frozen=True)
class StageCost:
    """Forward passes on images of one stage of one task: those that train and those that only evaluate."""

    name: str
    task: int
    train: int
    evaluate: int

    @property
    def image_passes(self) -> int:
        """All of them."""
        return self.train + self.evaluate


@dataclass(frozen=True)
class Cost:
    """What a run will cost, computed without data, training or weights.

    Attributes:
        params_total: parameters after each task, all heads included; at most, where the strategy decides as it goes.
        params_total_min: the same at least.
        macs: multiply-accumulates per image on each task's path, forward; at most.
        macs_min: the same at least.
        stages: image passes by stage and task.
    """

    params_total: tuple[int, ...]
    params_total_min: tuple[int, ...]
    macs: tuple[int, ...]
    macs_min: tuple[int, ...]
    stages: tuple[StageCost, ...] = field(repr=False)

    @property
    def image_passes(self) -> int:
        """Image passes of learning, as in the record's metrics: all stages but evaluation."""
        return sum(stage.image_passes for stage in self.stages if stage.name != "evaluation")

    @property
    def all_passes(self) -> int:
        """Image passes of the run, evaluation included."""
        return sum(stage.image_passes for stage in self.stages)


class StrategyFactory(Protocol):
    """A strategy: who learns a stream.

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
        """The Avalanche strategy."""

    def cost(self, context: StrategyContext) -> Cost:
        """What a run in this context costs."""


@dataclass(frozen=True)
class SearchTask:
    """What a searcher may know: the current task's training images, and nothing of any other task.

    Attributes:
        images: the training split, already shuffled.
        num_classes: outputs of the head.
        space: the architectures to choose from.
        schedule: the protocol's budget.
        seed: all randomness of the search hangs on it.
    """

    images: TaskImages
    task: int
    num_classes: int
    space: SearchSpace
    schedule: SearchSchedule
    seed: int
    device: torch.device


class SearcherFactory(Protocol):
    """An extension-unit searcher: finds the architecture of the new units of a task (paper, algorithm 2)."""

    summary: str
    options: type[Options]

    def build(self, options: Any, task: SearchTask) -> Stage[Genotype]:
        """A stage whose result is the genotype found."""

    def estimate_passes(self, options: Any, schedule: SearchSchedule, train_images: int) -> tuple[int, int]:
        """Images passed forward to train and to evaluate in one search."""


class GrowingModel(Protocol):
    """What a creator sees of the super model.

    A *path* names a unit for each layer by its index in creation order; the newest candidate of a layer is the last.
    """

    @property
    def candidates(self) -> Sequence[int]:
        """Number of candidate units in each layer, old ones and the new one."""

    @property
    def has_new(self) -> Sequence[bool]:
        """Whether the last candidate of each layer is new, i.e. trainable."""

    @property
    def paths(self) -> Mapping[int, tuple[int, ...]]:
        """The path of each task that was learned."""

    def set_path(self, task: int, path: Sequence[int]) -> None:
        """Make ``path`` the one that ``task`` is computed by."""

    def features(self, x: Tensor, path: Sequence[int]) -> Tensor:
        """What a head sees of images ``[N, C, H, W]`` on ``path``: ``[N, F]``."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Everything stored, the new candidates and all heads included."""

    def new_units(self, task: int) -> nn.ModuleList:
        """All new units, in the order of their layers, and the task's head last, as one ``ModuleList``: what creation
        trains."""

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, num_classes]`` of the task's head on its path."""

    def train(self, mode: bool = True) -> Any:
        """Switch new units to training mode; old ones stay as they are."""

    def eval(self) -> Any:
        """Switch to evaluation mode."""


@dataclass(frozen=True)
class CreationTask:
    """What a creator may know: the model, and the current task's training images.

    Attributes:
        model: the super model, expanded by one new unit per layer.
        images: the training split, already shuffled.
    """

    model: GrowingModel
    images: TaskImages
    task: int
    schedule: CreationSchedule
    seed: int
    device: torch.device


class CreatorFactory(Protocol):
    """A task-model creator: chooses an old or the new unit in each layer (paper, algorithm 4)."""

    summary: str
    options: type[Options]

    def build(self, options: Any, task: CreationTask) -> Stage[tuple[int, ...]]:
        """A stage whose result is the path chosen."""

    def estimate_passes(self, options: Any, schedule: CreationSchedule, train_images: int) -> tuple[int, int]:
        """Images passed forward to train and to evaluate in one creation."""
