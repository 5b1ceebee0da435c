"""The report: what is on the page, what is said of what is not, and what strangers' records cannot do to it."""

from __future__ import annotations

import base64
import csv
import gc
import hashlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.board_records import Put, frame, leaderboards
from support.commands import Command
from support.report_records import HOSTILE, published, put, put_all

from seu_bench.errors import ResultsError
from seu_bench.results import Layout, write_report
from seu_bench.results.report.page import ReportFiles


class Page(HTMLParser):
    """The elements of a page, the text of each table's rows, and its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.texts: list[str] = []
        self.scripts: list[tuple[str | None, str]] = []
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self._cell = True
        elif tag == "script":
            self.scripts.append((dict(attrs).get("type"), ""))

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            kind, before = self.scripts[-1]
            self.scripts[-1] = kind, before + data
            return
        self.texts.append(data)
        if self._cell:
            self.tables[-1][-1][-1] += data.replace("\u00a0", " ")

    def all(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attributes for name, attributes in self.elements if name == tag)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def page_of(written: ReportFiles) -> Page:
    return Page(written.page.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Published records, one of another group, and one that cannot be ranked."""
    folder = put_all(tmp_path_factory.mktemp("results"))
    put(folder, published("naive", 0), run_id="other", benchmark="other")
    put(folder, published("naive", 0), run_id="failed", status="failed")
    return folder


@pytest.fixture(scope="module")
def written(results: Path) -> ReportFiles:
    return write_report(results, top=2, layout=Layout())


class TestPage:
    def test_leaderboards(self, results: Path, written: ReportFiles) -> None:
        """Accuracies with their spread, as ``seu-bench leaderboard`` has them."""
        boards = leaderboards(results)
        shown = [table for table in page_of(written).tables if table[0][:3] == ["rank", "configuration", "seeds"]]
        assert len(shown) == len(boards) == 2
        for (head, *rows), board in zip(shown, boards, strict=True):
            assert head[3:] == [board.heading(key) for key in board.columns]
            assert [row[1].removesuffix(" †") for row in rows] == list(frame(board)["configuration"])
            assert [row[3:] for row in rows] == [texts[3:] for texts in board.cells()]

    def test_summary(self, results: Path, written: ReportFiles) -> None:
        """The best of each benchmark, and its cost."""
        summary, *_ = page_of(written).tables
        _, board = leaderboards(results)
        best = board.rows[0]
        row = dict(zip(summary[0], summary[2], strict=True))
        assert row["benchmark"] == "split_digits, protocol quick" and row["most accurate"] == best.configuration
        assert row["accuracy (%)"].startswith(f"{100 * (best.mean('acc') or 0):.2f} ± ") and row["seeds"] == "3"

    def test_sizes(self, tmp_path: Path, put: Put) -> None:
        """The most accurate that is at most as large, and what is not significantly worse of these."""
        found = {"small": (1.02, 50, 51, 52), "worse": (1.5, 20, 20, 21), "even": (3.11, 70, 74, 71)}
        for strategy, (size, *values) in (found | {"best": (3.12, 73, 72, 74), "huge": (9, 73, 71, 72)}).items():
            for seed, acc in enumerate(values):
                put(seed, acc / 100, strategy=strategy, metrics={"acc": acc / 100, "memory_bytes": size * 1e6})
        _, *rows = page_of(write_report(tmp_path, top=0)).tables[0]
        assert rows == [["up to 1.1", "small", "51.00 ± 1.00", "-"], ["up to 3.2", "best", "73.00 ± 1.00", "≈ even"]]

    def test_figures(self, results: Path, written: ReportFiles) -> None:
        """Each has a chart, a table of its numbers, a caption, and files of three formats beside the page."""
        page = page_of(written)
        there = sorted((results / "figures").iterdir())
        assert there == sorted(written.figures) and len(there) == 3 * 6
        charts = [json.loads(text) for kind, text in page.scripts if kind == "application/json"]
        assert len(charts) == len(list(page.all("figure"))) == len(list(page.all("figcaption"))) == 6
        assert {f"figures/{path.name}" for path in there} <= {link["href"] for link in page.all("a")}
        assert (results / "figures" / "split_digits-v1-quick-accuracy-parameters.pdf") in there

    def test_loads_nothing(self, written: ReportFiles) -> None:
        """One file that opens from disk; only our script and the library may run."""
        page = page_of(written)
        (policy,) = [str(it["content"]) for it in page.all("meta") if it.get("http-equiv") == "Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src 'sha")
        addresses = [str(a.get("src") or a.get("href")) for _, a in page.elements if {"src", "href"} & a.keys()]
        assert {re.match(r"data:|#|figures/", address) is not None for address in addresses} == {True}
        (script,) = [text for kind, text in page.scripts if kind is None]
        assert f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy

    def test_tables_as_files(self, written: ReportFiles) -> None:
        links = {it.get("download"): str(it["href"]) for it in page_of(written).all("a")}
        table, latex = (base64.b64decode(links[f"split_digits-v1-quick.{it}"][37:]).decode() for it in ("csv", "tex"))
        board = list(csv.DictReader(io.StringIO(table)))
        assert len(board) == 6 and 0 < float(board[0]["acc_mean"]) <= 1 and r"\toprule" in latex

    def test_what_is_left_out_is_said(self, written: ReportFiles) -> None:
        text = page_of(written).text
        assert "the run is failed, not finished (failed)" in text
        assert "2 of 5 configurations are drawn" in text

    @pytest.mark.long
    def test_same_bytes_again(self, results: Path, written: ReportFiles, tmp_path: Path) -> None:
        again = write_report(results, tmp_path / "again.html", top=2, layout=Layout())
        assert again.page.read_bytes() == written.page.read_bytes()
        assert {path.parent for path in again.figures} == {tmp_path / "figures"}


class TestStrangers:
    def test_names_are_text(self, tmp_path: Path) -> None:
        """Wherever a record can say something, markup of it stays text."""
        record = published("seu", 0)
        fields = dict.fromkeys(("strategy", "searcher", "creator", "started", "data_fingerprint"), HOSTILE) | {
            "task_names": [HOSTILE] * 5,
            "environment": {"device": HOSTILE},
            "stages": [{**stage.model_dump(), "name": HOSTILE} for stage in record.stages],
        }
        put(tmp_path, record, run_id="a", options={"value": HOSTILE, HOSTILE: 1}, **fields)
        put(tmp_path, record, run_id="b", options={"value": 7}, **fields)
        put(tmp_path, record, run_id="c", status="failed", error=HOSTILE)
        written = write_report(tmp_path, layout=Layout())
        text = written.page.read_text(encoding="utf-8")
        assert "<img src=x" not in text and "\x1b" not in text and "{{7*7}}" in text
        page = Page(text)
        assert text.count("<script") == text.count("</script") == len(page.scripts)
        assert {kind for kind, _ in page.scripts} == {None, "text/plain", "application/json"}
        charts = [json.loads(text) for kind, text in page.scripts if kind == "application/json"]
        assert len(charts) == len(written.figures) / 3 == 3
        assert "&lt;script&gt;alert(1)" in charts[0]["data"][0]["name"] and "<script" not in json.dumps(charts)
        assert not any("alert(1)" in text for kind, text in page.scripts if kind is None)
        assert not [a for _, a in page.elements if any(key.startswith("on") for key in a)]
        assert any("<script>alert(1)</script>" in "".join(row) for row in page.tables[0])
        assert {path.parent for path in written.figures} == {tmp_path / "figures"}

    def test_broken_records_are_named(self, tmp_path: Path) -> None:
        """They take nothing from the others: one that cannot be read, one in another folder, one of a huge stream."""
        put_all(tmp_path, ["naive"])
        (folder,) = (tmp_path / "runs").glob("*-seed1-*")
        folder.rename(folder.with_name("elsewhere"))
        put(tmp_path, published("seu", 0), task_names=["x"] * 2000, accuracy_matrix=[[0.5]] * 2000)
        (tmp_path / "runs" / "broken").mkdir()
        (tmp_path / "runs" / "broken" / "record.json").write_text("{")
        written = write_report(tmp_path)
        text = page_of(written).text
        assert "broken" in text and any("broken" in line for line in written.outside)
        assert "streams of more than 100 tasks" in text and "protocol quick, 3 seeds" in text
        assert "Average accuracy on the tasks learned so far" in text

    def test_a_link_in_place_of_the_figures(self, tmp_path: Path) -> None:
        put_all(tmp_path, ["naive"], [0])
        (tmp_path / "outside").mkdir()
        (tmp_path / "figures").symlink_to(tmp_path / "outside")
        with pytest.raises(ResultsError, match="this is a link"):
            write_report(tmp_path, layout=Layout())
        assert not list((tmp_path / "outside").iterdir()) and not (tmp_path / "report.html").exists()


def test_references_are_apart(tmp_path: Path) -> None:
    """They are drawn beside others, the best of those that are the same, and never alone."""
    put_all(tmp_path, ["joint"])
    assert not list(page_of(write_report(tmp_path)).all("figure"))
    put_all(tmp_path, ["naive"])
    chart = json.loads(page_of(write_report(tmp_path)).scripts[0][1])
    assert [trace["name"] for trace in chart["data"]] == ["naive", "reference: joint", "front"]


class TestCommand:
    def test_writes_and_says_where(self, command: Command, tmp_path: Path) -> None:
        put_all(tmp_path, ["naive"], [0])
        page = tmp_path / "elsewhere" / "page.html"
        answer = command("report", "--results", tmp_path, "--output", page, "--figures", "icml")
        assert (answer.status, answer.err) == (0, "")
        assert f"report: {page} (1 group)" in answer.out and "figures: 3 in" in answer.out
        assert page.is_file() and len(list((tmp_path / "elsewhere" / "figures").iterdir())) == 9
        assert not (tmp_path / "report.html").exists()
        assert f"figures: 3 in {tmp_path / 'figures'}" in command("report", "--figures", "--results", tmp_path).out
        assert gc.isenabled()  # it was not

    def test_filters(self, command: Command, tmp_path: Path) -> None:
        put_all(tmp_path, ["naive"], [0])
        put(tmp_path, published("naive", 0), run_id="b", benchmark="other")
        put(tmp_path, published("naive", 0), run_id="c", protocol="long")
        for asked, title in (
            (["--benchmark", "other"], "other, version 1, protocol quick"),
            (["--protocol", "long"], "split_digits, version 1, protocol long"),
        ):
            assert command("report", "--results", tmp_path, "--top", 0, *asked).status == 0
            page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
            assert [link["href"] for link in page.all("a")][1:2] == ["#group-0"] and title in page.text

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (["--benchmark", "nowhere"], "no record can be reported"),
            (["--figures", "ten"], "'ten' is no width"),
            (["--output", "report.html/page.html"], "cannot write results"),
            (["--output", "report.pdf"], "is not called one"),
            (["--output", "report"], "is not called one"),
        ],
    )
    def test_what_cannot_be(self, command: Command, tmp_path: Path, options: list[str], said: str) -> None:
        """The page that is there stays."""
        put_all(tmp_path, ["naive"], [0])
        (tmp_path / "report.html").write_text("before")
        options = [str(tmp_path / each) if each.startswith("report") else each for each in options]
        answer = command("report", "--results", tmp_path, "--top", 0, *options)
        assert answer.status == 2 and said in answer.err and "Traceback" not in answer.err
        assert (tmp_path / "report.html").read_text() == "before"

    def test_no_records(self, command: Command, tmp_path: Path) -> None:
        answer = command("report", "--results", tmp_path)
        assert answer.status == 2 and "there are no records yet" in answer.err
        assert list(tmp_path.iterdir()) == []

    def test_never_ranked(self, command: Command, tmp_path: Path) -> None:
        """Refused, with the reason."""
        put(tmp_path, published("naive", 0), ranked=False, protocol="smoke")
        answer = command("report", "--results", tmp_path)
        assert answer.status == 2 and "protocol 'smoke' is never ranked" in answer.err


def test_no_torch_and_no_matplotlib(tmp_path: Path) -> None:
    """A page needs neither."""
    put_all(tmp_path, ["naive"], [0])
    code = f"import sys; from seu_bench.results.report.page import *; write_report(Path({str(tmp_path)!r}))\n"
    loaded = subprocess.check_output([sys.executable, "-c", f"{code}print(sys.modules)"], text=True)
    assert "numpy" in loaded and not re.search("'(torch|avalanche|matplotlib)'", loaded)
