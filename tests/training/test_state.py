"""Packed states: everything comes back to the bit, in its layout, and nothing reaches beyond what is there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from seu_bench.training.state import not_finite, pack, unpack

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


def test_everything_comes_back() -> None:
    """Types, shapes and numbers; layouts too, where a tensor fills its memory."""
    state = {key: value for key, value in STATE.items() if key != "scalar"} | {"scalar": STATE["scalar"].reshape(1)}
    back = unpack(pack(state))
    assert equal(state, back)
    assert equal(STATE["scalar"], unpack(pack(STATE["scalar"])))
    for name in ("row by row", "channels last", "turned"):
        assert back[name].stride() == STATE[name].stride()


def test_memory_of_its_own() -> None:
    """What is loaded can be changed without changing anything else."""
    tensor = torch.zeros(3)
    packed = pack({"one": tensor, "two": tensor})
    assert [len(stored) for stored in packed["tensors"]] == [3]
    back = unpack(packed)
    back["one"] += 1
    assert back["two"].tolist() == [0, 0, 0] and tensor.tolist() == [0, 0, 0]


def test_few_tensors() -> None:
    """One for each type."""
    packed = pack([torch.ones(2), torch.ones(3), torch.tensor([1]), [torch.ones(4)]])
    assert [tuple(tensor.shape) for tensor in packed["tensors"]] == [(9,), (1,)]


@pytest.mark.parametrize(
    ("state", "name"),
    [
        ({"a": torch.ones(2), "b": [torch.ones(1), torch.tensor([1.0, float("nan")])]}, "b[1]"),
        ({"a": {"b": torch.tensor(float("-inf"))}}, "a.b"),
        ({"a": torch.tensor([2**62]), "b": float("inf")}, None),
    ],
)
def test_not_finite(state: Any, name: str | None) -> None:
    """The tensor is named; plain numbers may be infinite."""
    assert not_finite(pack(state)) == name


@pytest.mark.parametrize(
    "place",
    [
        [0, 0, [5], [1]],
        [0, 3, [2], [1]],
        [0, -1, [2], [1]],
        [0, 0, [2, 2], [1, 1]],
        [0, 0, [-2], [1]],
        [0, 0, [2], [-1]],
        [1, 0, [2], [1]],
        [0, 0, ["2"], [1]],
        [0, 0, [2]],
        None,
    ],
)
def test_places_of_strangers(place: Any) -> None:
    """Memory that is not there is never read."""
    with pytest.raises(Exception):  # noqa: B017 - of any kind, whoever loads a checkpoint makes it ours
        unpack({"structure": {"x": {"seu-bench tensor": place}}, "tensors": [torch.arange(4.0)]})
