"""Memory that the process has freed, kept and returned; each in a process of its own, for it changes the process."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from typing import Any

import pytest

from seu_bench.utils import memory
from seu_bench.utils.memory import keep_freed_memory, return_freed_memory

PAGES = 64 * 2**20 // 4096
#: Page faults of 20 blocks of 64 MiB, each freed before the next, and memory before and after it is returned.
SCRIPT = f"""
import json, os, psutil, resource, sys
from seu_bench.utils.memory import keep_freed_memory, return_freed_memory
kept = keep_freed_memory() if sys.argv[1] == "keep" else None
faults, size, process = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt, {PAGES * 4096}, psutil.Process()
block = bytes(size)
del block
before = faults()
for _ in range(20):
    block = b"x" * size
    del block
after, held = faults(), process.memory_info().rss
return_freed_memory()
print(json.dumps([kept, after - before, held, process.memory_info().rss]))
"""
glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")


def measured(way: str, **environment: str) -> Any:
    """What the script prints: whether memory is kept, page faults, bytes before and after."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_", "LD_PRE"))}
    command = [sys.executable, "-c", SCRIPT, way]
    told = subprocess.run(command, capture_output=True, text=True, check=True, env={**kept, **environment})
    return json.loads(told.stdout)


@glibc
def test_memory_is_used_again_rather_than_asked_of_the_system() -> None:
    _, faults_of_new_blocks, _, _ = measured("leave")
    kept, faults, held, returned = measured("keep")
    assert kept is True
    assert faults < 2 * PAGES
    assert faults < faults_of_new_blocks / 5
    assert held - returned > 60 * 2**20


@glibc
@pytest.mark.parametrize("variable", ["MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"])
def test_choices_of_the_user_stand(variable: str) -> None:
    assert measured("keep", **{variable: "131072"})[0] is False


@pytest.mark.parametrize("variable", ["LD_PRELOAD", "GLIBC_TUNABLES", "MALLOC_MMAP_MAX_"])
def test_other_allocators_are_left_alone(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "something")
    assert keep_freed_memory() is False


def test_nothing_is_done_beside_other_c_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    assert keep_freed_memory() is False
    return_freed_memory()
