"""Fixtures of the tests of records, leaderboards and reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the browser saves into."""
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="session")
def chromium(downloads: Path) -> Iterator[Any]:
    """A browser for all tests of a process."""
    from support.browsing import browser

    with browser(downloads) as driver:
        yield driver
