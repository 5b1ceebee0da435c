"""States of tensors and plain values: checked before they are saved, and loaded with errors that name the receiver."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from seu_bench.errors import CheckpointError, SeuBenchError


def not_finite(state: Any, name: str = "") -> str | None:
    """Return the first place of a tensor that holds NaN or infinity, e.g. ``strategy.weights.head``; ``None``: nowhere.

    ``state`` nests mappings, lists and tuples of tensors and plain values; its own place is ``name``.
    """
    if isinstance(state, torch.Tensor):
        return None if not state.is_floating_point() or bool(state.isfinite().all()) else name
    if isinstance(state, Mapping):
        named = [(f"{name}.{key}" if name else str(key), part) for key, part in state.items()]
    elif isinstance(state, list | tuple):
        named = [(f"{name}[{index}]", part) for index, part in enumerate(state)]
    else:
        return None
    found = (not_finite(part, place) for place, part in named)
    return next((place for place in found if place is not None), None)


@contextlib.contextmanager
def fitting(what: str) -> Iterator[None]:
    """Context in which any error of loading a state becomes a :class:`~seu_bench.errors.CheckpointError`.

    Args:
        what: receiver of the state, as the message names it.

    Raises:
        CheckpointError: the block failed.
    """
    try:
        yield
    except SeuBenchError:
        raise
    except Exception as error:
        first = next(iter(str(error).splitlines()), "")
        raise CheckpointError(
            f"the state does not fit {what}: {type(error).__name__}: {first}",
            remedy="it is of another version of seu-bench or of a plugin; begin anew with --restart",
        ) from error
