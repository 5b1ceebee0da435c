"""Files of the page's buttons: numbers are numbers, nothing is a formula, and leaderboards are as their own files."""

from __future__ import annotations

import base64
import csv
import io
from pathlib import Path

from support.report_records import HOSTILE, put_all

from seu_bench.results.building import make_leaderboards
from seu_bench.results.formats import to_csv, to_latex
from seu_bench.results.report.page.downloads import Download, board_files, table_files


def content(found: Download) -> bytes:
    kind, _, text = found.href.partition(";base64,")
    assert kind in ("data:text/csv;charset=utf-8", "data:text/plain;charset=utf-8")
    return base64.b64decode(text)


def test_means_and_deviations_are_columns() -> None:
    """What was not measured is blank; a number may be negative."""
    rows = [["name", "acc (%)", "fall"], ["a", "97.1 ± 0.2", "-1.50"], ["b", "96.0", "-"]]
    table, latex = table_files("x", rows)
    assert (table.name, table.label, latex.name, latex.label) == ("x.csv", "CSV", "x.tex", "LaTeX")
    found = list(csv.reader(io.StringIO(content(table).decode())))
    assert found == [
        ["name", "acc (%)", "acc (%) deviation", "fall"],
        ["a", "97.1", "0.2", "-1.50"],
        ["b", "96.0", "", ""],
    ]
    assert r"\toprule" in content(latex).decode() and r"acc (\%)" in content(latex).decode()


def test_no_formula() -> None:
    """A spreadsheet calculates nothing of a name, and LaTeX runs nothing."""
    table, latex = table_files("x", [["name"], ["=1+1"], ["+cmd|' /C calc'!A0"], [HOSTILE]])
    names = [row[0] for row in csv.reader(io.StringIO(content(table).decode()))]
    assert names[1:3] == ["'=1+1", "'+cmd|' /C calc'!A0"] and names[3].startswith("<script>")
    assert r"\frac" not in content(latex).decode()


def test_leaderboards_are_their_files(tmp_path: Path) -> None:
    """Byte by byte; of very many rows only those of the page."""
    (board,) = make_leaderboards(put_all(tmp_path)).boards
    table, latex = board_files(board, 1000)
    assert content(table) == (tmp_path / "leaderboards" / table.name).read_bytes() == to_csv([board]).encode()
    assert content(latex) == to_latex(board).encode()
    few = content(board_files(board, 2)[0]).decode()
    assert len(few.splitlines()) == 1 + 2 + len(board.references)
