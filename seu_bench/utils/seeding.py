"""Randomness of a run: seeds derived by purpose, and random states that do not disturb each other."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Derive a seed in [0, 2**63) from a run's for one purpose, such as ``derive_seed(0, "training", 3)``."""
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


@contextmanager
def preserve_rng() -> Iterator[None]:
    """Restore the global generators of torch, NumPy and ``random`` at the end of a ``with`` block."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    numpy_state, state = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng(devices=list(devices)):
            yield
    finally:
        np.random.set_state(numpy_state)
        random.setstate(state)


class RandomState:
    """A random state of its own for torch (CPU and one accelerator), NumPy and ``random``.

    Inside :meth:`active` the global generators continue from this state; outside they are as they were before. So a
    stage draws the same numbers whatever ran before it or beside it, and the state can be saved in a checkpoint. The
    generator of an accelerator belongs to the state of that ``device``.

    Example:
        ``with RandomState(derive_seed(seed, "model")).active(): model = build()``
    """

    def __init__(self, seed: int, device: torch.device | None = None) -> None:
        self._cuda = device if device is not None and device.type == "cuda" else None
        outside = self._capture()
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        self._inside = self._capture()
        self._install(outside)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Continue from this state for the length of a ``with`` block."""
        outside = self._capture()
        self._install(self._inside)
        try:
            yield
        finally:
            self._inside = self._capture()
            self._install(outside)

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain values only, so that they can be loaded with ``weights_only=True``."""
        return dict(self._inside)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a :meth:`state_dict`; on an accelerator that it does not cover, from the seed."""
        self._inside = {**self._inside, **state}

    def _capture(self) -> dict[str, Any]:
        numpy_state: Any = np.random.get_state(legacy=True)
        name, keys, position, has_gauss, cached = numpy_state
        version, internal, gauss = random.getstate()
        state: dict[str, Any] = {
            "torch": torch.get_rng_state(),
            "numpy": [str(name), torch.from_numpy(keys.astype(np.int64)), int(position), int(has_gauss), float(cached)],
            "random": [version, list(internal), gauss],
        }
        if self._cuda is not None:
            state["cuda"] = torch.cuda.get_rng_state(self._cuda)
        return state

    def _install(self, state: dict[str, Any]) -> None:
        torch.set_rng_state(state["torch"])
        name, keys, position, has_gauss, cached = state["numpy"]
        np.random.set_state((name, keys.numpy().astype(np.uint32), position, has_gauss, cached))
        version, internal, gauss = state["random"]
        random.setstate((version, tuple(internal), gauss))
        if self._cuda is not None:
            torch.cuda.set_rng_state(state["cuda"], self._cuda)
