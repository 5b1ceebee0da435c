"""What searchers and creators are given, and how plugins offer them. No torch here: what builds them imports it."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from seu_bench.config.common_options import ScoringOptions
from seu_bench.config.protocol import Schedule, ScheduleOptions
from seu_bench.errors import PluginError
from seu_bench.plugin.registration import Deferred, LazyFactory
from seu_bench.training.interfaces import Component

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from seu_bench.config.protocol import CreationSchedule, SearchSchedule
    from seu_bench.data import InputShape
    from seu_bench.data.images import TaskImages
    from seu_bench_kit.search_space import SearchSpace
    from seu_bench_kit.units import Adapted


@dataclass(frozen=True)
class SearchTask:
    """Input of a searcher: the current task's training images; of other tasks nothing but the genotypes found for them.

    Attributes:
        images: training images, already shuffled.
        task: 0-based index of the task.
        num_classes: outputs of the head.
        input: shape of a sample.
        space: the architectures to choose from.
        schedule: the protocol's budget; ``options.applied_to(schedule)`` has the user's values in it.
        seed: seed of all randomness of the search.
        device: device to compute on.
        earlier: genotypes that were found for the tasks before, in their order.
    """

    images: TaskImages
    task: int
    num_classes: int
    input: InputShape
    space: SearchSpace
    schedule: SearchSchedule
    seed: int
    device: torch.device
    earlier: Sequence[Any] = ()


class GrowingModel(Protocol):
    """The super model as a creator sees it.

    A *path* names a unit for each layer by its index in creation order; the newest candidate of a layer is the last. In
    place of an index may stand an :class:`~seu_bench_kit.Adapted`, an old unit that the task wraps. Which path is set
    when a creation ends does not matter: the result is set, and the weights of the new units and of the head are those
    that training starts from. New units that are not on it are deleted.
    """

    @property
    def candidates(self) -> Sequence[int]:
        """Number of candidate units in each layer, old ones and the new one."""

    @property
    def has_new(self) -> Sequence[bool]:
        """Whether the last candidate of each layer is new, i.e. trainable."""

    @property
    def outputs(self) -> Sequence[int]:
        """Features (channels) of each layer's output."""

    @property
    def paths(self) -> Mapping[int, tuple[int, ...]]:
        """The path of each task that was learned, and of the present one as soon as one is set."""

    def set_path(self, task: int, path: Sequence[int | Adapted]) -> None:
        """Make ``path`` the one that ``task`` is computed by. No stage's state has it: set it in each epoch."""

    def features(self, x: Tensor, path: Sequence[int | Adapted]) -> Tensor:
        """Extract the features ``[N, F]`` that a head gets for images ``[N, C, H, W]`` on ``path``."""

    def unit(self, layer: int, index: int) -> nn.Module:
        """A unit by layer and index in creation order; -1 is the newest. What is old must stay as it is."""

    def can_adapt(self, layer: int, index: int) -> bool:
        """Whether a unit can be wrapped: it is old, and no wrapped one itself."""

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
    """Input of a creator: the super model, and the current task's training images.

    Attributes:
        model: the super model, expanded by one new unit per layer.
        images: training images, already shuffled.
        task: 0-based index of the task, and the number of its head.
        schedule: the protocol's budget; ``options.applied_to(schedule)`` has the user's values in it.
        seed: seed of all randomness of the creation.
        device: device to compute on.
        later_parameters: of the model's, those of heads of tasks to come, where nothing may hang on these.
    """

    model: GrowingModel
    images: TaskImages
    task: int
    schedule: CreationSchedule
    seed: int
    device: torch.device
    later_parameters: int = 0


class SearcherFactory(LazyFactory):
    """Factory of an extension-unit searcher (paper, algorithm 2): its stages result in a genotype of ``task.space``.

    Its ``build`` is called with ``options`` and a :class:`SearchTask`. ``estimate_passes`` announces the image passes
    of one stage, which may take fewer and never more: it bounds a stage by its epochs, whatever the number of layers,
    old units and classes.

    Example:
        ::

            @hookimpl
            def register_searchers(register: Register[SearcherFactory]) -> None:
                factory = SearcherFactory("one of mine", options=MyOptions, build="my_plugin.search:MySearch")
                register("mine", factory)
    """

    contract: ClassVar[str] = "seu_bench_kit.contracts:SearcherContract"


class CreatorFactory(LazyFactory):
    """Factory of a task-model creator (paper, algorithm 4): its stages result in a path, a unit for each layer.

    As :class:`SearcherFactory`, with a :class:`CreationTask`. One whose paths hold :class:`~seu_bench_kit.Adapted` has
    ``wrap``, by which a saved model is built again: ``wrap(genotype, unit, outputs)`` makes the module of a genotype,
    for an old unit whose output has so many features. ``largest`` is the genotype of the largest module that it makes,
    by which costs are estimated.
    """

    contract: ClassVar[str] = "seu_bench_kit.contracts:CreatorContract"

    def __init__(
        self, *arguments: Any, wrap: Any = None, largest: Mapping[str, Any] = MappingProxyType({}), **more: Any
    ) -> None:
        super().__init__(*arguments, **more)
        self.wrap = Deferred(wrap) if isinstance(wrap, str) else wrap
        self.largest = largest


def recalibration_passes(limit: int, images: int, batch_size: int) -> int:
    """Images, at most ``limit``, that estimate a network's BatchNorm statistics anew before it is scored: whole
    batches, or all images where there are fewer."""
    count = min(limit, images)
    return count - count % batch_size if count > batch_size else count


def schedule_passes(options: ScheduleOptions, schedule: Schedule, train_images: int) -> tuple[int, int]:
    """Image passes of most searchers and creators, whose epochs train on the first half and score the second.

    Args:
        options: the component's, which are applied to ``schedule``; with :class:`~seu_bench.config.ScoringOptions`
            each epoch recalibrates statistics on the first half before it scores.
        schedule: the protocol's.
        train_images: training images of the task; the second half has the odd one.

    Returns:
        Images that train, and images that are scored or passed forward to recalibrate.
    """
    applied, first = options.applied_to(schedule), train_images // 2
    limit = options.recalibration_images if isinstance(options, ScoringOptions) else 0
    score = train_images - first + recalibration_passes(limit, first, applied.batch_size)
    return applied.epochs * first, applied.epochs * score


def component_passes(component: Component, schedule: Schedule, train_images: int) -> tuple[int, int]:
    """Images that a searcher or a creator announces to pass forward, to train and to evaluate."""
    try:
        train, evaluate = component.factory.estimate_passes(component.options, schedule, train_images)
        return operator.index(train), operator.index(evaluate)
    except Exception as error:
        raise PluginError(
            f"{component} failed in estimate_passes(): {type(error).__name__}: {error}",
            remedy=f"choose another {component.kind}, or report it to the author of {component.package}",
        ) from error
