"""Figures for a paper: exactly as wide as asked, with text that can be read, in fonts that publishers take."""

from __future__ import annotations

import re
import struct
from itertools import pairwise

import pytest
from matplotlib.colors import to_hex
from matplotlib.text import Text
from support.report_records import HOSTILE, configuration, published, put, runs, with_curves

from seu_bench.results.record import Record
from seu_bench.results.report.basis import basis, seed_counts
from seu_bench.results.report.canvas import Picture, fill, styles_of
from seu_bench.results.report.draw_comparing import (
    accuracy_curves,
    average_curve,
    heat_maps,
    original_against_retained,
)
from seu_bench.results.report.draw_learning import learning_curves
from seu_bench.results.report.draw_single import genotypes, paths
from seu_bench.results.report.draw_size import accuracy_against_size
from seu_bench.results.report.layout import COLUMNS, FONTS, INK, Layout, column_width, font_families, settings
from seu_bench.results.report.rendering import FORMATS, PNG_DPI, RenderedFigure, render
from seu_bench.results.report.sections import Limits, read_sections
from seu_bench.results.report.summary import Configuration

STRATEGIES = ("seu", "pnn", "ltg", "ewc", "naive", "joint")
NARROW = Layout(3.25)


def drawn() -> list[Configuration]:
    styles = styles_of(STRATEGIES)
    return [
        Configuration(number, f"{strategy} + a (learning_rate=0.0{number}, restore=last)", runs(strategy), look)
        for number, (strategy, look) in enumerate(zip(STRATEGIES, styles, strict=True), start=1)
    ]


def pictures() -> list[Picture]:
    several = drawn()
    one = configuration(with_curves(published("seu", 0), search=3, creation=3, training=3))
    draw = (average_curve, accuracy_against_size, accuracy_curves, original_against_retained, heat_maps)
    single = [learning_curves(one), paths(one), *genotypes(one, 1)]
    return [*(each(several) for each in draw), *(picture for picture in single if picture is not None)]


@pytest.fixture(scope="module")
def rendered() -> RenderedFigure:
    return render("group-average", average_curve(drawn()[:2]), NARROW)


class TestWidth:
    @pytest.mark.parametrize(
        ("text", "inches"),
        [("3.25in", 3.25), ("8.255cm", 3.25), (" 82.55 MM", 3.25), ("234.8775pt", 3.25), ("ICML", 3.25), ("ieee", 3.5)],
    )
    def test_lengths_and_names(self, text: str, inches: float) -> None:
        assert column_width(text) == pytest.approx(inches)

    @pytest.mark.parametrize("text", ["", "3.25", "in", "-3in", "3,25in", "nanin", "1e3in", "1cm", "90in", "x", "٣in"])
    def test_what_is_none(self, text: str) -> None:
        with pytest.raises(
            ValueError, match=r"is no width; give one such as 3\.25in|figures are 2\.5 to 20 inches wide"
        ):
            column_width(text)

    @pytest.mark.parametrize("name", COLUMNS)
    def test_names_are_possible(self, name: str) -> None:
        assert column_width(f"{column_width(name)!r}in") == COLUMNS[name]

    def test_exactly_so_wide(self, rendered: RenderedFigure) -> None:
        """In every format, so that a paper includes it without scaling."""
        assert rendered.inches[0] == 3.25
        box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ", rendered.pdf)
        assert box is not None and float(box[1]) == pytest.approx(72 * 3.25, abs=0.01)
        width, height = struct.unpack(">II", rendered.png[16:24])
        assert (width, height) == (975, pytest.approx(PNG_DPI * rendered.inches[1], abs=1))
        assert b'width="234pt"' in rendered.svg


@pytest.mark.parametrize("picture", pictures(), ids=lambda picture: picture.kind)
@pytest.mark.parametrize("width", ["3.25in", pytest.param("neurips", marks=pytest.mark.long)])
def test_nothing_is_cut_or_small(picture: Picture, width: str) -> None:
    """All of it lies within the figure, no text is below 7 points, but numbers in the squares of a heat map."""
    layout = Layout.of(width)
    with settings(layout):
        figure = picture.draw(layout)
        figure.draw_without_rendering()
        box = figure.get_tightbbox()
        width_, height = figure.get_size_inches()
        assert width_ == layout.width
        assert box.x0 > -0.01 and box.y0 > -0.01 and box.x1 < width_ + 0.01 and box.y1 < height + 0.01
        texts = [
            text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text() and text.get_visible()
        ]
        sizes = {float(text.get_fontsize()) for text in texts}
        assert min(sizes) >= (6 if picture.kind == "heat-maps" else 7) and max(sizes) <= 9


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Picture:
    """Of six configurations over eight benchmarks, on which the first is the best."""
    folder = tmp_path_factory.mktemp("results")
    for number in range(8):
        for place, strategy in enumerate(STRATEGIES[:-1]):
            record = published(strategy, 0)
            metrics = record.metrics | {"acc": 0.9 - 0.1 * place - 0.001 * number}
            put(folder, record, run_id=f"{strategy}{number}", benchmark=f"b{number}", metrics=metrics)
    _, (section,), _ = read_sections(folder, None, None, Limits(figures=1))
    return section.picture


@pytest.mark.parametrize("width", [2.5, 3.25, 4.9, 5.0, 7.16, None])
def test_average_ranks(ranks: Picture, width: float | None) -> None:
    """Every label is there, within the figure and beside the others; filled dots are not told from the best."""
    layout = Layout(width)
    with settings(layout):
        figure = ranks.draw(layout)
        figure.draw_without_rendering()
        box, (wide, high) = figure.get_tightbbox(), figure.get_size_inches()
        (axes,) = figure.axes
        boxes = [text.get_window_extent() for text in axes.texts]
        shown = " ".join(text.get_text() for text in axes.texts)
    assert box.x0 > -0.01 and box.y0 > -0.01 and box.x1 < wide + 0.01 and box.y1 < high + 0.01
    assert not any(one.overlaps(other) for place, one in enumerate(boxes) for other in boxes[place + 1 :])
    for name in ("seu", "pnn", "ltg", "ewc", "naive"):
        assert name in shown
    dots = [line for line in axes.get_lines() if line.get_marker() == "o"]
    filled = [to_hex(dot.get_markerfacecolor()) == INK for dot in dots]
    assert filled == ([True, True, False, False, False] if width is not None and width < 5 else [])


def test_names_of_operations_do_not_overlap() -> None:
    (picture,) = genotypes(configuration(published("seu", 0)), 1)
    with settings(NARROW):
        figure = picture.draw(NARROW)
        figure.draw_without_rendering()
        for axes in figure.axes:
            named = [text.get_window_extent() for text in axes.texts if "_" in text.get_text()]
            assert len(named) > 4
            for place, box in enumerate(named):
                assert not any(box.overlaps(other) for other in named[place + 1 :])


def test_a_paper_has_no_numbers_of_rows() -> None:
    """They are the leaderboard's; nobody sees it there."""
    (one, *_) = drawn()
    with settings(NARROW):
        (legend,) = average_curve([one]).draw(NARROW).legends
    shown = " ".join(text.get_text() for text in legend.get_texts()).split()
    assert " ".join(shown) == one.label


class TestFonts:
    def test_no_type_3(self, rendered: RenderedFigure) -> None:
        """Embedded as TrueType; publishers refuse Type 3."""
        assert b"/FontFile2" in rendered.pdf and b"/Type3" not in rendered.pdf

    @pytest.mark.parametrize("name", FONTS)
    def test_fonts_of_matplotlib(self, name: str, caplog: pytest.LogCaptureFixture) -> None:
        """Without a warning, in PDF and SVG; whoever has not the font takes another of its kind."""
        figure = render(
            "x", average_curve([configuration(published("naive", 0), label="er_ace")]), Layout.of("icml", name)
        )
        family = font_families(name)[0]
        assert family.replace(" ", "").encode().lower() in figure.pdf.lower() and b"/Type3" not in figure.pdf
        generic = "sans-serif" if name == "sans" else "serif"
        found = set(re.findall(r"font-family: ([^;\"]+)", figure.svg.decode()))
        assert found and all(text.startswith(f"'{family}'") and text.endswith(f", {generic}") for text in found)

    def test_computer_modern_has_no_underscore(self) -> None:
        """At its place is a dot; what is drawn looks like one."""
        one = configuration(published("naive", 0), label="er_ace")
        svg = render("x", average_curve([one]), Layout.of("icml", "cmr")).svg.decode()
        assert "er\u02cdace" in svg and ">er_ace<" not in svg

    def test_installed_font(self) -> None:
        assert font_families("dejavu serif") == ("DejaVu Serif", "DejaVu Sans")

    def test_unknown_font(self) -> None:
        with pytest.raises(ValueError, match="there is no font 'No Such'; give sans, serif, cmr, or an installed one"):
            font_families("No Such")


class TestRendered:
    def test_formats(self, rendered: RenderedFigure) -> None:
        assert list(rendered.files) == [f"group-average.{form}" for form in FORMATS]
        assert rendered.src.startswith("data:image/svg+xml;base64,")
        assert (rendered.width, rendered.height) == (312, round(96 * rendered.inches[1]))
        assert rendered.title == "Average accuracy on the tasks learned so far" and "(3 seeds)" in rendered.alt

    def test_hostile_names(self) -> None:
        """Are text in each format, and no formula."""
        label = f"{HOSTILE} \u8a9e (\\"
        figure = render(HOSTILE, average_curve([configuration(published("naive", 0), label=label)]), NARROW)
        assert b"<script" not in figure.svg and figure.pdf.startswith(b"%PDF") and b"\x1b" not in figure.svg


class TestBasis:
    """No figure is silently of few seeds or of untuned configurations."""

    def tuned(self, record: Record) -> Record:
        tuning = {"id": "t", "sha256": "0", "method": "first-tasks:3", "runs": 1, "image_passes": 1}
        return Record.model_validate(record.model_dump() | {"tuned": tuning})

    def test_place_seeds_and_tuning(self) -> None:
        text = basis([configuration(*runs("naive"))])
        assert text == " Benchmark split_digits, version 1, protocol quick, 3 seeds. Hyper-parameters were not tuned."

    def test_few_seeds_are_said(self) -> None:
        text = basis([configuration(*runs("naive")), configuration(published("ewc", 0), label="ewc")])
        assert "3 seeds (1 of 2 configurations: 1)" in text
        assert "Fewer than 3 seeds for ewc: too few to tell a difference from chance." in text

    def test_some_are_tuned(self) -> None:
        tuned = [self.tuned(record) for record in runs("ewc")]
        some = [configuration(*tuned, label="ewc"), configuration(*runs("naive"), label="naive")]
        assert "Hyper-parameters were tuned for ewc, not for the others." in basis(some)
        assert basis(some[:1]).endswith("Hyper-parameters were tuned.")

    def test_never_ranked_is_said(self) -> None:
        record = published("naive", 0).model_copy(update={"synthetic": True})
        assert "never ranked" in basis([configuration(record)]) and "never ranked" not in basis(drawn())

    def test_seeds(self) -> None:
        assert seed_counts([10, 10]) == "10 seeds each"
        assert seed_counts([5, 10, 10, 1]) == "10 seeds (1 of 4 configurations: 1, 1 of 4 configurations: 5)"

    def test_every_caption_has_it(self) -> None:
        for picture in pictures():
            assert "protocol quick, " in picture.caption and "Hyper-parameters were" in picture.caption
            assert "(n - 1)" in picture.caption or picture.kind.startswith(("unit", "paths", "heat-maps"))


@pytest.mark.parametrize(("width", "most"), [(39, 1), (22, 2), (14, 4)])
def test_labels_are_broken_evenly(width: int, most: int) -> None:
    text = fill("average accuracy after the last task (%)", width + 1)
    lines = text.split("\n")
    assert len(lines) <= most and " ".join(lines) == "average accuracy after the last task (%)"
    assert all(abs(len(one) - len(other)) < 12 for one, other in pairwise(lines))
