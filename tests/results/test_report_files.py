"""Figures without a page: in a folder, or as the one file that a paper takes; and what is no page is not called one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import Command
from support.report_records import published, put, put_all

from seu_bench.errors import OptionError, ResultsError
from seu_bench.results.report import Layout, Limits, write_figures, write_report

NARROW = ("--column-width", "icml")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two groups."""
    folder = put_all(tmp_path_factory.mktemp("results"), ["naive", "seu"], [0, 1])
    put(folder, published("naive", 0), run_id="other", benchmark="other")
    return folder


class TestFolder:
    def test_three_formats_and_captions(self, command: Command, results: Path, tmp_path: Path) -> None:
        folder = tmp_path / "paper" / "figures"
        answer = command(
            "report", "--results", results, "--output", f"{folder}/", "--figure", "average-accuracy", *NARROW
        )
        assert (answer.status, answer.err) == (0, "")
        assert f"figures: 2 in {folder}, each as PDF, SVG and PNG; captions in captions.md" in answer.out
        names = {"other-v1-quick-average-accuracy", "split_digits-v1-quick-average-accuracy"}
        assert {path.stem for path in folder.iterdir()} == names | {"captions"}
        assert {path.suffix for path in folder.iterdir()} == {".pdf", ".svg", ".png", ".md"}
        text = (folder / "captions.md").read_text(encoding="utf-8")
        assert (
            "## split_digits-v1-quick-average-accuracy" in text and "2 seeds each. Fewer than 3 seeds: too few" in text
        )
        assert not (results / "report.html").exists() and not (results / "figures").exists()

    def test_limit_is_said(self, command: Command, results: Path, tmp_path: Path) -> None:
        answer = command("report", "--results", results, "--output", f"{tmp_path}/x/", "--figures", 1)
        assert "figures: 1 in" in answer.out and "figures are not drawn: --figures" in answer.out

    @pytest.mark.long
    def test_same_bytes_again(self, results: Path, tmp_path: Path) -> None:
        """Also where the order of sets is another."""
        code = (
            "import sys; from pathlib import Path; from seu_bench.results.report import Layout, write_figures; "
            "write_figures(Path(sys.argv[1]), Path(sys.argv[2]), ['split_digits*-accuracy-p*'], layout=Layout(3.25))"
        )
        for seed in ("1", "2"):
            call = [sys.executable, "-c", code, str(results), str(tmp_path / seed)]
            subprocess.run(call, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
        first, second = ({path.name: path.read_bytes() for path in (tmp_path / seed).iterdir()} for seed in "12")
        assert len(first) == 4 and first == second

    def test_a_link(self, results: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(ResultsError, match="this is a link"):
            write_figures(results, tmp_path / "link", ["heat-maps"])
        assert not list((tmp_path / "elsewhere").iterdir())


class TestOneFile:
    @pytest.mark.parametrize(("ending", "begins"), [("pdf", b"%PDF"), ("SVG", b"<?xml"), ("png", b"\x89PNG")])
    def test_each_format(self, command: Command, results: Path, tmp_path: Path, ending: str, begins: bytes) -> None:
        path = tmp_path / f"one.{ending}"
        asked = ("--figure", "other-v1-quick-average-accuracy", *NARROW)
        answer = command("report", "--results", results, "--output", path, *asked)
        assert answer.status == 0 and answer.out.startswith(f"figure: {path}, 3.25 x ")
        assert path.read_bytes().startswith(begins)
        assert list(tmp_path.iterdir()) == [path]

    def test_several_figures(self, command: Command, results: Path, tmp_path: Path) -> None:
        """Refused, with what there is to choose from; so is a whole report, which is a page."""
        answer = command("report", "--results", results, "--output", tmp_path / "x.pdf")
        assert answer.status == 2 and "x.pdf would be one figure, and there are" in answer.err
        assert "choose one with --figure" in answer.err and "which a browser can print" in answer.err
        for kind in ("average-accuracy", "heat-maps", "unit-*-task*"):
            assert f"    {kind}\n" in answer.err
        answer = command("report", "--results", results, "--output", tmp_path / "x.pdf", "--figure", "heat-maps")
        assert "    other-v1-quick-heat-maps\n    split_digits-v1-quick-heat-maps\n" in answer.err
        assert list(tmp_path.iterdir()) == []

    def test_unknown_figure(self, command: Command, results: Path, tmp_path: Path) -> None:
        for output in ("x.pdf", "x.html", "x/"):
            answer = command("report", "--results", results, "--output", f"{tmp_path}/{output}", "--figure", "heat-map")
            assert answer.status == 2 and "there is no figure 'heat-map'" in answer.err
            assert "    heat-maps\n" in answer.err
        assert list(tmp_path.iterdir()) == []

    def test_references_alone_have_none(self, tmp_path: Path) -> None:
        put(tmp_path / "results", published("naive", 0), strategy="linear")
        with pytest.raises(ResultsError, match="no figure can be made of these runs"):
            write_figures(tmp_path / "results", tmp_path / "x.pdf", ["average-accuracy"])

    def test_what_is_there_stays(self, results: Path, tmp_path: Path) -> None:
        path = tmp_path / "x.pdf"
        path.symlink_to(tmp_path / "elsewhere.pdf")
        with pytest.raises(ResultsError, match="it is a link"):
            write_figures(results, path, ["other-*-heat-maps"])
        assert not (tmp_path / "elsewhere.pdf").exists()

    def test_nothing_to_draw(self, tmp_path: Path) -> None:
        put(tmp_path, published("naive", 0), ranked=False, protocol="smoke")
        with pytest.raises(ResultsError, match="there is nothing to draw"):
            write_figures(tmp_path, tmp_path / "x.pdf")
        assert not (tmp_path / "x.pdf").exists()


class TestPage:
    @pytest.mark.parametrize(
        ("name", "remedy"),
        [
            ("x.csv", "call it x.html; seu-bench leaderboard writes tables"),
            ("x.eps", "x.html is a page, x/ a folder for figures alone"),
            ("x", "x.html is a page, x/ a folder for figures alone"),
        ],
    )
    def test_another_ending(self, command: Command, results: Path, tmp_path: Path, name: str, remedy: str) -> None:
        """HTML in a file of that name would be opened by no browser, and by no reader of tables."""
        answer = command("report", "--results", results, "--output", tmp_path / name)
        assert answer.status == 2 and "a report is an HTML page, and this is not called one" in answer.err
        assert remedy in answer.err
        assert list(tmp_path.iterdir()) == [] and not (results / "figures").exists()

    def test_a_figure_from_python(self, results: Path, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match=r"x\.pdf would be a figure"):
            write_report(results, tmp_path / "x.pdf")

    def test_chosen_figures(self, tmp_path: Path) -> None:
        """The page has these alone, as wide as asked, whatever the limit."""
        put_all(tmp_path, ["naive", "seu"], [0])
        chosen = ("average-accuracy", "heat-*")
        written = write_report(tmp_path, limits=Limits(figures=1), names=chosen, layout=Layout(3.25))
        assert {path.stem.partition("quick-")[2] for path in written.figures} == {"average-accuracy", "heat-maps"}
        text = written.page.read_text(encoding="utf-8")
        assert text.count("<img") == 2 and text.count('width="312"') == 2


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--column-width", "3.25", "'3.25' is no width; give one such as 3.25in"),
        ("--column-width", "1cm", "1cm is 0.39 inches; figures are 2.5 to 20 inches wide"),
        ("--font", "No Such", "there is no font 'No Such'"),
        ("--output", "", "the path is empty"),
    ],
)
def test_what_cannot_be(command: Command, results: Path, option: str, value: str, says: str) -> None:
    answer = command("report", "--results", results, option, value)
    assert answer.status == 2 and says in " ".join(answer.err.split())
    assert not (results / "report.html").exists()
