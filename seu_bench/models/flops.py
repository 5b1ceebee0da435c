"""Floating-point operations of what is computed: two per multiply-accumulate of convolutions and matrix products.

:class:`FlopCounter` sees every operation that torch carries out, backward passes included, which takes a few
microseconds for each. Batches that only repeat what was counted are therefore reckoned by :class:`RepeatedBatches`.
Two things are counted as what they stand for, not as what this machine does for them, so that the number depends on
neither processor nor memory: layers with gradients of their own (:mod:`.kernels`) and cached outputs of frozen layers
(:mod:`.feature_cache`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from math import prod
from types import TracebackType
from typing import Any, Final, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils.flop_counter import flop_registry

from seu_bench.utils.rehearsing import active_rehearsal

_active: ContextVar[FlopCounter | None] = ContextVar("flop_counter", default=None)


class FlopCounter(TorchDispatchMode):
    """Counts the operations carried out within a ``with`` block.

    Attributes:
        flops: counted so far.

    Example:
        >>> with FlopCounter() as counter:
        ...     logits = torch.nn.Linear(5, 3)(torch.zeros(4, 5))
        >>> counter.flops
        120
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0
        self._rests = self._is_away = False
        self._before: list[FlopCounter | None] = []

    def __enter__(self) -> Self:
        """Begin, or go on, to count."""
        super().__enter__()  # type: ignore[no-untyped-call]
        self._before.append(_active.get())
        _active.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Count no more."""
        _active.set(self._before.pop())
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Carry an operation out, and count it."""
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        if not self._rests and (flops_of := _FORMULAS.get(func.overloadpacket)) is not None:
            self.flops += int(flops_of(*args, **kwargs, out_val=output))
        return output

    def rest(self) -> None:
        """Count nothing until :meth:`go_on`, at no cost to what is carried out meanwhile."""
        self._rests = True
        # Where somebody else's mode came after it, this one has to stay.
        self._is_away = _get_current_dispatch_mode() is self
        if self._is_away:
            self.__exit__(None, None, None)

    def go_on(self) -> None:
        """Count again after :meth:`rest`."""
        self._rests = False
        if self._is_away:
            self.__enter__()


def _convolution(x: Tensor, weight: Tensor, *rest: Any, out_val: Tensor, **_: Any) -> int:
    # bias, stride, padding, dilation, transposed
    return _layer_flops(x.numel() if rest[4] else out_val.numel(), weight.shape)


def _convolution_backward(gradient: Tensor, x: Tensor, weight: Tensor, *rest: Any, **_: Any) -> int:
    # bias_sizes, stride, padding, dilation, transposed, output_padding, groups, output_mask; torch's own formula
    # forgets that there may be groups
    asked: int = sum(rest[7][:2])
    return asked * _layer_flops(x.numel() if rest[4] else gradient.numel(), weight.shape)


def _layer_flops(places: int, weight: Sequence[int]) -> int:
    """Each of so many places is a sum over all of a filter but its first dimension."""
    return 2 * places * prod(weight[1:])


#: Formulas by operation: torch's, but for convolutions.
_FORMULAS: Final[dict[Any, Callable[..., int]]] = {
    **flop_registry,
    torch.ops.aten.convolution: _convolution,
    torch.ops.aten.convolution_backward: _convolution_backward,
}


def active_counter() -> FlopCounter | None:
    """Return the counter that counts what is computed now, if one does."""
    counter = _active.get()
    return None if counter is None or counter._rests else counter


@contextmanager
def counted_as(flops: Callable[[], int]) -> Iterator[None]:
    """Count a ``with`` block as so many operations, whatever it carries out; ``flops`` is called at its end.

    Example:
        ``with counted_as(lambda: 0): ...`` for what belongs to no network
    """
    counter = active_counter()
    if counter is None:
        yield
        return
    counter.rest()
    try:
        yield
    finally:
        counter.go_on()
    counter.flops += flops()


class RepeatedBatches:
    """Reckons batches that cost the same per image: of each network one batch is counted, others by their images.

    Only ``with`` it, between :meth:`begin` and :meth:`end` of a batch, does the counter that is active rest.

    Args:
        known: operations of a batch and its number of images, by network; empty by default.

    Example:
        .. code-block:: python

            with RepeatedBatches() as batches:
                for x, y in images.batches(128, shuffle=True):
                    batches.begin()
                    train_on(x, y)
                    batches.end(len(y))
    """

    def __init__(self, known: dict[Hashable, tuple[int, int]] | None = None) -> None:
        self.known = {} if known is None else known
        self._counter: FlopCounter | None = None
        self._counts = True

    def __enter__(self) -> Self:
        """Find the counter; without one, and in a rehearsal, which counts every batch, nothing happens."""
        self._counter = active_counter() if active_rehearsal() is None else None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the counter go on."""
        self._switch(counts=True)
        self._counter = None

    def begin(self, network: Hashable = None) -> None:
        """A batch begins that ``network`` computes: whatever tells networks of different cost apart."""
        if self._counter is not None:
            self._network, self._before = network, self._counter.flops
            self._switch(counts=network not in self.known)

    def end(self, images: int) -> None:
        """The batch of so many images is over."""
        if self._counter is None:
            return
        if self._counts:
            self.known[self._network] = self._counter.flops - self._before, images
        else:
            flops, counted = self.known[self._network]
            self._counter.flops += flops * images // counted
        self._switch(counts=True)

    def _switch(self, *, counts: bool) -> None:
        if self._counter is not None and counts != self._counts:
            self._counts = counts
            if counts:
                self._counter.go_on()
            else:
                self._counter.rest()
