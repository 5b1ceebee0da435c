"""Modules, parameters and state of a model, found by one loop, and of what does not change any more by its ledger.

A model that grows is walked through several times before and after every task, and torch hands each name through a
generator for each level: with all else that is looked at, 0.6 s a task at forty tasks of SEU, now 0.25.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

Tensors: TypeAlias = dict[str, Any]
_OWN_STATE: Final = ("state_dict", "_save_to_state_dict", "get_extra_state")
#: Classes that were looked at, and whether they override one of these.
_KINDS: Final[dict[type, bool]] = {}


class Ledger(NamedTuple):
    """What a module consists of whose parts stay the same objects, and where each tensor, by its name within it, is
    found, as a move to another device replaces some; and what :func:`names_of` told of it, by its prefix. A module has
    it as ``_ledger``.
    """

    parts: list[nn.Module]
    state: list[tuple[str, Tensors, str]] | None
    names: dict[str, dict[str, bool]]


def make_ledger(module: nn.Module) -> Ledger:
    """Make the ledger of a module."""
    own = [(prefix, _state_places(part) if it is None else it.state) for prefix, part, it in _walk(module)]
    state = [(prefix + name, tensors, key) for prefix, places in own for name, tensors, key in places or ()]
    return Ledger(parts_of(module), None if any(places is None for _, places in own) else state, {})


def parts_of(module: nn.Module) -> list[nn.Module]:
    """Return all modules in the order of ``state_dict()``; one that has several places stands at each."""
    # Without names: a pair for each is garbage enough for Python to look through the whole model each time.
    return [it for _, part, ledger in _walk(module) for it in ((part,) if ledger is None else ledger.parts)]


def named_state(module: nn.Module, without: Container[nn.Module] = ()) -> dict[str, Any]:
    """Return what ``state_dict(keep_vars=True)`` does, of all but some parts."""
    state: dict[str, Any] = {}
    for prefix, part, ledger in _walk(module, without):
        places = _state_places(part) if ledger is None else ledger.state
        if places is None:
            return dict(module.state_dict(keep_vars=True))
        for name, tensors, key in places:
            if (it := tensors.get(key)) is not None:
                state[prefix + name] = it
    return state


def names_of(module: nn.Module) -> dict[str, bool]:
    """Return the names of all state, and of each whether it is a parameter that does not train."""
    found = dict[str, bool]()
    for prefix, part, ledger in _walk(module):
        if (own := None if ledger is None else ledger.names.get(prefix)) is None:
            held = named_state(part, [*part.children()] if ledger is None else ())
            own = {prefix + name: is_parameter(it) and not it.requires_grad for name, it in held.items()}
            if ledger is not None:
                ledger.names[prefix] = own
        found |= own
    return found


def lies_on(module: nn.Module, device: torch.device) -> bool:
    """Return whether all tensors are on a device; of what is frozen, which moves as a whole, one is asked."""
    for _, part, ledger in _walk(module):
        owners = (own for it in (ledger.parts if ledger else [part]) for own in (it._parameters, it._buffers))
        tensors = (it for own in owners for it in own.values() if it is not None)
        if any(it.device != device for it in (islice(tensors, 1) if ledger else tensors)):
            return False
    return True


def parameters_of(module: nn.Module) -> list[nn.Parameter]:
    """Return all parameters, each shared one once, in torch's order."""
    own = (it for part in parts_of(module) for it in part._parameters.values() if it is not None)
    return [*{id(it): it for it in own}.values()]


def is_parameter(it: object) -> bool:
    """Return whether it is a parameter; torch's ``isinstance`` asks ten times as long."""
    return type(it) is nn.Parameter or (type(it) is not Tensor and isinstance(it, nn.Parameter))


def _walk(module: nn.Module, without: Container[nn.Module] = ()) -> Iterator[tuple[str, nn.Module, Ledger | None]]:
    waiting = [("", module)]
    while waiting:
        prefix, part = waiting.pop()
        if part in without:
            continue
        ledger = vars(part).get("_ledger")
        yield prefix, part, ledger
        if ledger is None and part._modules:
            waiting += reversed([(f"{prefix}{name}.", it) for name, it in part._modules.items() if it is not None])


def _state_places(part: nn.Module) -> list[tuple[str, Tensors, str]] | None:
    """Names of a module's own state, and where it is found; ``None``: it saves it its own way."""
    if part._state_dict_hooks or part._state_dict_pre_hooks or _overrides_state(type(part)):
        return None
    left_out, owners = part._non_persistent_buffers_set, (part._parameters, part._buffers)
    return [(key, tensors, key) for tensors in owners for key in tensors if key not in left_out]


def _overrides_state(kind: type[nn.Module]) -> bool:
    if (known := _KINDS.get(kind)) is None:
        known = _KINDS[kind] = any(getattr(kind, name) is not getattr(nn.Module, name) for name in _OWN_STATE)
    return known
