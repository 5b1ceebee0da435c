"""States of tensors and plain values: compared, checked, loaded with errors that name the receiver."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from seu_bench.errors import CheckpointError, SeuBenchError


def not_finite(state: Any, name: str = "") -> str | None:
    """Return the first place of a tensor with NaN or infinity, e.g. ``strategy.weights.head``; ``None``: nowhere."""
    found, asked = list(_floating(state, name)), defaultdict[torch.device, list[torch.Tensor]](list)
    for _, tensor in found:
        asked[tensor.device].append(tensor.isfinite().all())
    told = {device: iter(torch.stack(flags).tolist()) for device, flags in asked.items()}  # each is waited for once
    return next((place for (place, tensor) in found if not next(told[tensor.device])), None)


def _floating(state: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Floating-point tensors of a state, and their places."""
    if isinstance(state, torch.Tensor):
        if state.is_floating_point():
            yield name, state
    elif isinstance(state, Mapping):
        for key, part in state.items():
            yield from _floating(part, f"{name}.{key}" if name else str(key))
    elif isinstance(state, list | tuple):
        for index, part in enumerate(state):
            yield from _floating(part, f"{name}[{index}]")


def difference(one: Any, other: Any, name: str = "") -> str | None:
    """Return the first place where two states differ by a bit, e.g. ``own.memory.images``; ``None``: nowhere."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return None if one.dtype == other.dtype and one.device == other.device and torch.equal(one, other) else name
    if isinstance(one, Mapping) and isinstance(other, Mapping) and one.keys() == other.keys():
        parts = [(f"{name}.{key}" if name else str(key), part, other[key]) for key, part in one.items()]
    elif isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        parts = [(f"{name}[{index}]", *pair) for index, pair in enumerate(zip(one, other, strict=True))]
    else:
        nested = isinstance(one, torch.Tensor | Mapping | list | tuple)  # of other keys, lengths or kinds
        return None if type(one) is type(other) and not nested and one == other else name
    found = (difference(part, counterpart, place) for place, part, counterpart in parts)
    return next((place for place in found if place is not None), None)


def grown(state: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
    """Return a copy of ``into`` with ``state`` at its beginning, which may have fewer rows and columns; a ValueError:
    it has more, or other dimensions."""
    if state.shape == into.shape:
        return state.to(into.device)
    if state.dim() != into.dim() or any(old > new for old, new in zip(state.shape, into.shape, strict=True)):
        raise ValueError(f"a tensor of shape {tuple(state.shape)} does not become one of {tuple(into.shape)}")
    found = into.detach().clone()
    found[tuple(map(slice, state.shape))] = state.to(found)
    return found


def get_state(value: Any) -> Any:
    """Return the state of an object with ``state_dict()`` or of a generator of torch; other values as they are."""
    if isinstance(value, torch.Generator):
        return value.get_state()
    return value.copy() if isinstance(value, list | dict) else getattr(value, "state_dict", lambda: value)()


def can_be_saved(value: Any) -> bool:
    """Return whether :func:`get_state` makes tensors and plain values of a value."""
    if isinstance(value, Mapping):
        return all(isinstance(key, str | int | tuple) and can_be_saved(part) for key, part in value.items())
    if isinstance(value, list | tuple | set):
        return all(map(can_be_saved, value))
    plain = value is None or isinstance(value, torch.Tensor | torch.Generator | bool | int | float | str)
    return plain or (hasattr(value, "state_dict") and hasattr(value, "load_state_dict"))


def set_counts(clock: Any, counts: Mapping[str, Any]) -> None:
    """Set the counts of Avalanche's clock by name; a ValueError: one is no whole number, or the clock has none so."""
    for name, value in counts.items():
        if not isinstance(value, int) or not isinstance(getattr(clock, name), int):
            raise ValueError(f"the clock's {name} is {value!r}")
        setattr(clock, name, value)


def set_state(owner: object, name: str, state: Any) -> None:
    """Give an attribute what :func:`get_state` returned: into the object that is there, or in place of the value."""
    value = getattr(owner, name)
    if isinstance(value, torch.Generator):
        value.set_state(state.cpu())
    elif hasattr(value, "load_state_dict"):
        value.load_state_dict(state)
    else:
        setattr(owner, name, state)


@contextlib.contextmanager
def checkpoint_error_context(what: str) -> Iterator[None]:
    """Turn any error of loading a state into ``what`` within a ``with`` block into a CheckpointError."""
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
