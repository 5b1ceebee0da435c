"""A pretended accelerator: tensors on the wrong device, and what a step would wait for, without a card.

All is computed on the processor; storages are marked as on a card, and ``tensor.device`` says so. What CUDA
refuses is refused; what the host waits for is counted. Kernels, formats and memory of a card cannot be seen.
"""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from seu_bench.training.stage import Stage

#: Operators whose result has a size or a kind that hangs on values.
_WAITING: Final = {
    *("_local_scalar_dense", "nonzero", "unique", "_unique2", "unique_dim", "unique_consecutive", "bincount", "equal"),
    *("masked_select", "multinomial", "repeat_interleave", "histc", "_linalg_eigh", "linalg_inv_ex", "_linalg_svd"),
}
#: Functions that make tensors of nothing, on the processor unless they are told otherwise.
_MAKING: Final = {
    *("zeros", "ones", "empty", "full", "arange", "linspace", "eye", "rand", "randn", "randint", "randperm", "tensor"),
    *("as_tensor", "from_numpy", "frombuffer", "scalar_tensor", "empty_strided"),
}
_MARK: Final = "pretended_device"


class PretendedCard:
    """What happened on a pretended card.

    Attributes:
        waits: how often the host waited, by stage (name, task, epoch; empty outside), what for, and the asking line.
        steps: steps of optimisers by stage.
        mismatches: what CUDA would have refused, and where.
    """

    def __init__(self) -> None:
        self.stage: tuple[Any, ...] = ()
        self.waits: Counter[tuple[tuple[Any, ...], str, str]] = Counter()
        self.steps: Counter[tuple[Any, ...]] = Counter()
        self.mismatches: list[str] = []

    def waits_per_epoch(self) -> dict[str, int]:
        """Return the most waits of one epoch by the name of its stage, of stages whose epochs train."""
        found: dict[str, int] = {}
        for stage in self.steps:
            if stage:
                waits = sum(count for (place, *_), count in self.waits.items() if place == stage)
                found[stage[0]] = max(waits, found.get(stage[0], 0))
        return found

    def lines(self) -> list[str]:
        """Return what was waited for in epochs that train, and where, the most frequent first."""
        found: Counter[str] = Counter()
        for (stage, what, line), count in self.waits.items():
            if stage and self.steps[stage]:
                found[f"{stage[0]}: {what}, {line}"] += count
        return [f"{count} times in {line}" for line, count in found.most_common()]

    def wait(self, what: str) -> None:
        self.waits[self.stage, what, _line()] += 1

    def refuse(self, what: str) -> None:
        self.mismatches.append(f"{what}, {_line()}")
        raise RuntimeError(f"tensors are on different devices of a pretended card: {self.mismatches[-1]}")


@contextmanager
def pretended_card() -> Iterator[PretendedCard]:
    """Pretend that there is one card for the length of a ``with`` block.

    Yields:
        What happened.

    Example:
        ::

            with pretended_card() as card:
                seu_bench.run("mine", "split_digits", protocol="smoke", device="cuda", plugin="mine.py")
            assert not card.mismatches and max(card.waits_per_epoch().values()) <= 4
    """
    card = PretendedCard()
    state, advance = torch.zeros(16, dtype=torch.uint8), Stage.advance
    grouped, packages = torch._C._group_tensors_by_device_and_dtype, torch.serialization._package_registry
    tag = lambda storage: "cuda:0" if getattr(storage, _MARK, None) == "cuda" else None  # noqa: E731

    def set_state(given: Tensor, _: object = None) -> None:
        if _side(given) == "cuda" or given.dtype != torch.uint8:
            card.refuse("the state of a generator is bytes on the processor")

    def clone(storage: Any) -> Any:
        made = type(storage)(storage.nbytes(), device=storage.device).copy_(storage)
        return _mark(made, getattr(storage, _MARK, None))

    def group(tensors: Any, *more: Any) -> Any:
        side = _side(next(tensor for each in tensors for tensor in each if tensor is not None))
        return {(_device(side), dtype): found for (_, dtype), found in grouped(tensors, *more).items()}

    def load(storage: Any, location: str) -> Any:
        return _mark(storage, "cuda") if str(location).startswith("cuda") else None

    def advance_counted(stage: Stage[Any]) -> None:
        before, card.stage = card.stage, (stage.name, stage.task, stage.epoch)
        try:
            advance(stage)
        finally:
            card.stage = before

    replaced: list[tuple[Any, str, Any]] = [
        (torch.UntypedStorage, "clone", clone),
        (torch._C, "_group_tensors_by_device_and_dtype", group),
        (torch.serialization, "_package_registry", [(1, tag, load), *packages]),
        (Stage, "advance", advance_counted),
        (torch.cuda, "get_rng_state", lambda *_: state.clone()),
        (torch.cuda, "set_rng_state", set_state),
    ]
    answers: dict[str, Any] = {"is_initialized": True, "device_count": 1, "current_device": 0}
    answers |= {"get_device_name": "a pretended card", "mem_get_info": (4 << 30, 8 << 30), "max_memory_allocated": 1}
    answers |= dict.fromkeys(["synchronize", "reset_peak_memory_stats", "manual_seed_all", "manual_seed"])
    replaced += [(torch.cuda, name, lambda *_, answer=answer: answer) for name, answer in answers.items()]
    with ExitStack() as stack:
        for owner, name, stand_in in replaced:
            stack.enter_context(patch.object(owner, name, stand_in))
        hook = register_optimizer_step_post_hook(lambda *_: card.steps.update([card.stage]))
        stack.callback(hook.remove)
        for mode in (_Operators(), _Calls()):  # type: ignore[no-untyped-call]
            mode.card = card
            stack.enter_context(mode)
        yield card


class _Operators(TorchDispatchMode):
    """Sees every operator, those of backward passes included."""

    card: PretendedCard

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, func.overloadpacket.__name__
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        sides = [_side(tensor) for tensor in tensors]
        if "cuda" in sides:
            self._judge(func, name, args, tensors, sides)
        out = func(*args, **kwargs)
        if "cuda" in sides or "cpu" in sides:  # storages that torch made within take the side of what they meet
            _mark((out, tensors), "cuda" if "cuda" in sides else "cpu", only_new=True)
        return out

    def _judge(self, func: Any, name: str, args: Any, tensors: list[Tensor], sides: list[str | None]) -> None:
        if name in _WAITING:
            self.card.wait(name)
        if name in ("index", "index_put", "index_put_", "_index_put_impl_") and sides[0] == "cuda":
            indices = [index for index in args[1] if isinstance(index, Tensor)]
            if any(_side(index) == "cpu" for index in indices):
                self.card.wait(f"{name} by a tensor of the processor")
            if any(index.dtype in (torch.bool, torch.uint8) for index in indices):
                self.card.wait(f"{name} by a mask")
        elif name in ("copy_", "_foreach_copy_"):
            if "cpu" in sides and not (args[2:] and args[2]):
                self.card.wait("copy between devices")
        else:
            written = bool(args) and isinstance(args[0], Tensor) and sides[0] == "cpu" and func._schema.is_mutable
            if written or any(it == "cpu" and tensor.dim() for it, tensor in zip(sides, tensors, strict=True)):
                told = ", ".join(f"{tuple(it.shape)} on {side}" for it, side in zip(tensors, sides, strict=True))
                self.card.refuse(f"{name} of {told}")


class _Calls(TorchFunctionMode):
    """Sees calls from Python: asks for a device, moves between devices, tensors that are made on one."""

    card: PretendedCard

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        first = args[0] if args and isinstance(args[0], Tensor) else None
        side = None if first is None else _side(first)
        if name == "__get__":
            asked = getattr(func.__self__, "__name__", "")
            answers = {"device": _device(side), "is_cuda": side == "cuda", "is_cpu": side != "cuda"}
            return answers[asked] if side and asked in answers else func(*args, **kwargs)
        if first is not None and name in ("to", "cpu", "cuda"):
            return self._move(func, name, args, kwargs)
        if side == "cuda" and name in ("numpy", "__array__", "tolist"):
            (self.card.wait if name == "tolist" else self.card.refuse)(f"{name}() of a tensor of the card")
        if (wanted := kwargs.get("device")) is not None and (kind := torch.device(wanted).type) in ("cuda", "cpu"):
            if name in ("tensor", "as_tensor") and "cuda" in (kind, side) and kind != side:
                self.card.wait(f"{name} to {kind}")
            return _mark(func(*args, **kwargs | {"device": "cpu"}), kind)
        out = func(*args, **kwargs)
        return _mark(out, "cpu", only_new=True) if name in _MAKING else out

    def _move(self, func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        tensor, others = args[0], {key: value for key, value in kwargs.items() if key != "copy"}
        device, dtype, goes_on, layout = torch._C._nn._parse_to(*(args[1:] if name == "to" else (name,)), **others)
        like = next((it for it in args[1:] if isinstance(it, Tensor)), None)
        target, now = _side(like) if like is not None else str(device.type) if device else None, _side(tensor)
        if tensor.device.type == "meta" or target == "meta":
            return func(*args, **kwargs)
        out = tensor.to(dtype=dtype or tensor.dtype, memory_format=layout or torch.preserve_format)
        if target is None or (now == target and not kwargs.get("copy")):
            return out
        # To the card without waiting: the host puts few bytes aside and goes on. The way back does wait.
        if now is not None and now != target and (not goes_on or target == "cpu"):
            self.card.wait(f"copy {now} to {target}")
        return _mark(out.clone() if out is tensor or _side(out) != target else out, target)


def _device(side: str | None) -> torch.device:
    return torch.device("cuda:0" if side == "cuda" else "cpu")


def _storage(tensor: Tensor) -> Any:
    """``None`` on the meta device, and where there is none, as of sparse tensors and those of vmap."""
    try:
        return tensor.untyped_storage() if tensor.device.type != "meta" else None
    except (NotImplementedError, RuntimeError):
        return None


def _side(tensor: Tensor) -> str | None:
    """``cuda``, ``cpu``, or ``None``: not known."""
    return getattr(_storage(tensor), _MARK, None)


def _mark(value: Any, side: str | None, *, only_new: bool = False) -> Any:
    for leaf in tree_leaves(value):
        storage = _storage(leaf) if isinstance(leaf, Tensor) else leaf
        if isinstance(storage, torch.UntypedStorage) and not (only_new and getattr(storage, _MARK, None)):
            setattr(storage, _MARK, side)
    return value


def _line() -> str:
    """The innermost line of seu-bench, a plugin or Avalanche."""
    for frame, number in traceback.walk_stack(sys._getframe(1)):
        name = frame.f_code.co_filename
        ours = "/seu_bench" in name or "/avalanche/" in name
        if ours and not name.endswith(("pretended_card.py", "models/flops.py")):
            return f"{name.split('/site-packages/')[-1].split('/.editable/')[-1]}:{number}"
    return "outside"
