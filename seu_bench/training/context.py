"""Context of a task and its stages while they compute: cached features, precision, compiled units."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from seu_bench.config.run import ComputeConfig, Precision
from seu_bench.models.feature_cache import FeatureCache
from seu_bench.models.feature_store import feature_tiers
from seu_bench.models.multihead import CompiledUnits, MultiHeadModel


@contextmanager
def feature_caching(
    model: MultiHeadModel, compute: ComputeConfig, batch: int, device: torch.device
) -> Iterator[FeatureCache | None]:
    """Cache outputs of the model's frozen layers in chunks of ``batch`` images; ``None`` where none are frozen."""
    if not model.has_frozen_layers:
        yield None
        return
    dtype = None if compute.precision == "float32" else torch.bfloat16
    cache = FeatureCache(feature_tiers(device, compute.feature_cache), batch, dtype)
    model.feature_cache = cache
    try:
        yield cache
    finally:
        model.feature_cache = None


@contextmanager
def units_compiled(model: MultiHeadModel, compute: ComputeConfig, batch: int) -> Iterator[None]:
    """The model's units are compiled for batches of one size, if that is asked for."""
    if not model.has_units or not compute.compile:
        yield
        return
    model.compiled = CompiledUnits(batch)
    try:
        yield
    finally:
        model.compiled = None
        # There is a limit to what torch remembers to have compiled, beyond which it silently does not.
        torch._dynamo.reset()


def computing_in(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Products in bfloat16 for the length of a ``with`` block, if ``precision`` says so; weights stay in float32."""
    if precision != "bf16":
        return nullcontext()
    # Without its cache of converted weights: the block lasts for many steps of the optimiser, which change them.
    return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False)
