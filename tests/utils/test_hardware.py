"""Hardware of this machine: cores, and what there is too little of."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from seu_bench.utils.hardware import impossible_value, shortage, usable_cores


@pytest.mark.parametrize(
    ("text", "at_most"),
    [
        ("max 100000", 10**6),
        ("100000 100000\n", 1),
        ("50000 100000", 1),
        ("150000 100000", 2),
        ("x", 10**6),
        ("1 0", 10**6),
    ],
)
def test_cores_of_a_container(tmp_path: Path, text: str, at_most: int) -> None:
    """Its share of the machine, rounded up, where it has one."""
    (tmp_path / "cpu.max").write_text(text)
    whole = usable_cores(tmp_path / "none")
    assert usable_cores(tmp_path / "cpu.max") == min(whole, at_most)


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (MemoryError(), "memory"),
        (OSError(12, "Cannot allocate memory"), "memory"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"), "memory"),
        (RuntimeError("can't start new thread"), "threads"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None),
        (KeyError("can't start new thread"), None),
    ],
)
def test_shortages(error: Exception, what: str | None) -> None:
    """They are told from defects by what libraries say."""
    assert shortage(error) == what


def test_shortages_as_torch_reports_them() -> None:
    """A tensor that no machine has room for."""
    for size in (2**55, 2**62):
        with pytest.raises(RuntimeError) as caught:
            torch.empty(size, 4)
        assert shortage(caught.value) == "memory"


def test_impossible_values_as_torch_reports_them() -> None:
    """A batch of one with BatchNorm, and a layer of more weights than can be counted; other errors say nothing."""
    with pytest.raises(ValueError) as caught:
        torch.nn.BatchNorm2d(3)(torch.zeros(1, 3, 1, 1))
    told = impossible_value(caught.value)
    assert told is not None and "batch_size" in told[1]
    with pytest.raises(TypeError) as overflow:
        torch.nn.Linear(4, 10**30)
    told = impossible_value(overflow.value)
    assert told is not None and "width" in told[1]
    assert impossible_value(ValueError("something else")) is None
