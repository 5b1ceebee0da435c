"""References in figures: lines across and hollow markers in grey, named as what they are, and no rival's curve."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from support.report_records import legend, published, put, put_all, runs

from seu_bench.results.reference_rows import REFERENCE_ROWS
from seu_bench.results.report.canvas import MUTED, reference_styles, style
from seu_bench.results.report.draw_comparing import average_curve
from seu_bench.results.report.draw_size import accuracy_against_size
from seu_bench.results.report.sections import Limits, read_sections
from seu_bench.results.report.summary import Configuration

pytestmark = pytest.mark.usefixtures("report_settings")


@pytest.fixture
def learner() -> Configuration:
    return Configuration(1, "naive", runs("naive"), style(0), 1)


@pytest.fixture
def joint() -> Configuration:
    return Configuration(0, "joint", runs("joint"), reference_styles(1)[0])


def mean(metric: str) -> float:
    """Of ``joint``."""
    return statistics.fmean(float(run.metrics[metric] or 0) for run in runs("joint"))


def across(axes: Axes) -> list[Line2D]:
    """Lines from one edge to the other."""
    return [line for line in axes.get_lines() if list(line.get_xdata()) == [0, 1]]


def test_curve_has_a_line_across(learner: Configuration, joint: Configuration) -> None:
    """At the final accuracy, grey, below the curves; legend and caption say what it is."""
    picture = average_curve([learner], [joint])
    figure = picture.draw()
    (line,) = across(figure.axes[0])
    assert list(line.get_ydata()) == pytest.approx([100 * mean("acc")] * 2)
    assert to_hex(line.get_color()) == MUTED and line.get_zorder() < 2
    assert legend(figure) == ["1 naive", "reference: joint"]
    assert f"(joint: {REFERENCE_ROWS['joint']})" in picture.caption
    assert f"reference: joint (3 seeds): not measured after task 0, {100 * mean('acc'):.1f}" in picture.alt


def test_size_has_a_hollow_marker(learner: Configuration, joint: Configuration) -> None:
    """At its parameters and accuracy; learners' markers are filled."""
    picture = accuracy_against_size([learner], (), [joint])
    figure = picture.draw()
    (axes,) = figure.axes
    (line,) = across(axes)
    points = [it for it in axes.get_lines() if it.get_marker() == joint.style.marker and len(it.get_xdata()) == 1]
    hollow = next(it for it in points if it.get_markerfacecolor() == "none")
    assert list(hollow.get_xdata()) == pytest.approx([mean("params_total")])
    assert list(hollow.get_ydata()) == pytest.approx([100 * mean("acc")])
    assert to_hex(hollow.get_markeredgecolor()) == MUTED
    assert list(line.get_ydata()) == pytest.approx([100 * mean("acc")] * 2)
    assert legend(figure) == ["1 naive", "reference: joint"]
    assert [row[0] for row in picture.numbers[1:]] == ["1 naive", "reference: joint"]


def test_without_references_nothing_is_said(learner: Configuration) -> None:
    """No line across, and no word of them."""
    for picture in (average_curve([learner]), accuracy_against_size([learner])):
        assert not across(picture.draw().axes[0])
        assert "references" not in picture.caption


def test_styles_differ() -> None:
    """All are grey: by marker and dashes."""
    styles = reference_styles(5)
    assert len({(look.marker, look.line) for look in styles}) == 5
    assert {look.color for look in styles} == {MUTED}


def test_sections_keep_them_apart(tmp_path: Path) -> None:
    """They take no place among the configurations drawn; of two that are the same the most accurate is drawn."""
    put_all(tmp_path, ["joint", "naive", "seu"], [0])
    better = published("joint", 0).metrics | {"acc": 1.0}
    put(tmp_path, published("joint", 0), run_id="wide", options={"backbone": "mlp"}, metrics=better)
    put(tmp_path, published("naive", 0), run_id="flat", options={"backbone": "linear"})
    (section,), *_ = read_sections(tmp_path, None, None, Limits(configurations=2))
    assert sorted(each.example.strategy for each in section.drawn) == ["naive", "seu"]
    assert sorted(each.example.run_id for each in section.references) == ["flat", "wide"]
    assert not any("configurations are drawn" in note for note in section.notes)
    for picture in section.comparing[2:]:  # of tasks one by one
        assert "reference" not in picture.alt
