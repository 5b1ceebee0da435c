"""Models with one head per task; all heads are made at the start, and the task of every image is known."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import torch
from avalanche.models import MultiTaskModule
from torch import Tensor, nn

from seu_bench.data.images import sample_ids_of
from seu_bench.errors import RunError
from seu_bench.models.answers import Answers, path_checksum
from seu_bench.models.walk import lies_on

if TYPE_CHECKING:
    from seu_bench.models.feature_cache import FeatureCache


class MultiHeadModel(MultiTaskModule):
    """Base of models with a head per task: a subclass has ``forward_single_task`` and ``task_module``.

    Avalanche's own forward pads narrower heads with logit 0, which is a wrong loss and a wrong argmax where heads
    differ in width; this one pads with the lowest finite number, and a batch of one task is not padded at all.

    Args:
        classes: outputs of each task's head.

    Attributes:
        classes_per_task: the same, as a tuple.
        feature_cache: cached outputs of frozen layers while a task is learned.

    """

    #: Whether some layers are frozen while later tasks are learned, whose outputs come from :meth:`cached_features`.
    has_frozen_layers = False

    #: Whether a learned task's logits hang on what :meth:`path_checksum` looks at alone, which no later task is to
    #: change. They are then computed again only where it did: see :class:`~seu_bench.models.answers.Answers`.
    paths_stay: bool = False

    feature_cache: FeatureCache | None = None

    #: Bits of binary masks that tell tasks apart, one for each weight or unit that a mask takes or leaves. Real numbers
    #: that are learned, such as embeddings, are parameters and count there.
    mask_bits: int = 0

    def __init__(self, classes: Sequence[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.classes_per_task = tuple(classes)

    def packed_masks(self) -> Sequence[Tensor]:
        """Return the tensors that hold the masks; by default none."""
        return ()

    def adaptation(self, experience: object) -> None:
        """Do not adapt: the strategy alone grows the model."""

    def to(self, *arguments: Any, **kwargs: Any) -> Self:
        """Move as torch does; where all of it is on the device already, as before each task, nothing is done."""
        alone = len(arguments) == 1 and not kwargs and isinstance(device := arguments[0], torch.device)
        if alone and lies_on(self, device):
            return self
        return super().to(*arguments, **kwargs)

    def begin_task(self, task: int) -> None:
        """Take note that ``task`` is learned from now on; a run that is resumed may call it again for the same task."""

    def forward(self, images: Tensor, task_labels: Tensor | int | None) -> Any:
        """Logits ``[N, num_classes]``; of the widest head present where a batch mixes tasks.

        Args:
            task_labels: ``[N]`` task of each image, best on the CPU, or one task for all. ``None``: the logits of all
                tasks that were learned, by task; Avalanche's distilling strategies ask for it.
        """
        if task_labels is None:
            return self.forward_all_tasks(images)
        first = task_labels if isinstance(task_labels, int) else int(task_labels[0])
        # Loaders expand one number: then there is nothing to compare.
        if not isinstance(task_labels, int) and task_labels.stride(0) and not bool((task_labels == first).all()):
            return self.forward_mixed(images, task_labels)
        ids = sample_ids_of(images)
        if ids is None or not isinstance(ids.owner, Answers) or self.training:
            return self.forward_single_task(images, first)
        compute = partial(self.forward_single_task, images, first)
        return ids.owner.get(ids.numbers, first, partial(self.path_checksum, first), compute)

    def forward_mixed(self, images: Tensor, task_labels: Tensor) -> Tensor:
        """Logits ``[N, widest head present]`` of a batch of several tasks."""
        return by_task(images, task_labels, self.classes_per_task, self.forward_single_task)

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        """Logits ``[N, classes_per_task[task]]`` of one task."""
        raise NotImplementedError(f"{type(self).__name__} has no forward_single_task(x, task_label)")

    def task_module(self, task: int) -> nn.Module:
        """Everything on the path of ``task``: its parameters are the task's active ones."""
        raise NotImplementedError(f"{type(self).__name__} has no task_module(task)")

    def path_checksum(self, task: int) -> int:
        """A number that is another where anything is that a learned task's logits hang on; by default that of its
        :meth:`task_module`."""
        return path_checksum(self.task_module(task))

    def trainable_module(self, task: int) -> nn.Module:
        """The part of it that is trained when ``task`` is learned; all of it by default."""
        return self.task_module(task)

    def alone(self, task: int) -> MultiHeadModel:
        """The model to export ``task`` from; itself by default.

        A model that computes a task with a part of its weights returns a copy that has no others, so that neither they
        nor masks are in the file.
        """
        return self

    def compiling(self, batch: int) -> AbstractContextManager[None]:
        """Compile what is worth it for batches of one size, for the length of a ``with`` block; by default nothing."""
        return nullcontext()

    def cached_features(
        self, x: Tensor, key: Hashable, compute: Callable[[Tensor], tuple[Tensor, ...]], *, keep: bool = True
    ) -> tuple[Tensor, ...]:
        """Outputs of frozen layers, computed without gradients or read back from the cache.

        Args:
            x: images ``[N, C, H, W]``, as they came in a batch.
            key: names the function; it must give the same for the same image.
            compute: images -> tensors ``[N, ...]``.
            keep: whether the outputs are cached from now on, where they are not.
        """
        if self.feature_cache is not None:
            return self.feature_cache.get(x, key, compute, keep=keep)
        with torch.no_grad():
            return compute(x)

    def architecture(self) -> dict[str, Any]:
        """Plain values, JSON's, from which :meth:`load_architecture` makes the same layers; empty if nothing grows."""
        return {}

    def load_architecture(self, architecture: Mapping[str, Any]) -> None:
        """Grow a new model to ``architecture``, before ``load_state_dict``; that of another model is a ValueError."""
        if architecture:
            raise ValueError(f"a {type(self).__name__} does not grow")


def by_task(
    inputs: Tensor, task_labels: Tensor, classes: Sequence[int], answer: Callable[[Tensor, int], Tensor]
) -> Tensor:
    """``answer(rows, task)`` for the rows ``[N, ...]`` of each task, put together and padded with the lowest number."""
    if not len(inputs):
        raise ValueError("a batch needs at least one image")
    tasks, counts = (it.tolist() for it in task_labels.unique(return_counts=True))
    # Rows of one task side by side: gradients go back through one selection, not through one for each task. They are
    # copied, as products of rows that begin anywhere in memory round otherwise.
    order = task_labels.argsort(stable=True).to(inputs.device, non_blocking=True)
    parts = [answer(rows.clone(), task) for rows, task in zip(inputs[order].split(counts), tasks, strict=True)]
    width = max(classes[task] for task in tasks)
    low = torch.finfo(parts[0].dtype).min
    parts = [it if it.shape[1] == width else nn.functional.pad(it, (0, width - it.shape[1]), value=low) for it in parts]
    return torch.empty_like(logits := torch.cat(parts)).index_copy(0, order, logits)


class NotLearnedError(RunError):
    """A task was asked for that was not learned."""


def out_of_turn(task: int, learned: int) -> RunError:
    """Return the error of a model that should learn a task that is not the next one."""
    return RunError(
        f"task {task} cannot follow {learned} learned ones: each task is learned once, in the stream's order",
        remedy="train on benchmark.train_stream from its beginning, with a strategy made for it",
    )


def not_learned(task: int, part: str = "path") -> NotLearnedError:
    """Return the error of a model that is asked for a task it did not learn."""
    return NotLearnedError(
        f"task {task} has no {part} yet: it was not learned",
        remedy="evaluate learned tasks only, e.g. strategy.eval(benchmark.test_stream[: task + 1])",
    )
