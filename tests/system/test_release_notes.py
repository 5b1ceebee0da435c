"""Release notes are a section of the changelog."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.release_notes import notes
from seu_bench import __version__

ROOT = Path(__file__).resolve().parents[2]
CHANGELOG = """# Changelog

## [0.2.0] - 2026-12-01

- **Added**: this ([there](docs/there.md#part), [elsewhere](https://example.org), [here](#here)).

## [0.1.0] - 2026-01-01

- **Added**: that.

## [0.0.1] - 2025-01-01
"""


def test_one_section() -> None:
    assert notes(CHANGELOG, "0.1.0") == "- **Added**: that.\n"


def test_links_lead_somewhere() -> None:
    text = notes(CHANGELOG, "0.2.0", "https://example.org/blob/v0.2.0/")
    assert "(https://example.org/blob/v0.2.0/docs/there.md#part)" in text
    assert "(https://example.org)" in text and "(#here)" in text


@pytest.mark.parametrize(
    ("version", "message"), [("0.3.0", "no section for 0.3.0; it has 0.2.0"), ("0.0.1", "nothing")]
)
def test_none(version: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        notes(CHANGELOG, version)


def test_of_this_version() -> None:
    """The changelog has a section for the version of the package."""
    command = [sys.executable, "scripts/release_notes.py"]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert made.stdout == notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), __version__)
