"""This machine: cores, memory that was freed, and what there is too little of; text for terminals and notebooks."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from seu_bench.utils import hardware
from seu_bench.utils.hardware import free_host_memory, impossible_value, keep_freed_memory, shortage, usable_cores
from seu_bench.utils.notebook import html_table, matrix_table, values_table
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


def test_shortages_and_impossible_values_as_torch_reports_them() -> None:
    for size in (2**55, 2**62):
        with pytest.raises(RuntimeError) as caught:
            torch.empty(size, 4)
        assert shortage(caught.value) == "memory"
    with pytest.raises(ValueError) as single:
        torch.nn.BatchNorm2d(3)(torch.zeros(1, 3, 1, 1))
    with pytest.raises(TypeError) as overflow:
        torch.nn.Linear(4, 10**30)
    for error, option in ((single.value, "batch_size"), (overflow.value, "width")):
        told = impossible_value(error)
        assert told is not None and option in told[1]
    assert impossible_value(ValueError("something else")) is None


PAGES = 64 * 2**20 // 4096
#: Page faults of 20 blocks of 64 MiB, each freed before the next, and memory before and after it is returned.
BLOCKS = f"""
import json, os, psutil, resource, sys
from seu_bench.utils.hardware import free_host_memory, keep_freed_memory
kept = keep_freed_memory() if sys.argv[1] == "keep" else None
faults, size, process = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt, {PAGES * 4096}, psutil.Process()
block = bytes(size)
del block
before = faults()
for _ in range(20):
    block = b"x" * size
    del block
after, held = faults(), process.memory_info().rss
free_host_memory()
print(json.dumps([kept, after - before, held, process.memory_info().rss]))
"""


def measured(way: str, **environment: str) -> Any:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_", "LD_PRE"))}
    command = [sys.executable, "-c", BLOCKS, way]
    told = subprocess.run(command, capture_output=True, text=True, check=True, env={**kept, **environment})
    return json.loads(told.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_memory_is_used_again_rather_than_asked_of_the_system() -> None:
    _, faults_of_new_blocks, _, _ = measured("leave")
    kept, faults, held, returned = measured("keep")
    assert kept is True
    assert faults < 2 * PAGES
    assert faults < faults_of_new_blocks / 5
    assert held - returned > 60 * 2**20
    assert measured("keep", MALLOC_TRIM_THRESHOLD_="131072")[0] is False


def test_choices_of_the_user_and_other_libraries_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "something")
    assert keep_freed_memory() is False
    monkeypatch.delenv("LD_PRELOAD")
    monkeypatch.setattr(hardware.sys, "platform", "darwin")
    assert keep_freed_memory() is False
    assert free_host_memory() > 0


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


def test_notebook_tables() -> None:
    """Escaped and cut; in percent; a dash where nothing was measured; no row of tasks that were not learned."""
    page = html_table(EVIL, [EVIL, "n"], [[EVIL, EVIL], [EVIL, None]] * 200, [EVIL])
    assert "<script" not in page and "<img" not in page and "\x1b" not in page
    assert "and 300 more" in page and len(html_table("", ["a"], [["x" * 10_000]] * 250)) < 60_000
    page = matrix_table("t", ["a", "b", "c"], [[0.5, None, None], [0.25, 1.0, None], [None, None, None]])
    cells = {"0 a": 1, "1 b": 1, "2 c": 0, "50.0": 1, "25.0": 1, "100.0": 1, "-": 3}
    assert {cell: page.count(f">{cell}<") for cell in cells} == cells
    page = values_table({"params_total": 1_234_567, "acc": 0.87654321, "fwt": None})
    assert "1,234,567" in page and "0.8765" in page and "fwt" not in page
