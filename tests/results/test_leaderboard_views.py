"""Ranks, marks, budgets and fronts of leaderboards, by brute force and as they are shown, as LaTeX as well."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.board_records import COLUMNS, ODD, Put, leaderboards, writer
from support.commands import Command

from seu_bench.errors import OptionError
from seu_bench.plugin.registry import Registry
from seu_bench.results.building import read_leaderboards
from seu_bench.results.formats import to_bibtex, to_latex, to_markdown, usual_columns
from seu_bench.results.leaderboard import SHORT_NAMES, Leaderboard, not_dominated, parse_view
from seu_bench.results.names import bibtex_entries, resolve_citation
from seu_bench.utils.text import escape_latex

#: What a protocol allows, which a caption says.
BUDGET = {"training": {"epochs": 8}}


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Leaderboard:
    """Sixty configurations of two seeds, among them equal ones and some without a size."""
    results = tmp_path_factory.mktemp("crowd")
    write, generator = writer(results), random.Random(0)
    for index in range(60):
        acc, parameters = generator.randrange(1, 9) / 10, generator.randrange(1, 9) * 1_000_000
        for seed in range(2):
            fields: dict[str, Any] = {"strategy": f"s{index:02d}", "parameters": parameters}
            if index % 10 == 9:
                fields["metrics"] = {"acc": acc, "mixed_score": acc}
            write(seed, acc + seed / 1000, **fields)
    (board,) = leaderboards(results)
    return board


def strategies(board: Leaderboard) -> list[str]:
    return [row.record.strategy for row in board.rows]


def test_ranks_are_by_accuracy(tmp_path: Path, put: Put) -> None:
    """Not by mixed score, of which the smallest has the highest; equal means, equal ranks."""
    rows = {"dominated_most": (0.8, 9_000_000), "small": (0.6, 1_000), "middle": (0.7, 100_000)}
    rows |= {"large": (0.9, 5_000_000), "dominated_least": (0.5, 2_000), "as_middle": (0.7, 100_000)}
    for strategy, (acc, parameters) in rows.items():
        put(0, acc, strategy=strategy, parameters=parameters)
    (board,) = leaderboards(tmp_path)
    assert strategies(board) == ["large", "dominated_most", "as_middle", "middle", "small", "dominated_least"]
    assert [row.number for row in board.rows] == [1, 2, 3, 4, 5, 6]
    assert [row[0] for row in board.cells()] == ["● 1", "2", "● 3", "● 3", "● 5", "6"]


class TestMarks:
    def test_of_each_kind(self, tmp_path: Path, put: Put) -> None:
        accuracies = {
            "best": (0.90, 0.92, 0.94), "within": (0.91, 0.90, 0.93), "apart": (0.80, 0.82, 0.84), "few": (0.1, 0.1),
        }  # fmt: skip
        for strategy, values in accuracies.items():
            for seed, acc in enumerate(values):
                put(seed, acc, strategy=strategy)
        put(7, 0.2, strategy="elsewhere")
        put(0, strategy="nothing", metrics={})
        (board,) = leaderboards(tmp_path)
        assert strategies(board) == ["best", "within", "apart", "elsewhere", "few", "nothing"]
        said = ["best", "not significant", "significant", "too few seeds", "too few seeds", None]
        assert board.standings("mixed_score") == board.standings("acc") == said
        assert [row["acc_against_best"] for row in board.table()] == said
        assert [row[3][:2] for row in board.cells(["acc"])] == ["* ", "≈ ", "82", "? ", "? ", "-"]
        page = to_markdown(board)
        assert r"\* 92.00 ± 2.00" in page and "paired t-test over the seeds that both have" in page

    def test_more_rows_ask_for_clearer_differences(self, tmp_path: Path, put: Put) -> None:
        """Holm's correction over the rows shown: beside four more rows a difference is significant no longer."""
        for seed, acc in enumerate((0.90, 0.91, 0.92, 0.93)):
            put(seed, acc, strategy="best")
        for name in ("one", "two", "three", "four", "five"):
            for seed, acc in enumerate((0.84, 0.87, 0.85, 0.90)):
                put(seed, acc, strategy=name)
        (board,) = leaderboards(tmp_path)
        alone = board.view([row for row in board.rows if row.record.strategy in ("best", "one")], "two rows")
        assert alone.standings("acc") == ["best", "significant"]
        assert board.standings("acc") == ["best", *["not significant"] * 5]

    def test_only_common_seeds_count(self, tmp_path: Path, put: Put) -> None:
        """Seeds 3 to 5 are hard: a row that lacks them has a higher mean and is no better; one seed is no best."""
        for seed, hard in enumerate((0.0, 0.01, 0.0, 0.4, 0.41, 0.4)):
            put(seed, 0.9 - hard, strategy="best")
            put(seed, 0.8 - hard + seed / 1000, strategy="second")
            if seed < 3:
                put(seed, 0.85 - hard, strategy="easy")
        put(0, 0.99, strategy="once")
        (board,) = leaderboards(tmp_path)
        assert strategies(board) == ["once", "easy", "best", "second"]
        assert [row.rank for row in board.rows] == [None, 2, 1, 3]
        assert board.standings("acc") == ["too few seeds", "significant", "best", "significant"]
        assert [row[2] for row in board.cells()] == ["1 ‡", "3 ‡", "6", "6"]
        said = "‡ lacks some of the seeds 0-5, which most rows have"
        assert said in to_markdown(board) and said in board._repr_html_()


class TestSize:
    @pytest.mark.parametrize(("old", "size", "front"), [(None, "memory_bytes", "nr"), (20_000, "params_total", "r")])
    def test_parameters_stand_for_memory_in_old_records(
        self, tmp_path: Path, put: Put, old: int | None, size: str, front: str
    ) -> None:
        """A buffer of images is no parameter; one row without memory suffices: all are compared by what all have."""
        put(0, strategy="r", metrics={"acc": 0.8, "params_total": 10_000, "memory_bytes": 4_000_000})
        put(0, strategy="n", metrics={"acc": 0.7, "params_total": 20_000, "memory_bytes": 80_000})
        put(0, strategy="sizeless", metrics={"acc": 0.9, "params_total": old and 10**6, "memory_bytes": None})
        (board,) = leaderboards(tmp_path)
        assert board.size == size
        on_front = {row.record.strategy for row in board.rows if row.on_front} - {"sizeless"}
        assert on_front == set(front)
        assert ("memory was not measured for 1 row" in to_markdown(board)) == (old is not None)

    def test_numbers_too_large_to_count_with(self, tmp_path: Path, put: Put) -> None:
        put(0, strategy="strange", metrics={"acc": 0.5, "params_total": 1.7e308, "mixed_score": 0.1})
        assert leaderboards(tmp_path)[0].rows[0].on_front


class TestBudget:
    @pytest.mark.parametrize("limit", [1, 4_000_000, 4_500_000, 1e12])
    def test_by_brute_force(self, crowd: Leaderboard, limit: float) -> None:
        view = parse_view([f"params={limit}"])(crowd)
        assert list(view.rows) == [row for row in crowd.rows if 0 < (row.mean("params_total") or 0) <= limit]
        over = sum((row.mean("params_total") or 0) > limit for row in crowd.rows)
        (told,) = view.views
        assert told.startswith(f"parameters (M) at most {limit / 1e6:,.3f}: ")  # and 6 that were not measured
        assert f": {over + 6} row" in told

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("parms=5", "did you mean 'params'?"),
            ("acc=0.5", "no such metric"),
            ("", "no such metric"),
            *[(f"params={it}", "is no positive number") for it in ("", "many", "-1", "0", "nan", "inf")],
        ],
    )  # fmt: skip
    def test_faults(self, text: str, said: str) -> None:
        with pytest.raises(OptionError, match="--budget") as caught:
            parse_view([text])
        assert said in str(caught.value) and caught.value.remedy


class TestPareto:
    @pytest.mark.parametrize(
        "axes", ["acc,params_total", "acc,memory", "acc,macs,seconds", "mixed_score,forgetting", "params_total,macs"]
    )
    def test_by_brute_force(self, crowd: Leaderboard, axes: str) -> None:
        metrics = [SHORT_NAMES.get(name, name) for name in axes.split(",")]
        signs = [1 if COLUMNS[metric].higher_is_better else -1 for metric in metrics]
        points = {
            row: [sign * (row.mean(metric) or 0.0) for sign, metric in zip(signs, metrics, strict=True)]
            for row in crowd.rows
            if all(row.mean(metric) is not None for metric in metrics)
        }
        front = [
            row
            for row, mine in points.items()
            if not any(its != mine and all(a >= b for a, b in zip(its, mine, strict=True)) for its in points.values())
        ]
        view = parse_view(pareto=axes)(crowd)
        assert list(view.rows) == front == not_dominated(crowd.rows, metrics)
        (told,) = view.views
        assert f": {len(crowd.rows) - len(front)} rows excluded" in told

    @pytest.mark.parametrize("text", ["acc", "acc,acc", "acc,params,params_total", "acc,size", ",", "acc,,params"])
    def test_faults(self, text: str) -> None:
        with pytest.raises(OptionError, match="--pareto"):
            parse_view(pareto=text)


def test_sort(tmp_path: Path, put: Put) -> None:
    """The best first by the metric's direction; numbers stay; the unmeasured are last."""
    put(0, 0.9, strategy="large", parameters=9_000_000)
    put(0, 0.5, strategy="small", parameters=1_000)
    put(0, strategy="nothing", metrics={"acc": 0.4})
    (board,) = leaderboards(tmp_path)
    by_size = parse_view(sort="params")(board)
    assert strategies(by_size) == ["small", "large", "nothing"]
    assert [row.number for row in by_size.rows] == [2, 1, 3]
    assert by_size.views == ("sorted by parameters (M), the lowest first",)
    with pytest.raises(OptionError, match="did you mean 'mixed_score'"):
        parse_view(sort="mixed_scor")


class TestCommand:
    @pytest.fixture
    def results(self, tmp_path: Path, put: Put) -> Path:
        for seed, acc in enumerate((0.5, 0.6, 0.55)):
            put(seed, acc, strategy="small")
            put(seed, acc + 0.3, strategy="large", parameters=20_000_000)
            put(seed, acc - 0.1, strategy=ODD, parameters=30_000_000)
            put(seed, acc, strategy="other", benchmark="pmnist")
        return tmp_path

    def test_views_change_what_is_shown_and_no_file(self, command: Command, results: Path) -> None:
        whole = command("leaderboard", "--results", results)
        files = {path: path.read_bytes() for path in (results / "leaderboards").glob("[a-z]*")}
        assert whole.status == 0 and len(files) == 4
        view = command("leaderboard", "--results", results, "--budget", "memory=25e6", "--benchmark", "cifar10")
        assert "memory (MB) at most 25.000: 2 rows excluded (" in view.out
        table = view.out.partition("95 %")[0]
        assert "small" in table and "large" not in table and "pmnist, version" not in view.out
        front = command("leaderboard", "--pareto", "--results", results, "--benchmark", "cifar10").out
        assert "Pareto front of acc (%) and memory (MB)" in " ".join(front.split())
        assert {path: path.read_bytes() for path in (results / "leaderboards").glob("[a-z]*")} == files

    def test_json_of_several(self, command: Command, results: Path) -> None:
        asked = ("--budget=params=25e6", "--pareto=acc,seconds", "--columns=acc,memory", "--format=json")
        board, _ = json.loads(command("leaderboard", "--results", results, *asked).out)
        assert len(board["views"]) == 2
        assert [row["strategy"] for row in board["rows"]] == ["large", "small"]
        assert [row["against_best"]["acc"] for row in board["rows"]] == ["best", "significant"]
        assert [list(row["metrics"]) for row in board["rows"]] == [["acc", "memory_bytes"]] * 2

    @pytest.mark.parametrize(
        ("form", "said"), [("table", "no row is left"), ("md", "0 configurations"), ("csv", ""), ("json", '"rows": []')]
    )
    def test_nothing_left(self, command: Command, results: Path, form: str, said: str) -> None:
        answer = command("leaderboard", "--results", results, "--budget", "params=1", "--format", form)
        assert (answer.status, said in answer.out) == (0, True)

    @pytest.mark.parametrize("words", [("--budget", "size=3"), ("--pareto", "acc,size"), ("--columns=acx",)])
    def test_refused_before_anything_is_written(self, command: Command, results: Path, words: tuple[str, ...]) -> None:
        answer = command("leaderboard", "--results", results, *words)
        assert (answer.status, answer.out) == (2, "") and "Traceback" not in answer.err
        assert not (results / "leaderboards").exists()


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


@pytest.mark.parametrize("seeds", [1, 3])
def test_names_and_citations_are_as_papers_have_them(seeds: int, tmp_path: Path, put: Put, command: Command) -> None:
    for seed in range(seeds):
        put(seed, 0.5 + seed / 10, strategy="er_ace", options={"x": 1}, benchmark="pmnist", protocol_settings=BUDGET)
        put(seed, 0.4 + seed / 10, strategy="er_ace", options={"x": 2}, benchmark="pmnist", protocol_settings=BUDGET)
        put(seed, 0.3 + seed / 10, strategy="stranger", benchmark="pmnist", protocol_settings=BUDGET)
    (board,) = read_leaderboards(tmp_path, installed=Registry().kinds).boards
    latex = to_latex(board)
    caption = latex.partition("caption{")[2].partition("label")[0]
    headings, first, _, last = parsed(latex)
    assert headings[:3] == ["rank", "method", r"\shortstack[r]{acc \\ (\%)}"]
    assert first[1] == r"ER-ACE (x=1)~\cite{caccia2022new}" and last[1] == "stranger"
    assert r"permuted MNIST, 10 tasks~\cite{wang2020lifelong," in caption
    assert r"goodfellow2013empirical}, task-incremental, protocol quick (8 epochs)" in caption
    assert [r"\pm" in latex, "over 3 seeds" in caption, "One seed." in caption] == [seeds > 1, seeds > 1, seeds == 1]
    assert "version" not in caption and board.data_fingerprint not in caption and "not tuned" in caption
    cited = ",".join(re.findall(r"cite\{(.*?)\}", latex)).split(",")
    assert {*cited} == {*bibtex_entries(to_bibtex([board]))}
    assert "er\\_ace" in to_latex(replace(board, installed={}))
    written = {
        form: command("leaderboard", "--results", tmp_path, "--format", form).out for form in ("latex", "bibtex")
    }
    assert written == {"latex": latex, "bibtex": to_bibtex([board])}


def test_hostile_names(tmp_path: Path, put: Put) -> None:
    hostile_board(put)
    (board,) = leaderboards(tmp_path)
    headings, *rows = parsed(to_latex(board))
    assert {len(row) for row in rows} == {len(headings)}
    shown = " ".join(row[1] for row in rows)
    assert r"\textbackslash{}input\{/etc/passwd\}" in shown and r"\input" not in shown
    assert "é" in shown and "(U+03BB)" in shown and "-{}-" in shown


def hostile_board(put: Put) -> None:
    """A leaderboard whose names are those of strangers."""
    for seed in range(3):
        put(seed, 0.5 + seed / 10, options={"x": HOSTILE})
        put(seed, 0.4, options={"x": ODD}, strategy=ODD)
        put(seed, 0.3)


def test_escaped_text_is_on_one_line() -> None:
    assert escape_latex("a\n\\b\x1b") == r"a \textbackslash{}b"
    assert escape_latex("a-b--c''d'") == "a-b-{}-c'{}'d'"


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
@pytest.mark.long
def test_it_compiles(tmp_path: Path, put: Put) -> None:
    hostile_board(put)
    put(0, 0.2, strategy="joint")
    put(0, 0.2, strategy="hat")
    (board,) = leaderboards(tmp_path)
    broken = SimpleNamespace(title=HOSTILE, citation=resolve_citation(HOSTILE, "mine", ODD))
    installed = {**Registry().kinds, "benchmarks": {board.benchmark: broken}}
    board = replace(board, installed=installed)
    (tmp_path / "methods.bib").write_text(to_bibtex([board]), encoding="utf-8")
    tables = to_latex(board) + to_latex(board, list(board.columns)).replace(r"\label", r"\footnotesize % ")
    preamble = r"\documentclass{article}\usepackage{booktabs}\begin{document}"
    end = r"\bibliographystyle{plain}\bibliography{methods}\end{document}"
    (tmp_path / "page.tex").write_text(f"{preamble}\n{tables}{end}\n", encoding="utf-8")
    latex = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "page.tex"]
    for tool in (latex, ["bibtex", "page"], latex, latex):
        done = subprocess.run(tool, cwd=tmp_path, capture_output=True, check=False)
        said = done.stdout.decode(errors="replace")
        assert done.returncode == 0, said[-2000:]
        assert tool == latex or "Warning" not in said
    assert "undefined" not in said
