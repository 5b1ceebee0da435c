"""This machine: cores, memory that was freed, and what there is too little of; text for terminals and notebooks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from seu_bench.utils.hardware import shortage, usable_cores
from seu_bench.utils.text import error_line, spreadsheet_cell

EVIL = '<script>alert("1")</script>\x1b[2J & <img src=x onerror=alert(1)>'


@pytest.mark.parametrize(
    ("text", "at_most"),
    [("max 100000", 10**6), ("100000 100000\n", 1), ("150000 100000", 2), ("x", 10**6), ("1 0", 10**6)],
)
def test_cores_of_a_container(tmp_path: Path, text: str, at_most: int) -> None:
    """Its share of the machine, rounded up, where it has one."""
    (tmp_path / "cpu.max").write_text(text)
    assert usable_cores(tmp_path / "cpu.max") == min(usable_cores(tmp_path / "none"), at_most)


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
    assert shortage(error) == what


def test_shortage_as_torch_reports_it() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50)
    assert shortage(caught.value) == "memory"


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t=", " ="])
def test_no_formula_in_spreadsheets(begin: str) -> None:
    cell = spreadsheet_cell(f'{begin}HYPERLINK("http://x")')
    assert isinstance(cell, str) and cell.startswith("'")
    for value in (-1.5, None, "seu: mdl + frugal"):
        assert spreadsheet_cell(value) == value


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("http://ann:se@cr@et@host:80/x", "http://***@host:80/x"),
        ("postgresql+psycopg://u:p@db/mlflow?x=1", "postgresql+psycopg://***@db/mlflow?x=1"),
        ("https://host/a@b", "https://host/a@b"),
        ("mail ann@host", "mail ann@host"),
    ],
)
def test_credentials_are_masked(text: str, masked: str) -> None:
    told = error_line(ConnectionError(f"no\x1b answer\nfrom {text} " + "x" * 500))
    assert told.startswith(f"ConnectionError: no answer from {masked} x") and len(told) == 300
