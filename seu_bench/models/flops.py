"""Floating-point operations of what is computed: two per multiply-accumulate of convolutions and matrix products, and
those of the textbook for linear algebra.

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
from typing import Any, Final, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils.flop_counter import flop_registry

from seu_bench.utils.rehearsing import active_rehearsal

_active: ContextVar[FlopCounter | None] = ContextVar("flop_counter", default=None)


class FlopCounter(TorchDispatchMode):
    """Counts the operations carried out within a ``with`` block, in ``flops``.

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
        super().__enter__()  # type: ignore[no-untyped-call]
        self._before.append(_active.get())
        _active.set(self)
        return self

    def __exit__(self, *details: Any) -> None:
        _active.set(self._before.pop())
        super().__exit__(*details)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
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


def _matrices(batch: Tensor) -> int:
    return prod(batch.shape[:-2])


def _elimination(rows: int, columns: int, steps: int) -> int:
    """``2 * sum over steps s of (rows - s) * (columns - s)``, but for lower orders."""
    return 2 * rows * columns * steps - (rows + columns) * steps**2 + 2 * steps**3 // 3


def _lu(a: Tensor, *_: Any, **__: Any) -> int:
    m, n = a.shape[-2:]
    return _matrices(a) * _elimination(m, n, min(m, n))


def _solve(a: Tensor, *_: Any, out_val: Any, **__: Any) -> int:
    return _lu(a) + 2 * a.shape[-1] * int(out_val[0].numel())


def _qr(a: Tensor, mode: str = "reduced", **_: Any) -> int:
    # R, and Q from as many reflections, each of which is applied to the columns of Q that are asked for.
    m, n = a.shape[-2:]
    columns = {"r": 0, "reduced": min(m, n), "complete": m}[mode]
    q = _elimination(m, columns, min(m, n)) if columns else 0
    return 2 * _matrices(a) * (_elimination(m, n, min(m, n)) + q)


def _lstsq(a: Tensor, *_: Any, out_val: Any, **__: Any) -> int:
    # QR without Q of the matrix or of its transpose; for each right-hand side its reflections and a triangular solve.
    n, m = sorted(a.shape[-2:])
    sides = int(out_val[0].numel()) // max(1, a.shape[-1])
    return _matrices(a) * 2 * _elimination(m, n, n) + sides * (4 * m * n - n**2)


def _cubic(numerator: int, denominator: int = 1) -> Callable[..., int]:
    return lambda a, *_, **__: _matrices(a) * (numerator * a.shape[-1] ** 3 // denominator)


_eigh = _cubic(9)


def _svd(a: Tensor, full_matrices: bool = False, *_: Any, **__: Any) -> int:
    n, m = sorted(a.shape[-2:])
    vectors = 4 * m**2 * n + 8 * m * n**2 + 9 * n**3 if full_matrices else 14 * m * n**2 + 8 * n**3
    return _matrices(a) * vectors


def _pinv(a: Tensor, *_: Any, hermitian: bool = False, **__: Any) -> int:
    m, n = a.shape[-2:]
    return (_eigh(a) if hermitian else _svd(a)) + _matrices(a) * 2 * m * n * min(m, n)


def _substitution(place: int, times: int) -> Callable[..., int]:
    """So many times ``n^2`` for each right-hand side, of the matrix at this place; the first result is the solution."""

    def flops(*inputs: Any, out_val: Any, **_: Any) -> int:
        solution = out_val if isinstance(out_val, Tensor) else out_val[0]
        return times * int(inputs[place].shape[-1] * solution.numel())

    return flops


def _distances(a: Tensor, *_: Any, out_val: Tensor, **__: Any) -> int:
    # A difference, a square and a sum for each number of each pair, also where torch multiplies matrices instead.
    return 3 * out_val.numel() * a.shape[-1]


def _distances_backward(gradient: Tensor, a: Tensor, *_: Any, **__: Any) -> int:
    # The gradient of one side's points: a difference, a product and a sum.
    return 3 * gradient.numel() * a.shape[-1]


#: Formulas by operation: torch's, but for convolutions and for linear algebra, of which torch has none (``[m, n]`` with
#: ``m >= n``, ``k`` right-hand sides; leading orders after Golub and Van Loan, "Matrix Computations"):
#:
#: ===================================  ==================================================
#: LU, determinant                      m n^2 - 1/3 n^3
#: Cholesky; the inverse from it        1/3 n^3; 2/3 n^3
#: inverse                              2 n^3
#: solution; by LU or Cholesky          2/3 n^3 + 2 n^2 k; 2 n^2 k
#: triangular solution                  n^2 k
#: QR: R; Q of n columns; Q of m        2 m n^2 - 2/3 n^3; the same; 4 m^2 n - 4 m n^2 + 4/3 n^3
#: least squares (by QR)                2 m n^2 - 2/3 n^3 + (4 m n - n^2) k
#: symmetric eigenvectors               9 n^3
#: SVD of n vectors each; of m and n    14 m n^2 + 8 n^3; 4 m^2 n + 8 m n^2 + 9 n^3
#: pseudo-inverse                       16 m n^2 + 8 n^3; symmetric 11 n^3
#: distances of m and k points in R^n   3 m n k, and for the gradient of either side
#: ===================================  ==================================================
#:
_FORMULAS: Final[dict[Any, Callable[..., int]]] = {
    **flop_registry,
    torch.ops.aten.convolution: _convolution,
    torch.ops.aten.convolution_backward: _convolution_backward,
    torch.ops.aten._linalg_solve_ex: _solve,
    torch.ops.aten.linalg_lu: _lu,
    torch.ops.aten.linalg_lu_factor_ex: _lu,
    torch.ops.aten._linalg_det: _lu,
    torch.ops.aten._linalg_slogdet: _lu,
    torch.ops.aten.linalg_inv_ex: _cubic(2),
    torch.ops.aten.linalg_cholesky_ex: _cubic(1, 3),
    torch.ops.aten.cholesky_inverse: _cubic(2, 3),
    torch.ops.aten.cholesky_solve: _substitution(1, 2),
    torch.ops.aten.triangular_solve: _substitution(1, 1),
    torch.ops.aten.linalg_solve_triangular: _substitution(0, 1),
    torch.ops.aten.linalg_lu_solve: _substitution(0, 2),
    torch.ops.aten.linalg_qr: _qr,
    torch.ops.aten.linalg_lstsq: _lstsq,
    torch.ops.aten._linalg_eigh: _eigh,
    torch.ops.aten._linalg_svd: _svd,
    torch.ops.aten.linalg_pinv: _pinv,
    torch.ops.aten._cdist_forward: _distances,
    torch.ops.aten._euclidean_dist: _distances,
    torch.ops.aten._cdist_backward: _distances_backward,
}


def active_counter() -> FlopCounter | None:
    """Return the counter that counts what is computed now, if one does."""
    counter = _active.get()
    return None if counter is None or counter._rests else counter


@contextmanager
def counted_as(flops: Callable[[], int]) -> Iterator[None]:
    """Count a ``with`` block as so many operations, whatever it carries out; ``flops`` is called at its end."""
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

    ``known`` are operations of a batch and its number of images, by network. ``gapless`` says that nothing is computed
    between the end of a batch and the beginning of the next, so that the counter need not come back for it.
    """

    def __init__(self, known: dict[Hashable, tuple[int, int]] | None = None, *, gapless: bool = False) -> None:
        self.known = {} if known is None else known
        self._gapless = gapless
        self._counter: FlopCounter | None = None
        self._counts = True

    def __enter__(self) -> Self:
        """Find the counter; without one, and in a rehearsal, which counts every batch, nothing happens."""
        self._counter = active_counter() if active_rehearsal() is None else None
        return self

    def __exit__(self, *details: Any) -> None:
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
        if not self._gapless:
            self._switch(counts=True)

    def _switch(self, *, counts: bool) -> None:
        if self._counter is not None and counts != self._counts:
            self._counts = counts
            if counts:
                self._counter.go_on()
            else:
                self._counter.rest()
