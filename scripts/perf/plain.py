"""The plain version of what is computed: what a straightforward program would do, by patches on ours.

Every patch is here, and each names what must exist: where the code has changed, making the plain version fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional

import seu_bench.models.layers
import seu_bench_kit.cells
import seu_bench_kit.kernels
import seu_bench_ltg.network
from scripts.perf.runs import Ways
from seu_bench.data.images import TaskImages
from seu_bench.training.strategy import StagedStrategy

#: The two ways in which frozen layers are compared.
WITH, WITHOUT = "with", "without"


@contextmanager
def without_cache() -> Iterator[None]:
    """No outputs of frozen layers are kept: models compute them in the batches as they come."""

    @contextmanager
    def computed(_: object) -> Iterator[Callable[[TaskImages], TaskImages]]:
        yield lambda images: images

    with mock.patch.object(StagedStrategy, "_features_cached", computed):
        yield


#: Both, for :func:`scripts.perf.runs.side_by_side`.
WAYS: Ways = {WITH: nullcontext, WITHOUT: without_cache}


@contextmanager
def default_format() -> Iterator[None]:
    """Networks compute in PyTorch's default memory format."""
    with ExitStack() as stack:
        for module in (seu_bench.models.layers, seu_bench_ltg.network):
            stack.enter_context(mock.patch.object(module, "channels_last", torch.Tensor.contiguous))
        yield


@contextmanager
def own_kernels() -> Iterator[None]:
    """Torch's own convolutions, concatenation and slices, in both directions; every operation computes its ReLU."""
    operations = seu_bench_kit.cells
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(seu_bench_kit.kernels, "trains_on_cpu", _never))
        stack.enter_context(mock.patch.object(operations.State, "rectified", property(_rectified)))
        stack.enter_context(mock.patch.object(operations, "separable", _separable(operations.separable)))
        yield


@contextmanager
def plain() -> Iterator[None]:
    """All of it. Networks are to be built within, too."""
    with without_cache(), default_format(), own_kernels():
        yield


def _never(*_: Tensor) -> bool:
    return False


def _rectified(state: seu_bench_kit.cells.State) -> Tensor:
    return functional.relu(state.features)


def _separable(original: Callable[..., list[nn.Module]]) -> Callable[..., list[nn.Module]]:
    """With ReLUs that write to memory of their own."""

    def made(*arguments: Any, **options: Any) -> list[nn.Module]:
        modules = original(*arguments, **options)
        for module in modules:
            if isinstance(module, nn.ReLU):
                module.inplace = False
        return modules

    return made
