"""Shared by tests of sweeps: the stranger's package, and the gate at which its runs wait."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.commands import Install
from support.sweeping import MODULES, POINTS


@pytest.fixture
def gate(install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The stranger's package, found by processes that tests start, too; what keeps seed 0 from going on."""
    folder = install("a-stranger", POINTS, MODULES)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("GATE", str(tmp_path))
    (tmp_path / "seed0").touch()
    return tmp_path / "seed0"
