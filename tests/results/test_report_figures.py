"""Figures: what is drawn is what the records say, with names, units, legends, and words for who cannot see it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from support.report_records import HOSTILE, SEEDS, configuration, legend, published, runs, with_curves

from seu_bench.metrics import mixed_score
from seu_bench.results.record import Record
from seu_bench.results.report.canvas import Picture, legend_label, styles_of
from seu_bench.results.report.draw_comparing import (
    accuracy_curves,
    average_curve,
    heat_maps,
    original_against_retained,
)
from seu_bench.results.report.draw_learning import learning_curves
from seu_bench.results.report.draw_single import genotypes, paths
from seu_bench.results.report.draw_size import MEMORY, accuracy_against_size
from seu_bench.results.report.paper import published_points
from seu_bench.results.report.rendering import render, themed, to_svg
from seu_bench.results.report.summary import Configuration
from seu_bench.utils.text import printable

pytestmark = pytest.mark.usefixtures("report_settings")


def chosen(*strategies: str, seeds: Sequence[int] = SEEDS) -> list[Configuration]:
    styles = styles_of(strategies)
    return [
        Configuration(rank, strategy, runs(strategy, seeds), styles[rank - 1], rank)
        for rank, strategy in enumerate(strategies, start=1)
    ]


def entry(strategy: str, row: int, task: int) -> list[float]:
    """R[row][task] of every seed, in percent."""
    return [100 * float(record.accuracy_matrix[row][task] or 0) for record in runs(strategy)]


def lines(axes: Axes) -> dict[str, Any]:
    return {str(line.get_label()): line for line in axes.get_lines()}


class TestAccuracyCurves:
    def test_lines_and_bands(self) -> None:
        figure = accuracy_curves(chosen("seu", "naive")).draw()
        assert len(figure.axes) == 5
        for task, axes in enumerate(figure.axes):
            line = lines(axes)["2 naive"]
            assert list(line.get_xdata()) == list(range(task, 5))
            expected = [statistics.fmean(entry("naive", row, task)) for row in range(task, 5)]
            assert line.get_ydata() == pytest.approx(expected)
            corners = axes.collections[-1].get_paths()[0].vertices
            spread = [statistics.stdev(entry("naive", row, task)) for row in range(task, 5)]
            high = [mean + deviation for mean, deviation in zip(expected, spread, strict=True)]
            low = [mean - deviation for mean, deviation in zip(expected, spread, strict=True)]
            assert corners[:, 1].max() == pytest.approx(max(high))
            assert corners[:, 1].min() == pytest.approx(min(low))
        assert legend(figure) == ["1 seu", "2 naive"]
        assert figure.axes[0].get_ylabel() == "accuracy (%)"
        assert {axes.get_xlabel() for axes in figure.axes} == {"after learning task"}
        assert figure.axes[0].get_title().startswith("task 0")

    def test_not_measured_is_a_gap(self) -> None:
        """``joint`` is measured once, after all tasks: a point, and no line from zero."""
        figure = accuracy_curves(chosen("joint")).draw()
        for task, axes in enumerate(figure.axes):
            (line,) = axes.get_lines()
            values = list(line.get_ydata())
            assert [math.isnan(value) for value in values] == [True] * (4 - task) + [False]

    def test_a_seed_that_lacks_it(self) -> None:
        """A mean over some of the seeds would not compare: it is a gap too."""
        record = published("naive", 1)
        rows = [list(row) for row in record.accuracy_matrix]
        rows[3][0] = None
        lacking = record.model_copy(update={"accuracy_matrix": tuple(map(tuple, rows))})
        (line,) = accuracy_curves([configuration(published("naive", 0), lacking)]).draw().axes[0].get_lines()
        assert [math.isnan(value) for value in line.get_ydata()] == [False, False, False, True, False]

    def test_one_seed_has_no_band(self) -> None:
        figure = accuracy_curves(chosen("naive", seeds=[0])).draw()
        assert [len(axes.collections) for axes in figure.axes] == [0] * 5

    def test_what_is_no_accuracy(self) -> None:
        """A stranger's record may say anything; it was not measured then."""
        record = published("naive", 0)
        odd = record.model_copy(update={"accuracy_matrix": ((7.0,), (-1.0, float("nan")), (1e300, 0.5, 0.5))})
        figure = accuracy_curves([configuration(odd)]).draw()
        values = [float(value) for axes in figure.axes for value in axes.get_lines()[0].get_ydata()]
        assert {value for value in values if not math.isnan(value)} == {50.0}

    def test_words(self) -> None:
        text = accuracy_curves(chosen("naive")).alt
        assert f"task 4 {statistics.fmean(entry('naive', 4, 4)):.1f}" in text
        assert f"{statistics.fmean(entry('naive', 4, 0)):.1f}" in text
        assert "3 seeds" in text and "joint" not in text


def test_average_curve() -> None:
    picture = average_curve(chosen("naive", "joint"))
    (axes,) = picture.draw().axes
    expected = []
    for row in range(5):
        of_seeds = [
            statistics.fmean(values) for values in zip(*[entry("naive", row, t) for t in range(row + 1)], strict=True)
        ]
        expected.append(statistics.fmean(of_seeds))
    assert lines(axes)["1 naive"].get_ydata() == pytest.approx(expected)
    assert [math.isnan(value) for value in lines(axes)["reference: joint"].get_ydata()] == [True] * 4 + [False]
    assert "(%)" in axes.get_ylabel()
    assert f"{expected[0]:.1f}" in picture.alt and f"{expected[4]:.1f}" in picture.alt
    assert picture.numbers
    assert [len(row) for row in picture.numbers[1:]] == [6, 6]
    assert picture.numbers[2][1:5] == ("-",) * 4


def test_original_against_retained() -> None:
    picture = original_against_retained(chosen("naive", "joint"))
    figure = picture.draw()
    naive, joint = figure.axes
    heights = [bar.get_height() for container in naive.containers if hasattr(container, "patches") for bar in container]
    expected = [
        [statistics.fmean(entry("naive", row, task)) for row, task in places]
        for places in ([(task, task) for task in range(5)], [(4, task) for task in range(5)])
    ]
    assert heights == pytest.approx([*expected[0], *expected[1]])
    assert naive.get_ylim()[0] == 0  # bars that do not begin at zero lie
    hatched = [bar.get_hatch() is not None for bar in naive.patches]
    assert hatched == [False] * 5 + [True] * 5  # so that they are told apart in grey
    assert len(joint.patches) == 1 + 5  # measured for the last task alone, and after the last task
    assert legend(figure)[0].startswith("original") and legend(figure)[1].startswith("retained")
    worst = max(range(5), key=lambda task: expected[0][task] - expected[1][task])
    assert f"the largest difference is on task {worst}" in picture.alt


def test_heat_maps() -> None:
    picture = heat_maps(chosen("naive", "joint"))
    figure = picture.draw()
    naive, joint, bar = figure.axes
    shown = naive.collections[0].get_array()
    assert shown is not None and shown.shape == (5, 5)
    for row in range(5):
        for task in range(5):
            measured = task <= row
            assert bool(np.ma.getmaskarray(shown)[row, task]) is not measured
            if measured:
                assert shown[row, task] == pytest.approx(statistics.fmean(entry("naive", row, task)))
    assert [text.get_text() for text in naive.texts] == [
        f"{statistics.fmean(entry('naive', row, task)):.0f}" for row in range(5) for task in range(row + 1)
    ]
    assert len(joint.texts) == 5
    assert (naive.get_xlabel(), naive.get_ylabel()) == ("accuracy on task", "after learning task")
    assert bar.get_ylabel() == "accuracy (%)"
    assert naive.collections[0].get_clim() == (0, 100)
    assert f"{statistics.fmean(entry('naive', 4, 0)):.1f}" in picture.alt


def test_legends_say_what_differs() -> None:
    """Configurations of a sweep over options differ at the end of their titles."""
    changes = "statistics=frozen, creator.epochs=40, creator.old_unit_epochs=30, creator.normalisation=softmax"
    assert legend_label(f"seu + mdl + mdl ({changes})").replace("\n", " ") == f"seu + mdl + mdl ({changes})"


class TestSize:
    def test_points(self) -> None:
        picture = accuracy_against_size(chosen("seu", "naive"))
        (axes,) = picture.draw().axes
        for strategy, name in (("seu", "1 seu"), ("naive", "2 naive")):
            point = lines(axes)[name]
            sizes = [float(record.metrics["params_total"] or 0) for record in runs(strategy)]
            accuracies = [100 * float(record.metrics["acc"] or 0) for record in runs(strategy)]
            assert point.get_xdata() == pytest.approx([statistics.fmean(sizes)])
            assert point.get_ydata() == pytest.approx([statistics.fmean(accuracies)])
            assert f"{statistics.fmean(sizes):,.0f}" in picture.alt
        assert axes.get_xscale() == "log"
        assert "parameters" in axes.get_xlabel() and "(%)" in axes.get_ylabel()

    def test_lines_of_equal_score(self) -> None:
        (axes,) = accuracy_against_size(chosen("seu", "naive")).draw().axes
        named = {text.get_text() for text in axes.texts}
        levels = [line for line in axes.get_lines() if line.get_linewidth() < 1]
        assert levels and len(levels) == len(named)
        for line in levels:
            scores = [
                mixed_score(float(accuracy), round(float(size)))
                for size, accuracy in zip(line.get_xdata(), line.get_ydata(), strict=True)
            ]
            assert scores == pytest.approx([scores[0]] * len(scores), rel=1e-4)
            assert f"{scores[0]:.2f}" in named

    def test_front(self) -> None:
        """Steps from the smallest to the right, up at each that is larger and more accurate; others are below them."""
        points = {1e4: 50.0, 1e5: 45.0, 1e6: 70.0, 1e7: 60.0}
        record = published("seu", 0)
        drawn = [
            configuration(record.model_copy(update={"metrics": {"acc": acc / 100, "params_total": round(size)}}))
            for size, acc in points.items()
        ]
        (axes,) = accuracy_against_size(drawn).draw().axes
        (steps,) = [line for line in axes.get_lines() if line.get_drawstyle() == "steps-post"]
        assert list(steps.get_xdata())[:2] == [1e4, 1e6] and list(steps.get_ydata()) == [50.0, 70.0, 70.0]

    def test_memory(self) -> None:
        """Points are bytes, and lines join equal scores of four bytes a number."""
        record = published("seu", 0)
        record = record.model_copy(update={"metrics": record.metrics | {"memory_bytes": 4_000_000}})
        picture = accuracy_against_size([configuration(record)], against=MEMORY)
        (axes,) = picture.draw().axes
        assert list(lines(axes)["1 label"].get_xdata()) == [4_000_000]
        assert "4,000,000 bytes" in picture.alt and "bytes kept" in axes.get_xlabel()
        level = next(line for line in axes.get_lines() if line.get_linewidth() < 1)
        ends = [(float(a), float(n)) for n, a in zip(level.get_xdata(), level.get_ydata(), strict=True)][
            :: len(level.get_xdata()) - 1
        ]
        assert mixed_score(ends[0][0], ends[0][1] / 4) == pytest.approx(
            mixed_score(ends[1][0], ends[1][1] / 4), rel=1e-4
        )

    def test_the_papers_points(self) -> None:
        """Hollow, and in the colour of our own configuration of the same strategy."""
        points = published_points(("split_cifar10", 1, "paper"))
        (own,) = chosen("seu")
        (axes,) = accuracy_against_size([own], points).draw().axes
        point = lines(axes)["the paper's SEU"]
        assert (list(point.get_xdata()), list(point.get_ydata())) == ([3.75e6], [94.13])
        assert to_hex(point.get_markeredgecolor()) == own.style.color and point.get_markerfacecolor() == "none"

    def test_nothing_to_draw(self) -> None:
        """A configuration without accuracy or size has no point."""
        record = published("seu", 0).model_copy(update={"metrics": {"acc": None, "params_total": 0}})
        picture = accuracy_against_size([configuration(record)])
        assert "1 label" not in lines(picture.draw().axes[0])
        assert "not measured" in picture.alt

    @pytest.mark.parametrize(
        ("value", "text"), [(950, "950"), (2e4, "20 k"), (1e6, "1 M"), (3.5e6, "3.5 M"), (2e9, "2 G")]
    )
    def test_sizes_in_short(self, value: float, text: str) -> None:
        (axes,) = accuracy_against_size(chosen("seu")).draw().axes
        assert axes.xaxis.get_major_formatter()(value) == text


@pytest.mark.parametrize(
    "strategies", [["seu"] * 3, ["naive", "seu", "x", "naive", "joint"], list("abcdefghijkl"), ["seu"] * 24]
)
def test_no_two_look_the_same(strategies: list[str]) -> None:
    styles = styles_of(strategies)
    assert len({(one.marker, one.line) for one in styles[:8]}) == min(8, len(styles))  # in grey too
    assert len({(one.color, one.marker, one.line) for one in styles}) == len(styles)


def test_a_strategy_looks_the_same_everywhere() -> None:
    """Independent of the figure's other configurations, their order, and whether it is the only one of its strategy."""
    names = ["seu", "naive", "ewc", "pnn", "ltg"]
    alone = {name: styles_of([name])[0] for name in names}
    for others in (names, names[::-1], ["seu", "seu", "seu", "naive", "ewc", "ltg", "pnn", "ewc"]):
        styles = styles_of(others)
        assert [styles[others.index(name)] for name in names] == [alone[name] for name in names]
    assert len({look.color for look in alone.values()}) == len(names)


def every_picture(record: Record) -> list[Picture]:
    one = configuration(record, label=HOSTILE)
    some = [average_curve, accuracy_against_size, accuracy_curves, original_against_retained, heat_maps]
    found = [draw([one]) for draw in some]
    single = [paths(one), learning_curves(one), *genotypes(one, 1)]
    return [*found, *[picture for picture in single if picture is not None]]


@pytest.mark.long
def test_svg() -> None:
    """It loads nothing, and holds no time and no markup of a name; a page has it light or dark, a file is on white."""
    record = with_curves(published("seu", 0), training=2)
    record = record.model_copy(update={"task_names": (HOSTILE,) * 5})
    pictures = every_picture(record)
    assert len(pictures) == 8
    for picture in pictures:
        svg = to_svg(picture.draw(), picture.heading, picture.alt)
        assert "<script" not in svg and "onerror=alert(2)>" not in svg
        assert "<metadata" not in svg or "dc:date" not in svg
        assert "prefers-color-scheme:dark" in themed(svg) and "prefers-color-scheme" not in svg
        root = ElementTree.fromstring(svg)
        assert [root.findtext(f"{{http://www.w3.org/2000/svg}}{tag}") for tag in ("title", "desc")] == [
            printable(picture.heading),
            printable(picture.alt),
        ]
        without_names = (
            svg.replace("http://www.w3.org/", "")
            .replace("http://purl.org/", "")
            .replace("http://creativecommons.org/", "")
        )
        assert "http" not in without_names and "@import" not in svg and "<image" not in svg


@pytest.mark.long
def test_same_bytes_again() -> None:
    """With markers, hatches and clips, which have names of their own in a file."""
    record = with_curves(published("seu", 0), training=2)
    pictures = every_picture(record)
    for picture in (pictures[0], pictures[3]):
        assert render("x", picture).files == render("x", picture).files


@pytest.mark.parametrize(
    "case", ["odd", *(pytest.param(name, marks=pytest.mark.long) for name in ("large", "not measured"))]
)
def test_odd_numbers(case: str) -> None:
    """Numbers of any size are drawn or left out, without a warning."""
    record = with_curves(published("seu", 0), training=3)
    stages = [stage.model_copy(update={"losses": (1e300, -1e300, 1e-300)}) for stage in record.stages]
    update: Mapping[str, Any] = {
        "odd": {"stages": tuple(stages), "metrics": {"acc": 1e300, "params_total": 2**62}, "task_names": ("",)},
        "large": {"metrics": {"acc": 0.5, "params_total": 2**62}},
        "not measured": {"accuracy_matrix": ((None,),)},
    }[case]
    for picture in every_picture(record.model_copy(update=update)):
        assert to_svg(picture.draw()).endswith("</svg>\n")
