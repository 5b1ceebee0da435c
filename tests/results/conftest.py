"""Fixtures of the tests of records, leaderboards and reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.board_records import Put, writer


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Write a record with plausible metrics to the test's folder; keywords change fields."""
    return writer(tmp_path)


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
