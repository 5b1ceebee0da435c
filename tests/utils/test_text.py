"""Text of strangers in terminals, spreadsheets and messages."""

from __future__ import annotations

import pytest

from seu_bench.utils.text import error_line, printable_lines, spreadsheet_cell, without_credentials


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t=", "\r=", " ="])
def test_no_formula(begin: str) -> None:
    """Whatever a spreadsheet would calculate gets an apostrophe; numbers and other text stay as they are."""
    cell = spreadsheet_cell(f'{begin}HYPERLINK("http://x")')
    assert isinstance(cell, str) and cell.startswith("'")
    assert spreadsheet_cell(-1.5) == -1.5
    assert spreadsheet_cell(None) is None
    assert spreadsheet_cell("seu: mdl + frugal") == "seu: mdl + frugal"


def test_lines_stay_lines() -> None:
    """Control characters become blanks, newlines and indentation stay."""
    assert printable_lines("error: a\x1b[2J\n  where: b\x00") == "error: a [2J\n  where: b "


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("http://ann:se@cr@et@host:80/x", "http://***@host:80/x"),
        ("postgresql+psycopg://u:p@db/mlflow?x=1", "postgresql+psycopg://***@db/mlflow?x=1"),
        ("https://token@host", "https://***@host"),
        ("https://host/a@b", "https://host/a@b"),
        ("mail ann@host", "mail ann@host"),
    ],
)
def test_credentials(text: str, masked: str) -> None:
    """Of any scheme, wherever they stand in a message."""
    assert without_credentials(f"no answer: {text} (twice {text})") == f"no answer: {masked} (twice {masked})"


def test_errors_of_libraries() -> None:
    """One line, not too long, with nothing that should not be read."""
    told = error_line(ConnectionError("no\x1b answer\nfrom https://ann:secret@host " + "x" * 500))
    assert told.startswith("ConnectionError: no answer from https://***@host x") and len(told) == 300
