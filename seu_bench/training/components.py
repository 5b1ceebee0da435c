"""Interfaces of searchers and creators: light factories, and the values that they receive.

A *factory* is any object with the attributes named here; :class:`seu_bench.LazyFactory` makes one from functions. It
has a ``summary``, the class of its ``options``, an announcement of its cost, and ``build``, where torch is imported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from seu_bench.config.options import Options

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from seu_bench.config.protocol import CreationSchedule, SearchSchedule
    from seu_bench.data.images import TaskImages
    from seu_bench.search_space import Genotype, SearchSpace
    from seu_bench.training.stage import Stage

TaskT_contra = TypeVar("TaskT_contra", contravariant=True)
ScheduleT_contra = TypeVar("ScheduleT_contra", contravariant=True)


@dataclass(frozen=True)
class Component:
    """A searcher or a creator that was chosen for a run, with its validated options.

    Attributes:
        kind: ``searcher`` or ``creator``.
        name: name that it is registered under.
        factory: its :class:`SearcherFactory` or :class:`CreatorFactory`.
        options: validated options.
        plugin: name of the plugin that registered it.
        package: package of that plugin.
    """

    kind: str
    name: str
    factory: Any
    options: Options
    plugin: str
    package: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r} (plugin {self.plugin!r} of package {self.package})"


@dataclass(frozen=True)
class SearchTask:
    """Input of a searcher: the current task's training images; of other tasks nothing but the genotypes found for them.

    Attributes:
        images: training images, already shuffled.
        task: 0-based index of the task.
        num_classes: outputs of the head.
        space: the architectures to choose from.
        schedule: the protocol's budget; ``options.applied_to(schedule)`` has the user's values in it.
        seed: seed of all randomness of the search.
        device: device to compute on.
        earlier: genotypes that were found for the tasks before, in their order.
    """

    images: TaskImages
    task: int
    num_classes: int
    space: SearchSpace
    schedule: SearchSchedule
    seed: int
    device: torch.device
    earlier: Sequence[Genotype] = ()


class GrowingModel(Protocol):
    """The super model as a creator sees it.

    A *path* names a unit for each layer by its index in creation order; the newest candidate of a layer is the last.
    Which path is set when a creation ends does not matter: the result is set, and the weights of the new units and of
    the head are those that training starts from. New units that are not on it are deleted.
    """

    @property
    def candidates(self) -> Sequence[int]:
        """Number of candidate units in each layer, old ones and the new one."""

    @property
    def has_new(self) -> Sequence[bool]:
        """Whether the last candidate of each layer is new, i.e. trainable."""

    @property
    def paths(self) -> Mapping[int, tuple[int, ...]]:
        """The path of each task that was learned, and of the present one as soon as one is set."""

    def set_path(self, task: int, path: Sequence[int]) -> None:
        """Make ``path`` the one that ``task`` is computed by. No stage's state has it: set it in each epoch."""

    def features(self, x: Tensor, path: Sequence[int]) -> Tensor:
        """Extract the features ``[N, F]`` that a head gets for images ``[N, C, H, W]`` on ``path``."""

    def unit(self, layer: int, index: int) -> nn.Module:
        """A unit by layer and index in creation order; -1 is the newest. What is old must stay as it is."""

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
    """

    model: GrowingModel
    images: TaskImages
    task: int
    schedule: CreationSchedule
    seed: int
    device: torch.device


class ComponentFactory(Protocol[TaskT_contra, ScheduleT_contra]):
    """Factory of a searcher or a creator.

    Attributes:
        summary: one line for ``seu-bench list``.
        options: the class of its options.
    """

    summary: str
    options: type[Options]

    def build(self, options: Any, task: TaskT_contra) -> Stage[Any]:
        """Build the search or the creation of a task.

        Args:
            options: validated options.
            task: images, budget and seed, with the search space or the model.

        Returns:
            A stage whose result is what is searched or created.
        """

    def estimate_passes(self, options: Any, schedule: ScheduleT_contra, train_images: int) -> tuple[int, int]:
        """Announce the image passes of one stage, which it may not exceed; fewer are allowed.

        It is the same for every task of so many images, so that it must hold whatever the number of layers, old units
        and classes: bound a stage by its epochs.

        Args:
            options: validated options.
            schedule: the protocol's.
            train_images: number of training images of the task.

        Returns:
            Images passed forward to train, and to evaluate.
        """


class SearcherFactory(ComponentFactory[SearchTask, "SearchSchedule"], Protocol):
    """An extension-unit searcher (paper, algorithm 2): its stages result in a genotype of ``task.space``."""


class CreatorFactory(ComponentFactory[CreationTask, "CreationSchedule"], Protocol):
    """A task-model creator (paper, algorithm 4): its stages result in a path, the index of a unit for each layer."""
