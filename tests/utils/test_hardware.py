"""Hardware of this machine: cores."""

from __future__ import annotations

from pathlib import Path

import pytest

from seu_bench.utils.hardware import usable_cores


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
