"""Bars of long work: drawn on a terminal where the caller wants them, gone afterwards, and nothing anywhere else."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import time

import pytest
from rich.console import Console

from seu_bench.utils import progress as bars

#: What hides and shows a terminal's cursor.
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "DELAY", -1.0)


def page(*, terminal: bool = True) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=terminal, width=100, color_system=None), text


def test_unasked_nothing_is_drawn(capfd: pytest.CaptureFixture[str]) -> None:
    assert list(bars.track("abc", "spelling")) == ["a", "b", "c"]
    with bars.bar("working", 3) as advance:
        advance(2)
    with bars.show_progress():  # standard error is no terminal here
        assert list(bars.track(iter("abc"), "spelling")) == ["a", "b", "c"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("reason", ["file", "moment", "hidden"])
def test_nothing_in_a_file_or_for_a_moment(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "DELAY", 30.0 if reason == "moment" else -1.0)
    console, text = page(terminal=reason != "file")
    with bars.show_progress(console):
        if reason == "hidden":
            with bars.hide_progress():
                list(bars.track(range(4), "adding"))
        else:
            assert sum(bars.track(range(4), "adding")) == 6
    assert text.getvalue() == ""


def test_drawn_while_work_lasts() -> None:
    """Work in other work has a line below; names are shown as they are; in the end the lines are wiped out."""
    console, text = page()
    with bars.show_progress(console):
        for _ in bars.track(range(2), "outer [red]\x1b[31m"):
            with bars.bar("inner") as advance:
                advance(3)
                time.sleep(0.3)  # they are drawn anew ten times a second
        drawn = text.getvalue()
        assert "outer [red] [31m" in drawn
        assert "inner" in drawn and "3/?" in drawn and "1/2" in drawn
        assert (drawn.count(HIDE), drawn.count(SHOW)) == (1, 1)
        assert "\x1b[2K" in drawn[drawn.rindex("inner") :]


def test_given_up_in_the_middle() -> None:
    """The terminal is as it was when work fails, though somebody still holds what was half done."""
    console, text = page()
    with pytest.raises(ZeroDivisionError), bars.show_progress(console):
        half_done = bars.track(range(3), "dividing")
        for number in half_done:
            1 / (1 - number)
    assert text.getvalue().count(HIDE) == text.getvalue().count(SHOW) == 1
    half_done.close()
    assert text.getvalue().count(SHOW) == 1


def test_real_terminal() -> None:
    """On a terminal the bar is on standard error, though that is sent elsewhere meanwhile; standard output is clean."""
    code = """
import contextlib, io, time
from seu_bench.utils import progress as bars
with bars.show_progress(), contextlib.redirect_stderr(io.StringIO()):
    for _ in bars.track(range(2), "working"):
        time.sleep(0.4)
print("result")
"""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    ) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                seen += os.read(ours, 4096)
            except OSError:  # the other side is closed
                break
        out = process.stdout.read() if process.stdout else b""
    os.close(ours)
    assert (process.returncode, out) == (0, b"result\n")
    assert b"working" in seen and b"1/2" in seen
    assert b"\x1b[2K" in seen[seen.rindex(b"working") :] and SHOW.encode() in seen
