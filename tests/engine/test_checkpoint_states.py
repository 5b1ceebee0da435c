"""Checkpoints hold any state of tensors and plain values: to the bit, in its layout, and each tensor once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from seu_bench.engine.checkpoint import Position, read_checkpoint, write_checkpoint

IMAGES = torch.arange(48.0).reshape(2, 3, 4, 2)
STATE: dict[str, Any] = {
    "row by row": IMAGES,
    "channels last": IMAGES.contiguous(memory_format=torch.channels_last),
    "turned": IMAGES.permute(3, 1, 0, 2),
    "with gaps": IMAGES[:, :, ::2],
    "expanded": torch.arange(3.0).expand(5, 3),
    "scalar": torch.tensor(7),
    "empty": torch.zeros(0, 4),
    "one": torch.ones(1, 1, 3).transpose(0, 2),
    "flags": torch.tensor([True, False]),
    "bytes": torch.arange(5, dtype=torch.uint8),
    "half": torch.tensor([0.1, -0.0, float("inf")], dtype=torch.float16),
    "double": torch.tensor([float("nan")], dtype=torch.float64),
    "plain": [1, 2.5, None, "text", True, (3, [torch.tensor([4])])],
    7: {"nested": {}},
}


def equal(one: Any, other: Any) -> bool:
    """Equal bit by bit."""
    if isinstance(one, torch.Tensor):
        same = one.dtype == other.dtype and one.shape == other.shape
        return same and torch.equal(*(tensor.reshape(-1).clone().view(torch.uint8) for tensor in (one, other)))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return (
            type(one) is type(other)
            and len(one) == len(other)
            and all(equal(*pair) for pair in zip(one, other, strict=True))
        )
    return type(one) is type(other) and bool(one == other)


def test_everything_comes_back(tmp_path: Path) -> None:
    """Types, shapes and numbers; layouts too, where a tensor fills its memory."""
    path = tmp_path / "000001.ckpt"
    write_checkpoint(path, "a-run", Position(task=0), STATE)
    back = read_checkpoint(path, "a-run")
    assert equal(STATE, back)
    for name in ("row by row", "channels last", "turned"):
        assert back[name].stride() == STATE[name].stride()
