"""What a strategy keeps from task to task, and the bytes that it takes.

Counted is what a deployment without access to old data would have to keep to answer every task and to learn another
one: parameters and buffers of the model, and all that earlier tasks left for later ones, such as exemplars, importances
and anchors. What a task makes and its end throws away (gradients, optimisers, cached features) is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from avalanche.evaluation import PluginMetric
from torch import Tensor, nn

from seu_bench.data.images import TaskImages
from seu_bench.models.sizes import count_bytes

#: Bytes of an image's label and of the number of its task.
LABEL_BYTES: Final = 2


@dataclass(frozen=True)
class KeptImages:
    """Training images kept beyond their task, with their labels, e.g. ``KeptImages(200, (1, 28, 28))``.

    However a strategy keeps them, as tensors or as places in a stream, a deployment has to keep the images: 8 bits for
    each pixel and channel, and a byte each for label and task. The shape has channels as the data set has them, before
    grey images are repeated, height and width.
    """

    count: int
    shape: tuple[int, ...]

    @classmethod
    def of(cls, images: TaskImages) -> Self:
        """All images of a split or of a part of one."""
        return cls(len(images), tuple(images.store.shape[1:]))

    @property
    def nbytes(self) -> int:
        """Bytes of images and labels."""
        return self.count * (math.prod(self.shape) + LABEL_BYTES)


def has_state(it: Any) -> bool:
    """Return whether what is attached can be saved and restored with a run."""
    return hasattr(it, "state_dict") and hasattr(it, "load_state_dict")


def bytes_by_kind(kept: Mapping[str, Any]) -> dict[str, int]:
    """Count what is kept, in bytes by kind.

    Args:
        kept: by kind, in any nesting of mappings and sequences, tensors, modules (their parameters and persistent
            buffers), :class:`~seu_bench.data.images.TaskImages` and :class:`KeptImages`. Other values, such as numbers
            and names, are not counted.

    Returns:
        Bytes of each kind that takes any. Memory that tensors share is counted once, for the first kind that has it.
    """
    found: dict[str, int] = {}
    tensors: list[Tensor] = []
    for kind, value in kept.items():
        parts, before = list(_parts(value)), count_bytes(tensors)
        tensors += [part for part in parts if isinstance(part, Tensor)]
        images = sum(part.nbytes for part in parts if isinstance(part, KeptImages))
        if taken := count_bytes(tensors) - before + images:
            found[kind] = taken
    return found


def memory_of(strategy: Any) -> dict[str, int] | None:
    """Count what an Avalanche strategy keeps between two tasks, in bytes by kind; ``None`` where it does not say so, as
    Avalanche's own do not, nor attached plugins without ``state_dict()``.
    """
    kept: Mapping[str, Any] = getattr(strategy, "kept", dict)()
    plugins = [it for it in getattr(strategy, "attached", {}).values() if not isinstance(it, PluginMetric)]
    if not kept or not all(map(has_state, plugins)):
        return None
    return bytes_by_kind({**kept, "attached": [plugin.state_dict() for plugin in plugins]})


def _parts(value: Any) -> Iterator[Tensor | KeptImages]:
    if isinstance(value, nn.Module):
        value = value.state_dict()
    if isinstance(value, Tensor | KeptImages):
        yield value
    elif isinstance(value, TaskImages):
        yield KeptImages.of(value)
    elif isinstance(value, Mapping | list | tuple | set | frozenset):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _parts(part)
