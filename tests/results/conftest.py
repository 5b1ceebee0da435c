"""Fixtures of the tests of records, leaderboards and reports."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def report_settings() -> Iterator[None]:
    """Matplotlib as the report sets it up."""
    from seu_bench.results.report.layout import settings

    with settings():
        yield
