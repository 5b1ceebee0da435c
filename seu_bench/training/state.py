"""A state of thousands of small tensors as a few large ones.

Writing a tensor costs as much for ten numbers as for ten thousand, and the state of a search has thousands: packed, a
checkpoint is written several times faster and is half as large.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from seu_bench.errors import CheckpointError, SeuBenchError

#: Key of what stands in a packed state for a tensor: which large tensor, from where, shape, strides.
_TENSOR: Final = "seu-bench tensor"


def pack(state: Any) -> dict[str, Any]:
    """Tensors and plain values, with all tensors of one type and device in one.

    Args:
        state: nested dictionaries, lists and tuples of tensors and plain values. A tensor that occurs twice is stored
            once.
    """
    packer = _Packer()
    structure = packer.packed(state)
    return {"structure": structure, "tensors": [torch.cat(parts) for parts in packer.parts]}


def unpack(packed: Mapping[str, Any]) -> Any:
    """What :func:`pack` was given; every tensor with memory of its own, in the layout that it had.

    Raises:
        Exception: of any kind, it was made by something else.
    """
    return _unpacked(packed["structure"], packed["tensors"])


def not_finite(packed: Mapping[str, Any]) -> str | None:
    """The place of a tensor that holds NaN or infinity, e.g. ``strategy.weights.head``; ``None``: there is none."""
    for tensor in packed["tensors"]:
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            return _first_not_finite(packed["structure"], packed["tensors"], "") or "a tensor"
    return None


class _Packer:
    def __init__(self) -> None:
        self.parts: list[list[Tensor]] = []
        self._lengths: list[int] = []
        self._kinds: dict[tuple[torch.dtype, torch.device], int] = {}
        self._known: dict[tuple[Any, ...], dict[str, list[Any]]] = {}

    def packed(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._place(value.detach())
        if isinstance(value, Mapping):
            return {key: self.packed(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            return type(value)([self.packed(part) for part in value])
        return value

    def _place(self, tensor: Tensor) -> dict[str, list[Any]]:
        shape, strides = list(tensor.shape), list(tensor.stride())
        key = (tensor.data_ptr(), tensor.dtype, tensor.device, tuple(shape), tuple(strides))
        if tensor.numel() and key in self._known:
            return self._known[key]
        if not _is_dense(shape, strides):
            tensor = tensor.contiguous()
            strides = list(tensor.stride())
        kind = self._kinds.setdefault((tensor.dtype, tensor.device), len(self.parts))
        if kind == len(self.parts):
            self.parts.append([])
            self._lengths.append(0)
        place = {_TENSOR: [kind, self._lengths[kind], shape, strides]}
        # In the order of memory, whatever the order of dimensions is.
        self.parts[kind].append(tensor.as_strided((tensor.numel(),), (1,)))
        self._lengths[kind] += tensor.numel()
        self._known[key] = place
        return place


def _is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a tensor's numbers lie in memory without gaps and overlaps, in any order of dimensions."""
    expected = 1
    for stride, length in sorted(pair for pair in zip(strides, shape, strict=True) if pair[1] != 1):
        if stride != expected:
            return False
        expected *= length
    return True


def _unpacked(value: Any, tensors: Sequence[Tensor]) -> Any:
    if isinstance(value, dict):
        if _TENSOR in value:
            return _at(value[_TENSOR], tensors).clone()
        return {key: _unpacked(part, tensors) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_unpacked(part, tensors) for part in value])
    return value


def _at(place: Sequence[Any], tensors: Sequence[Tensor]) -> Tensor:
    kind, start, shape, strides = place
    count = math.prod(shape)
    if not _is_dense(shape, strides) or min([start, kind, count, *shape, *strides]) < 0:
        raise ValueError(f"no tensor is stored as {place}")
    # as_strided alone would reach beyond the part, and beyond the end.
    part: Tensor = tensors[kind].narrow(0, start, count)
    return part.as_strided(shape, strides)


def _first_not_finite(value: Any, tensors: Sequence[Tensor], name: str) -> str | None:
    if isinstance(value, dict) and _TENSOR in value:
        tensor = _at(value[_TENSOR], tensors)
        return name if tensor.is_floating_point() and not bool(tensor.isfinite().all()) else None
    if isinstance(value, dict):
        named = [(f"{name}.{key}" if name else str(key), part) for key, part in value.items()]
    elif isinstance(value, list | tuple):
        named = [(f"{name}[{index}]", part) for index, part in enumerate(value)]
    else:
        return None
    found = (_first_not_finite(part, tensors, place) for place, part in named)
    return next((place for place in found if place is not None), None)


@contextlib.contextmanager
def fitting(what: str) -> Iterator[None]:
    """Whatever a state that does not fit makes anybody raise, as one error of ours.

    Args:
        what: that it is given to.

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
