"""Charts: the numbers are those of the records, in the table, in the figure's files and for plotly."""

from __future__ import annotations

import json
import math
import re
import statistics
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from matplotlib.text import Text
from support.board_records import Put, leaderboards
from support.report_records import HOSTILE, configuration, published, runs

from seu_bench.results import Layout
from seu_bench.results.comparison import compare_over_benchmarks
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.report.charts import (
    Chart,
    Configuration,
    accuracy_against,
    accuracy_matrices,
    average_accuracy,
    average_ranks,
    basis,
    compare,
    style,
    styles_of,
    task_labels,
)
from seu_bench.results.report.drawing import draw, render
from seu_bench.results.report.plotting import plotly_figure


def chosen(*strategies: str, seeds: Sequence[int] = (0, 1, 2)) -> list[Configuration]:
    return [
        Configuration(name, runs(name, seeds), look)
        for name, look in zip(strategies, styles_of(strategies), strict=True)
    ]


def entry(strategy: str, row: int, task: int) -> list[float]:
    """R[row][task] of every seed, in percent."""
    return [100 * float(record.accuracy_matrix[row][task] or 0) for record in runs(strategy)]


def every_chart(label: str = "name") -> list[Chart]:
    drawn = [configuration(*runs("seu"), label=label), configuration(*runs("naive"), label=f"{label} 2")]
    return compare(drawn, chosen("joint"))


class TestValues:
    def test_average_accuracy(self) -> None:
        """Of each seed over the tasks so far; a reference is a line at its final accuracy; the table has it all."""
        chart = average_accuracy(chosen("naive"), chosen("joint"))
        naive, joint = chart.series
        for row, mean in enumerate(naive.y):
            seeds = zip(*(entry("naive", row, task) for task in range(row + 1)), strict=True)
            assert mean == pytest.approx(statistics.fmean(map(statistics.fmean, seeds)))
        assert naive.std is not None and naive.std[0] == pytest.approx(statistics.stdev(entry("naive", 0, 0)))
        final = 100 * statistics.fmean(float(record.metrics["acc"] or 0) for record in runs("joint"))
        assert joint.look == "across" and joint.y == pytest.approx([final] * 5)
        head, first, last = chart.table()
        assert head[1:] == tuple(f"after learning task {task}" for task in range(1, 6))
        assert first[:2] == ("naive", f"{naive.y[0]:.1f} ± {naive.std[0]:.1f}")
        assert last == ("reference: joint", "-", "-", "-", "-", f"{final:.1f}")

    def test_accuracy_against_parameters(self) -> None:
        """Points of learners and hollow ones of references; the front is of learners alone."""
        chart = accuracy_against("params_total", chosen("naive", "pnn", "seu"), chosen("joint"))
        *points, front = chart.series
        sizes = [float(record.metrics["params_total"] or 0) / 1e6 for record in runs("pnn")]
        assert points[1].x == pytest.approx([statistics.fmean(sizes)])
        assert [point.is_hollow for point in points] == [False, False, False, True]
        learners = [(point.x[0], point.y[0]) for point in points[:3]]
        on_front = [a for a in learners if not any(b != a and b[0] <= a[0] and b[1] >= a[1] for b in learners)]
        assert list(zip(front.x, front.y, strict=True))[:-1] == sorted(on_front)
        assert front.x[-1] == max(point.x[0] for point in points)
        assert len(chart.table()) == 1 + 4

    def test_matrices(self) -> None:
        chart = accuracy_matrices(chosen("naive", "seu"))
        matrix = chart.matrices["naive"]
        assert matrix[3, 1] == pytest.approx(statistics.fmean(entry("naive", 3, 1))) and math.isnan(matrix[1, 3])
        assert len(chart.table()) == 1 + 2 * 5

    def test_not_measured(self) -> None:
        """Gaps where a seed lacks it, and where a stranger's record says what is no accuracy."""
        record = published("naive", 0)
        odd = record.model_copy(update={"accuracy_matrix": ((7.0,), (-1.0, float("nan")), (1e300, 0.5, 0.5))})
        values = accuracy_matrices([configuration(odd)]).matrices["label"]
        assert set(values[np.isfinite(values)]) == {50.0}
        rows = [list(row) for row in record.accuracy_matrix]
        rows[3][0] = None
        lacking = record.model_copy(update={"accuracy_matrix": tuple(map(tuple, rows)), "seed": 1})
        chart = average_accuracy([configuration(record, lacking)])
        assert [math.isnan(value) for value in chart.series[0].y] == [False, False, False, True, False]
        assert chart.table()[1][1 + 3] == "-"

    @pytest.mark.parametrize("value", [1e300, float("nan"), -1, 0, None])
    def test_odd_sizes(self, value: float | None) -> None:
        record = published("naive", 0)
        odd = configuration(record.model_copy(update={"metrics": record.metrics | {"params_total": value}}))
        assert render(accuracy_against("params_total", [odd]), Layout())["png"].startswith(b"\x89PNG")


def test_tasks_have_the_names_of_their_classes() -> None:
    """Where these are the same in all runs."""
    names = (("maple", "oak", *"abcdefgh"), ("a" * 40,))
    known = published("naive", 0).model_copy(update={"task_class_names": names})
    assert task_labels([configuration(known)]) == ["1: maple, oak, a, +7", f"2: {'a' * 15}…", "3", "4", "5"]
    assert task_labels([configuration(known, published("naive", 2))]) == ["1", "2", "3", "4", "5"]


#: Mean accuracies on each benchmark: a is always the best of four, the others change places.
TABLE = {
    "one": {"a": 0.90, "b": 0.80, "c": 0.70, "d": 0.60},
    "two": {"a": 0.80, "b": 0.60, "c": 0.70, "d": 0.50},
    "three": {"a": 0.70, "b": 0.60, "c": 0.60, "d": 0.20},
    "four": {"a": 0.95, "b": 0.90, "c": 0.80, "d": 0.10},
}


class TestRanks:
    def test_diagram(self, tmp_path: Path, put: Put) -> None:
        """Each configuration at its average rank; what is worse than the best is hollow, and the rest filled."""
        for benchmark, accuracies in TABLE.items():
            for strategy, accuracy in accuracies.items():
                for seed in (0, 1):
                    put(seed, accuracy, strategy=strategy, benchmark=benchmark)
        boards = leaderboards(tmp_path)
        (found,) = compare_over_benchmarks(boards)
        chart = average_ranks(found, METRICS, {})
        alike, worse = chart.series
        assert list(chart.categories) == ["a", "b", "c", "d"]
        assert (list(alike.x), list(worse.x)) == (pytest.approx([1, 2.375, 2.625]), [4.0])
        assert (list(alike.y), list(worse.y), worse.is_hollow) == ([0, 1, 2], [3], True)
        assert chart.span == (1.0, 1.0 + found.ranks.critical_difference)
        assert chart.table()[1][:4] == ("a", "1.00", "-", "the best")
        assert json.dumps(plotly_figure(chart), allow_nan=False) and len(render(chart, Layout())) == 3
        two = average_ranks(compare_over_benchmarks(boards[:2])[0], METRICS, {})
        assert two.span is None and "Nothing is said of significance" in two.caption


def test_basis() -> None:
    """Captions say what a figure rests on."""
    text = basis(chosen("naive", "seu"))
    assert "Benchmark split_digits, version 1, protocol quick, 3 seeds each." in text
    assert "Fewer than 3 seeds" not in text and "Fewer than 3 seeds" in basis(chosen("naive", seeds=[0, 1]))
    for chart in every_chart():
        assert "Benchmark split_digits" in chart.caption


def test_styles_differ() -> None:
    """No two look the same; a strategy looks the same beside others."""
    assert len(set(styles_of([f"s{n}" for n in range(24)]))) == len({style(n) for n in range(24)}) == 24
    assert styles_of(["seu", "naive"])[0] == styles_of(["seu", "ewc"])[0]


class TestFiles:
    @pytest.mark.parametrize(
        ("width", "inches"), [("3.25in", 3.25), ("82.55mm", 3.25), ("icml-wide", 6.75), ("neurips", 5.5)]
    )
    def test_exactly_as_wide_as_the_column(self, width: str, inches: float) -> None:
        """In every format, so that a paper includes it without scaling; with fonts that publishers accept."""
        chart = average_accuracy(chosen("naive"))
        files = render(chart, Layout.of(width))
        assert files == render(chart, Layout.of(width))
        box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ", files["pdf"])
        assert box is not None and float(box[1]) == pytest.approx(72 * inches, abs=0.01)
        assert struct.unpack(">I", files["png"][16:20]) == (300 * inches,)
        assert b"/Type3" not in files["pdf"] and b"/Type 3" not in files["pdf"] and b"/FontFile2" in files["pdf"]
        assert (b"STIXGeneral" in files["pdf"] or b"Times" in files["pdf"]) == width[0].isalpha()

    @pytest.mark.parametrize("text", ["", "3.25", "-3in", "3,25in", "1e3in", "1cm", "90in", "x", "٣in"])
    def test_what_is_no_width(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"is no width; give one such as|figures are 2\.5 to 20 inches wide"):
            Layout.of(text)

    @pytest.mark.parametrize("width", ["3.25in", "neurips", None])
    def test_nothing_is_cut(self, width: str | None, subtests: pytest.Subtests) -> None:
        """All of it lies within the figure, also where names are long."""
        import matplotlib.style

        layout = Layout() if width is None else Layout.of(width)
        for chart in every_chart("a long name of a configuration, which has (many=options, and=more)"):
            with subtests.test(chart.kind), matplotlib.style.context(layout.settings):
                figure = draw(chart, layout.width)
                figure.draw_without_rendering()
                box, (wide, high) = figure.get_tightbbox(), figure.get_size_inches()
                assert wide == layout.width
                assert min(box.x0, box.y0) > -0.01 and box.x1 < wide + 0.01 and box.y1 < high + 0.01
                texts = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text()]
                assert min(float(text.get_fontsize()) for text in texts) >= 5.5

    def test_names_are_text(self) -> None:
        """A stranger's name is neither a formula nor markup."""
        for chart in every_chart(HOSTILE)[:3]:
            svg = render(chart, Layout())["svg"].decode()
            assert "<script" not in svg and "\x1b" not in svg and "&lt;script&gt;" in svg and "frac" in svg


class TestPlotly:
    def test_values(self) -> None:
        """What plotly draws is what the chart has; it is plain JSON, without NaN."""
        for chart in every_chart():
            figure = json.loads(json.dumps(plotly_figure(chart), allow_nan=False))
            traces = [trace for trace in figure["data"] if trace.get("type") != "heatmap"]
            for trace, each in zip(traces, chart.series, strict=True):
                assert trace["x"] == pytest.approx(list(each.x), rel=1e-5)
                assert [y is None for y in trace["y"]] == np.isnan(each.y).tolist()
                assert [y for y in trace["y"] if y is not None] == pytest.approx(each.y[np.isfinite(each.y)], rel=1e-5)
                assert trace["showlegend"] is (each.look != "step")
            matrices = [trace["z"] for trace in figure["data"] if trace.get("type") == "heatmap"]
            for shown, matrix in zip(matrices, chart.matrices.values(), strict=True):
                assert np.array(shown, dtype=float) == pytest.approx(matrix, rel=1e-5, nan_ok=True)

    def test_names_are_text(self) -> None:
        """plotly.js takes some markup in texts: none is a stranger's."""
        text = json.dumps([plotly_figure(chart) for chart in every_chart(HOSTILE + "<a href='x'>")])
        assert set(re.findall("<[^>]*>", text)) == {"<br>"}
