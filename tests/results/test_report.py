"""The report: what is on the page, what is said of what is not, and what strangers' records cannot do to it."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.board_records import frame, leaderboards
from support.commands import Command
from support.report_records import HOSTILE, published, put, put_all, with_curves

from seu_bench.errors import ResultsError
from seu_bench.results.record import write_record
from seu_bench.results.report import Limits, ReportFiles, write_report
from seu_bench.results.report.paper import beside_ours, published_points
from seu_bench.results.report.sections import choose, read_sections

FEW = Limits(figures=1)
NONE = Limits(figures=0)
#: All kinds of figures, two groups, and some that are excluded.
SOME = Limits(configurations=2, figures=12, units=2)


class Page(HTMLParser):
    """The elements of a page and the text of each table's rows."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.texts: list[str] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
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

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data: str) -> None:
        if self.lasttag == "script" and self.cdata_elem == "script":
            attributes = self.elements[-1][1]
            before = self.scripts.pop()[1] if self.scripts and self.scripts[-1][0] is attributes else ""
            self.scripts.append((attributes, before + data))
            return
        self.texts.append(data)
        if self._cell:
            self.tables[-1][-1][-1] += data

    def all(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attributes for name, attributes in self.elements if name == tag)


def page_of(written: ReportFiles) -> Page:
    return Page(written.page.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Published records, one of another group, and one that cannot be ranked."""
    folder = put_all(tmp_path_factory.mktemp("results"))
    put(folder, published("naive", 0), run_id="other", benchmark_version=2)
    put(folder, published("naive", 0), run_id="failed", status="failed")
    write_record(folder, with_curves(published("seu", 0), search=3, training=3))
    return folder


@pytest.fixture(scope="module")
def written(results: Path) -> ReportFiles:
    return write_report(results, limits=SOME)


class TestPage:
    def test_leaderboards_are_those_of_the_leaderboard(self, results: Path, written: ReportFiles) -> None:
        page = page_of(written)
        boards = leaderboards(results)
        shown = [table for table in page.tables if table[0][1].startswith("configuration") and "seeds" in table[0]]
        assert len(shown) == len(boards) == 2
        for table, board in zip(shown, boards, strict=True):
            head, *rows = table
            assert head[3:] == [board.heading(key) for key in board.columns]
            assert [row[1] for row in rows] == list(frame(board)["configuration"])
            assert [row[3:] for row in rows] == [texts[3:] for texts in board.cells()]

    def test_every_figure(self, written: ReportFiles) -> None:
        images = list(page_of(written).all("img"))
        assert len(images) == len(written.figures) // 3 == 12
        for image in images:
            assert str(image["src"]).startswith("data:image/svg+xml;base64,")
            assert len(str(image["alt"])) > 60 and re.search(r"\d", str(image["alt"]))
            assert int(str(image["width"])) > 300 and int(str(image["height"])) > 100
        kinds = " ".join(path.stem for path in written.figures)
        wanted = ("accuracy-curves", "original-retained", "average-accuracy", "heat-maps", "accuracy-parameters")
        for kind in wanted:
            assert kinds.count(kind) == 6  # two groups, three files each

    def test_files(self, results: Path, written: ReportFiles) -> None:
        there = sorted((results / "figures").iterdir())
        assert there == sorted(written.figures)
        assert {path.suffix for path in there} == {".pdf", ".png", ".svg"}
        assert written.page == results / "report.html"
        for path in there:
            begins = {".pdf": b"%PDF-1.", ".png": b"\x89PNG", ".svg": b"<?xml"}
            assert path.read_bytes().startswith(begins[path.suffix])

    def test_loads_nothing(self, written: ReportFiles) -> None:
        page = page_of(written)
        (policy,) = [
            meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"
        ]
        assert policy is not None and policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
        assert "unsafe" not in policy
        loaded = [a for _, a in page.elements if {"src", "href", "action", "srcset", "poster"} & a.keys()]
        beside = [
            a for a in loaded if str(a.get("href")).startswith("figures/")
        ]  # links to files, for who has no script
        assert beside and all(a["download"] == str(a["href"]).removeprefix("figures/") for a in beside)
        addresses = [str(a.get("src") or a.get("href")) for a in loaded if a not in beside]
        assert {text.partition(":")[0] if ":" in text else text[0] for text in addresses} == {"data", "#"}
        executed = [text for a, text in page.scripts if "type" not in a]
        assert len(executed) == 2
        for text in executed:
            assert f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy
        assert not [a for _, a in page.elements if "style" in a or any(key.startswith("on") for key in a)]

    def test_structure(self, written: ReportFiles) -> None:
        """Landmarks of assistive technology: language, one main, headings in order, labels, no id twice."""
        page = page_of(written)
        (html,) = page.all("html")
        assert html["lang"] == "en"
        assert len(list(page.all("main"))) == len(list(page.all("h1"))) == 1
        levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch(r"h[1-6]", tag)]
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
        ids = [a["id"] for _, a in page.elements if "id" in a]
        assert len(ids) == len(set(ids))
        labelled = {label["for"] for label in page.all("label")}
        fields = [a for tag, a in page.elements if tag in ("input", "select")]
        assert fields and {field["id"] for field in fields} == labelled
        named = {a.get("aria-labelledby") for _, a in page.elements} - {None}
        assert named <= set(ids)
        boxes = [a for _, a in page.elements if a.get("role") == "group"]
        names = [box["aria-label"] for box in boxes if "aria-label" in box]
        assert boxes and len(names) == len(set(names))
        for region in boxes:
            assert region.get("aria-label") or region.get("aria-labelledby")
            assert region["tabindex"] == "0"

    def test_excluded_is_said(self, written: ReportFiles) -> None:
        text = " ".join(page_of(written).texts)
        assert "the run is failed, not finished (failed)" in text
        assert "figures are excluded: a report has at most 12 figures" in text

    @pytest.mark.long
    def test_same_bytes_again(self, results: Path, written: ReportFiles, tmp_path: Path) -> None:
        again = write_report(results, tmp_path / "again.html", limits=SOME)
        assert again.page.read_bytes() == written.page.read_bytes()
        assert again.figures == written.figures


class TestStrangers:
    @pytest.mark.long
    def test_names_are_text(self, tmp_path: Path) -> None:
        """Wherever a record can say something, markup of it stays text."""
        record = published("seu", 0)
        fields = {
            "strategy": HOSTILE,
            "searcher": HOSTILE,
            "creator": HOSTILE,
            "task_names": [HOSTILE] * 5,
            "started": HOSTILE,
            "data_fingerprint": HOSTILE,
            "environment": {"device": HOSTILE},
            "stages": [{**stage.model_dump(), "name": HOSTILE, "losses": [1.0, 0.5]} for stage in record.stages],
        }
        put(tmp_path, record, run_id="a", options={"value": HOSTILE, HOSTILE: 1}, **fields)
        put(tmp_path, record, run_id="b", options={"value": 7}, **fields)
        put(tmp_path, record, run_id="c", status="failed", error=HOSTILE)
        written = write_report(tmp_path, limits=Limits(units=1))
        text = written.page.read_text(encoding="utf-8")
        assert "<img src=x" not in text and "\x1b" not in text and "{{7*7}}" in text
        page = Page(text)
        kinds = Counter(a.get("type") for a, _ in page.scripts)
        assert text.count("<script") == text.count("</script") == len(page.scripts) == kinds.total()
        assert kinds.keys() == {None, "text/plain", "application/json"} and kinds[None] == 2
        charts = [json.loads(text) for a, text in page.scripts if a.get("type") == "application/json"]
        assert len(charts) == kinds["application/json"] == 4
        assert all("<script>alert(1)</script>" in chart["series"][0]["name"] for chart in charts)
        assert not any("alert(1)" in text for a, text in page.scripts if "type" not in a)
        assert not [a for _, a in page.elements if any(key.startswith("on") for key in a)]
        assert any("<script>alert(1)</script>" in "".join(row) for row in page.tables[0])
        assert {path.parent for path in written.figures} == {tmp_path / "figures"}
        assert all("<script" not in path.read_text() for path in written.figures if path.suffix == ".svg")

    def test_renamed_folder(self, tmp_path: Path) -> None:
        """A run whose folder has another name is found by its run id."""
        put_all(tmp_path, ["naive"])
        (folder,) = (tmp_path / "runs").glob("*-seed1-*")
        folder.rename(folder.with_name("elsewhere"))
        (section,), *_ = read_sections(tmp_path, None, None, Limits())
        assert [run.seed for run in section.drawn[0].runs] == [0, 1, 2] and section.notes == []

    def test_unreadable_records_are_named(self, tmp_path: Path) -> None:
        put_all(tmp_path, ["naive"], [0])
        broken = tmp_path / "runs" / "broken"
        broken.mkdir()
        (broken / "record.json").write_text("{")
        written = write_report(tmp_path, limits=NONE)
        assert "broken" in " ".join(page_of(written).texts) and any("broken" in line for line in written.outside)

    def test_a_long_stream(self, tmp_path: Path) -> None:
        """Its matrix is not drawn: it would be larger than what a report should hold. Its row is there."""
        record = published("naive", 0)
        put(tmp_path, record, task_names=["x"] * 2000, accuracy_matrix=[[0.5]] * 2000)
        put_all(tmp_path, ["seu"], [0])
        written = write_report(tmp_path, limits=FEW)
        page = page_of(written)
        assert "streams of more than 100 tasks are not drawn" in " ".join(page.texts)
        assert [row[1] for row in page.tables[0][1:]] == ["seu + mdl + mdl", "naive"]

    def test_a_link_in_place_of_the_figures(self, tmp_path: Path) -> None:
        put_all(tmp_path, ["naive"], [0])
        (tmp_path / "outside").mkdir()
        (tmp_path / "figures").symlink_to(tmp_path / "outside")
        with pytest.raises(ResultsError, match="this is a link"):
            write_report(tmp_path)
        assert not list((tmp_path / "outside").iterdir()) and not (tmp_path / "report.html").exists()


class TestPaper:
    def test_beside_ours(self, tmp_path: Path) -> None:
        """Where benchmark, version and protocol are the paper's; the differences are ours less the paper's."""
        for seed, accuracy in ((0, 0.5), (1, 0.6)):
            record = published("naive", seed)
            metrics = record.metrics | {"acc": accuracy, "params_total": 12_978_314}
            put(tmp_path, record, benchmark="split_cifar10", protocol="paper", metrics=metrics)
        (section,), *_ = read_sections(tmp_path, None, None, Limits())
        tables = beside_ours(("split_cifar10", 1, "paper"), section.drawn)
        assert len(tables) > 1 and "Mixed Score" in next(iter(tables))
        rows = [row for table in tables.values() for row in table]
        accuracy = next(row for row in rows if (row.method, row.what) == ("SGD", "accuracy (%)"))
        assert (accuracy.printed, accuracy.ours, accuracy.difference) == ("54.00", "55.00 ± 7.07", "+1.00")
        forgotten = next(row for row in rows if row.what == "accuracy on task 0 after task 4 (%)")
        ours = sum(100 * float(published("naive", seed).accuracy_matrix[4][0] or 0) for seed in (0, 1)) / 2
        assert forgotten.printed == "44.24" and forgotten.ours.startswith(f"{ours:.2f} ±")
        assert {(row.ours, row.difference) for row in rows if row.method == "SEU"} == {("-", "-")}
        text = " ".join(page_of(write_report(tmp_path, limits=NONE)).texts)
        assert "Beside the paper" in text and "arXiv:2003.08559" in text and "+1.00" in text

    @pytest.mark.parametrize(
        "place", [("split_digits", 1, "paper"), ("split_cifar10", 1, "quick"), ("split_cifar10", 2, "paper")]
    )
    def test_elsewhere_it_says_nothing(self, place: tuple[str, int, str]) -> None:
        assert beside_ours(place, []) == {} and published_points(place) == []

    def test_its_scores_follow_from_its_numbers(self) -> None:
        """Every mixed score of the table agrees with the equation to the digits that are printed."""
        from seu_bench.metrics import mixed_score

        compared = 0
        for benchmark in ("split_cifar10", "split_cifar100", "pmnist", "mixture"):
            rows = [row for rows in beside_ours((benchmark, 1, "paper"), []).values() for row in rows]
            table = {(row.method, row.what): float(row.printed) for row in rows}
            for point in published_points((benchmark, 1, "paper")):
                score = mixed_score(point.accuracy, round(point.parameters))
                assert score == pytest.approx(table[point.label, "mixed score"], abs=6e-4)
                compared += 1
        assert compared == 20


class TestChoice:
    def test_the_best_of_each_strategy_first(self) -> None:
        strategies = ["a", "a", "seu", "seu", "b", "naive"]
        assert choose(strategies, 2) == [2, 5]
        assert choose(strategies, 4) == [0, 2, 4, 5]
        assert choose(strategies, 5) == [0, 1, 2, 4, 5]
        assert choose(strategies, 99) == [0, 1, 2, 3, 4, 5]

    def test_many_groups(self, tmp_path: Path) -> None:
        """Only the largest have figures; the others say so, and have their leaderboards."""
        for version in range(1, 12):
            put(tmp_path, published("naive", 0), run_id=f"v{version}", benchmark_version=version)
        put(tmp_path, published("naive", 1), run_id="v11-1", benchmark_version=11)
        sections, *_ = read_sections(tmp_path, None, None, FEW)
        assert [section.place[1] for section in sections if section.drawn] == [1, 2, 3, 4, 5, 6, 7, 11]
        page = page_of(write_report(tmp_path, limits=FEW))
        assert len([table for table in page.tables if "seeds" in table[0]]) == 11
        text = " ".join(page.texts)
        assert text.count("this group has no figures: a report has at most 1 figures") == 3
        assert "4 of this group's figures are excluded" in text

    def test_limits_are_said(self, tmp_path: Path) -> None:
        put_all(tmp_path, ["naive", "seu", "ewc"], [0])
        written = write_report(tmp_path, limits=Limits(configurations=2, figures=0, rows=2))
        page = page_of(written)
        text = " ".join(" ".join(page.texts).split())
        assert "2 of 3 configurations are drawn" in text
        assert "The first 2 rows of 3" in text
        assert len(page.tables[0]) == 1 + 2
        assert not written.figures and not list(page.all("img"))


class TestCommand:
    def test_writes_and_says_where(self, command: Command, tmp_path: Path) -> None:
        put_all(tmp_path, ["naive"], [0])
        page = tmp_path / "elsewhere" / "page.html"
        answer = command("report", "--results", tmp_path, "--output", page, "--figures", 1)
        assert (answer.status, answer.err) == (0, "")
        assert f"report: {page} (1 group)" in answer.out and "figures: 1 in" in answer.out
        assert page.is_file() and not (tmp_path / "report.html").exists()

    def test_filters(self, command: Command, tmp_path: Path) -> None:
        put_all(tmp_path, ["naive"], [0])
        put(tmp_path, published("naive", 0), run_id="b", benchmark="other")
        put(tmp_path, published("naive", 0), run_id="c", protocol="long")
        for asked, titles in (
            (["--benchmark", "other"], ["other, version 1, protocol quick"]),
            (["--protocol", "long"], ["split_digits, version 1, protocol long"]),
        ):
            assert command("report", "--results", tmp_path, "--figures", 0, *asked).status == 0
            page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
            assert [text for text in page.texts if ", version 1" in text and "\n" not in text][
                1:
            ] == titles * 2  # and of its origin

    def test_nothing_fits(self, command: Command, tmp_path: Path) -> None:
        """The page that is there stays."""
        put_all(tmp_path, ["naive"], [0])
        (tmp_path / "report.html").write_text("before")
        answer = command("report", "--results", tmp_path, "--benchmark", "nowhere")
        assert answer.status == 2 and "no record of benchmark 'nowhere' can be ranked" in answer.err
        assert (tmp_path / "report.html").read_text() == "before"

    def test_no_records(self, command: Command, tmp_path: Path) -> None:
        answer = command("report", "--results", tmp_path)
        assert answer.status == 2 and "there are no records yet" in answer.err
        assert list(tmp_path.iterdir()) == []

    def test_none_can_be_ranked(self, command: Command, tmp_path: Path) -> None:
        """The page says so, and why."""
        put(tmp_path, published("naive", 0), ranked=False, protocol="smoke")
        answer = command("report", "--results", tmp_path)
        assert answer.status == 0 and "protocol 'smoke' is never ranked" in answer.out
        text = " ".join((tmp_path / "report.html").read_text(encoding="utf-8").split())
        assert "No record can be ranked" in text and "protocol &#39;smoke&#39; is never ranked" in text

    def test_a_page_that_cannot_be_written(self, command: Command, tmp_path: Path) -> None:
        put_all(tmp_path, ["naive"], [0])
        (tmp_path / "file").write_text("")
        answer = command("report", "--results", tmp_path, "--output", tmp_path / "file" / "p.html", "--figures", 0)
        assert answer.status == 2 and "cannot write results" in answer.err


def test_no_torch_and_no_pyplot(tmp_path: Path) -> None:
    """A report needs neither, and leaves no figure open in either."""
    put_all(tmp_path, ["naive"], [0])
    code = (
        "import sys; from pathlib import Path; from seu_bench.results.report import Limits, write_report; "
        "write_report(Path(sys.argv[1]), limits=Limits(figures=1)); "
        "import json; print(json.dumps([n for n in ('torch', 'avalanche', 'matplotlib.pyplot') if n in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
