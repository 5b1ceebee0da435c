"""Leaderboards as LaTeX: they compile, whatever records hold, and bold and notes say what the marks of a page say."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.board_records import ODD, Put, leaderboards

from seu_bench.results.formats import plain_table, to_latex, usual_columns
from seu_bench.utils.text import escape_latex

#: Everything that means something to LaTeX, accents that it knows and letters that it does not.
HOSTILE = "\\input{/etc/passwd} $x$ a_b^c~#1 50 % & [x] -- \"q\" 'a' é ß ą λ 中 \N{SUBSCRIPT TWO}\\end{table}"


def parsed(latex: str) -> list[list[str]]:
    """Cells of the lines of a ``tabular``; the whole text must have balanced braces, formulas and environments."""
    text = re.sub(r"(?m)(?<!\\)%.*$", "", latex)
    plain = re.sub(r"\\[&%$#_{}\\]", "", text)
    depth = 0
    for letter in plain:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        assert depth >= 0
    assert depth == 0 and plain.count("$") % 2 == 0 and "#" not in plain
    assert not set("^_") & set(re.sub(r"\$[^$]*\$", "", plain))
    opened: list[str] = []
    for what, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if what == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert not opened
    (body,) = re.findall(r"\\begin\{tabular\}.*?\n(.*)\\end\{tabular\}", text, re.DOTALL)
    lines = [line.strip() for line in body.splitlines() if not line.strip().startswith(r"\toprule")]
    rows = [line.removesuffix(r"\\") for line in lines if line.endswith(r"\\")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)&", row)] for row in rows]


def test_marks_are_bold_underlined_and_explained(tmp_path: Path, put: Put) -> None:
    for seed, noise in enumerate((0.0, 0.02, -0.01, 0.01)):
        put(seed, 0.8 + noise, strategy="best", parameters=1_234_567_000)
        put(seed, 0.79 - noise, strategy="near")
        put(seed, 0.3 + noise, strategy="far")
        put(seed, 0.9 + noise, strategy="joint")
    put(0, strategy="few", metrics={"acc": 0.4, "forgetting": None})
    (board,) = leaderboards(tmp_path)
    latex = to_latex(board)
    headings, *rows = parsed(latex)
    assert usual_columns(board) == ["acc", "forgetting", "memory_bytes", "train_flops"]
    assert {len(row) for row in [headings, *rows]} == {3 + 4} and headings[4] == r"\shortstack[r]{forgetting \\ (\%)}"
    cells = {row[1]: row for row in rows}
    assert cells["best"][3] == r"$\mathbf{80.50} \pm 1.29$"
    assert cells["near"][3] == r"$\underline{78.50} \pm 1.29$"
    assert (cells["far"][3], cells["few"][2:5]) == (r"$30.50 \pm 1.29$", [r"1 $\ddagger$", "$40.00^{?}$", "--"])
    assert cells["joint"][0] == r"$\circ$" and cells["joint"][3] == r"$90.50 \pm 1.29$"
    assert cells["best"][5] == r"$6{,}172.835 \pm 0.000$"
    assert latex.index(r"\midrule", latex.index("far")) < latex.index("& joint")
    assert "Bold: the highest mean" in latex and "underlined: not significantly" in latex
    empty = to_latex(board.view([], "nothing keeps to it"))
    assert len(parsed(empty)) == 1 and "Nothing keeps to it: 5 rows excluded" in empty


def test_hostile_names(tmp_path: Path, put: Put) -> None:
    hostile_board(put)
    (board,) = leaderboards(tmp_path)
    headings, *rows = parsed(to_latex(board))
    assert {len(row) for row in rows} == {len(headings)}
    shown = " ".join(row[1] for row in rows)
    assert r"\textbackslash{}input\{/etc/passwd\}" in shown and r"\input" not in shown
    assert "é" in shown and "(U+03BB)" in shown and "-{}-{}" in shown


def hostile_board(put: Put) -> None:
    """A leaderboard whose names are those of strangers."""
    for seed in range(3):
        put(seed, 0.5 + seed / 10, options={"x": HOSTILE})
        put(seed, 0.4, options={"x": ODD}, strategy=ODD)
        put(seed, 0.3)


def test_a_table_of_plain_text() -> None:
    assert parsed(plain_table(["run & seed", "acc (%)"], [["a_b", "1 ± 2"], ["[x]", "-"]])) == [
        [r"run \& seed", r"acc (\%)"],
        [r"a\_b", r"1 $\pm$ 2"],
        ["{[}x{]}", "-{}"],
    ]


def test_escaped_text_is_on_one_line() -> None:
    assert escape_latex("a\n\\b\x1b") == r"a \textbackslash{}b"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.long
def test_it_compiles(tmp_path: Path, put: Put) -> None:
    hostile_board(put)
    put(0, 0.2, strategy="joint")
    (board,) = leaderboards(tmp_path)
    tables = to_latex(board) + to_latex(board, list(board.columns)).replace(r"\label", r"\footnotesize % ")
    tables += plain_table(["a", "b"], [[HOSTILE, ODD]])
    preamble = r"\documentclass{article}\usepackage{booktabs}\begin{document}"
    (tmp_path / "page.tex").write_text(f"{preamble}\n{tables}\\end{{document}}\n", encoding="utf-8")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "page.tex"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
