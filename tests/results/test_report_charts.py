"""Charts: the numbers are those of the records, in the table, in the figure's files and for plotly."""

from __future__ import annotations

import json
import math
import re
import statistics
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text
from support.board_records import Put, leaderboards
from support.report_records import HOSTILE, configuration, published, runs, with_curves

from seu_bench.results.comparison import compare_over_benchmarks
from seu_bench.results.record import Record
from seu_bench.results.report import Layout
from seu_bench.results.report.charts import (
    MOST_RANKED,
    Chart,
    accuracy_against,
    accuracy_curves,
    accuracy_matrices,
    average_accuracy,
    average_ranks,
    compare,
    learning_curves,
    task_confusion,
)
from seu_bench.results.report.configurations import Configuration, basis, style, styles_of
from seu_bench.results.report.drawing import draw, render
from seu_bench.results.report.plotting import plotly_figure


def chosen(*strategies: str, seeds: Sequence[int] = (0, 1, 2)) -> list[Configuration]:
    looks = zip(strategies, styles_of(strategies), strict=True)
    return [Configuration(number, name, runs(name, seeds), look) for number, (name, look) in enumerate(looks)]


def entry(strategy: str, row: int, task: int) -> list[float]:
    """R[row][task] of every seed, in percent."""
    return [100 * float(record.accuracy_matrix[row][task] or 0) for record in runs(strategy)]


def class_record(seed: int = 0, **fields: Any) -> Record:
    """A sample record as if it were class-incremental, with a tenth of the images of a task taken for the next one."""
    counts = [[9 if task == row else int(task == (row + 1) % 5) for task in range(5)] for row in range(5)]
    return Record.model_validate(
        published("naive", seed).model_dump() | {"scenario": "class", "task_confusion": counts} | fields
    )


def every_chart(label: str = "name") -> list[Chart]:
    drawn = [configuration(*(with_curves(it, training=3) for it in runs("seu")), label=label)]
    drawn += [configuration(class_record(), label=f"{label} 2")]
    return [*compare(drawn, chosen("joint")), *learning_curves(drawn[0])]


class TestValues:
    def test_accuracy_curves(self) -> None:
        """A panel for each task, means and deviations over seeds from when it is learned on."""
        chart = accuracy_curves(chosen("seu", "naive"))
        assert len(chart.panels) == 5 and chart.panels[0].title.startswith("task 0")
        for task, panel in enumerate(chart.panels):
            series = panel.series[1]
            assert series.name == "naive" and list(series.x) == list(range(task, 5)) and series.std is not None
            for row, mean, std in zip(range(task, 5), series.y, series.std, strict=True):
                values = entry("naive", row, task)
                assert (mean, std) == pytest.approx((statistics.fmean(values), statistics.stdev(values)))

    def test_average_accuracy(self) -> None:
        (panel,) = average_accuracy(chosen("naive"), chosen("joint")).panels
        naive, joint = panel.series
        for row, mean in enumerate(naive.y):
            seeds = zip(*(entry("naive", row, task) for task in range(row + 1)), strict=True)
            assert mean == pytest.approx(statistics.fmean(map(statistics.fmean, seeds)))
        final = 100 * statistics.fmean(float(record.metrics["acc"] or 0) for record in runs("joint"))
        assert joint.look == "across" and joint.y == pytest.approx([final] * 5)

    def test_accuracy_against_parameters(self) -> None:
        """Points of learners and hollow ones of references; the front is of learners alone."""
        chart = accuracy_against("params_total", chosen("naive", "pnn", "seu"), chosen("joint"))
        *points, front = chart.panels[0].series
        sizes = [float(record.metrics["params_total"] or 0) / 1e6 for record in runs("pnn")]
        assert points[1].x == pytest.approx([statistics.fmean(sizes)])
        assert [point.is_hollow for point in points] == [False, False, False, True]
        learners = [(point.x[0], point.y[0]) for point in points[:3]]
        on_front = [a for a in learners if not any(b != a and b[0] <= a[0] and b[1] >= a[1] for b in learners)]
        assert list(zip(front.x, front.y, strict=True))[:-1] == sorted(on_front)
        assert front.x[-1] == max(point.x[0] for point in points)

    def test_matrices(self) -> None:
        (panel,) = accuracy_matrices(chosen("naive")).panels
        assert panel.matrix is not None and panel.matrix[3, 1] == pytest.approx(statistics.fmean(entry("naive", 3, 1)))
        assert math.isnan(panel.matrix[1, 3])

    def test_confusion(self) -> None:
        """Shares of answers where they were counted; nothing of other scenarios."""
        ragged = class_record(task_confusion=[[5], [1, 2, 3, 4, 5, 6, 7], []])
        (chart,) = task_confusion([*chosen("naive"), configuration(class_record()), configuration(ragged)])
        full, odd = (panel.matrix for panel in chart.panels)
        assert full is not None and odd is not None
        assert np.diag(full) == pytest.approx([90] * 5) and full[4, 0] == pytest.approx(10)
        assert odd[0] == pytest.approx([100, 0, 0, 0, 0]) and np.isnan(odd[2]).all()
        assert task_confusion(chosen("naive")) == []

    def test_learning(self) -> None:
        """A line for each task of a stage that all seeds have, of loss and of accuracy."""
        each = configuration(*(with_curves(record, training=3) for record in runs("naive")))
        (chart,) = learning_curves(each)
        assert [(panel.title, panel.y) for panel in chart.panels] == [
            ("training", "loss (per image)"),
            ("training", "accuracy (%)"),
        ]
        losses, accuracies = (panel.series[0] for panel in chart.panels)
        assert losses.y == pytest.approx([2.01, 1.01, 2 / 3 + 0.01]) and list(losses.x) == [1, 2, 3]
        assert accuracies.y[0] == pytest.approx(100 * (1 - 2.01 / 4))
        assert learning_curves(chosen("naive")[0]) == []
        assert (
            learning_curves(configuration(with_curves(published("naive", 0), training=3), published("naive", 1))) == []
        )

    def test_not_measured(self) -> None:
        """Gaps where a seed lacks it, and where a stranger's record says what is no accuracy."""
        record = published("naive", 0)
        odd = record.model_copy(update={"accuracy_matrix": ((7.0,), (-1.0, float("nan")), (1e300, 0.5, 0.5))})
        values = [float(y) for panel in accuracy_curves([configuration(odd)]).panels for y in panel.series[0].y]
        assert {value for value in values if not math.isnan(value)} == {50.0}
        rows = [list(row) for row in record.accuracy_matrix]
        rows[3][0] = None
        lacking = record.model_copy(update={"accuracy_matrix": tuple(map(tuple, rows)), "seed": 1})
        (series, *_) = accuracy_curves([configuration(record, lacking)]).panels[0].series
        assert [math.isnan(value) for value in series.y] == [False, False, False, True, False]
        table = accuracy_curves([configuration(record, lacking)]).table()
        assert table[1][2 + 3] == "-"

    @pytest.mark.parametrize("value", [1e300, float("nan"), -1, 0, None])
    def test_odd_sizes(self, value: float | None) -> None:
        record = published("naive", 0)
        odd = configuration(record.model_copy(update={"metrics": record.metrics | {"params_total": value}}))
        assert render(accuracy_against("params_total", [odd]))["png"].startswith(b"\x89PNG")


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
        chart = average_ranks(found)
        alike, worse = chart.panels[0].series
        assert list(chart.categories) == ["a", "b", "c", "d"]
        assert (list(alike.x), list(worse.x)) == (pytest.approx([1, 2.375, 2.625]), [4.0])
        assert (list(alike.y), list(worse.y), worse.is_hollow) == ([0, 1, 2], [3], True)
        assert chart.span == (1.0, 1.0 + found.ranks.critical_difference)
        assert chart.table()[1][:4] == ("a", "1.00", "-", "the best")
        assert json.dumps(plotly_figure(chart), allow_nan=False) and len(render(chart)) == 3
        two = average_ranks(compare_over_benchmarks(boards[:2])[0])
        assert two.span is None and "Nothing is said of significance" in two.caption

    def test_many_are_cut(self, tmp_path: Path, put: Put) -> None:
        for benchmark in ("one", "two", "three"):
            for place in range(MOST_RANKED + 3):
                put(0, place / 100, strategy=f"s{place:02d}", benchmark=benchmark)
        chart = average_ranks(compare_over_benchmarks(leaderboards(tmp_path))[0])
        assert len(chart.categories) == MOST_RANKED and len(chart.table()) == MOST_RANKED + 4
        assert "3 more are in the table" in chart.caption


class TestTable:
    def test_has_every_value(self) -> None:
        """The numbers of a figure can be read as a table."""
        head, first, *_ = average_accuracy(chosen("naive", "seu"), chosen("joint")).table()
        assert head[2:] == [f"after learning task {task}" for task in range(5)] or len(head) == 7
        means = [statistics.fmean(entry("naive", 0, 0))]
        assert first[0] == "naive" and first[2].startswith(f"{means[0]:.1f} ± ")
        head, *rows = accuracy_against("params_total", chosen("naive", "seu")).table()
        assert list(head) == ["configuration", "parameters (M)", "average accuracy after the last task (%)"]
        assert len(rows) == 2
        assert len(accuracy_matrices(chosen("naive", "seu")).table()) == 1 + 2 * 5

    def test_a_wide_one_is_turned(self) -> None:
        record = published("naive", 0)
        long = record.model_copy(
            update={"accuracy_matrix": tuple((0.5,) * (row + 1) for row in range(60)), "task_names": ("x",) * 60}
        )
        table = average_accuracy([configuration(long)]).table()
        assert len(table) == 2 + 60 and {len(row) for row in table} == {2}


def test_basis() -> None:
    """Captions say what a figure rests on."""
    text = basis(chosen("naive", "seu"))
    assert "Benchmark split_digits, version 1, protocol quick, 3 seeds each." in text
    assert "Fewer than 3 seeds" not in text and "Fewer than 3 seeds" in basis(chosen("naive", seeds=[0, 1]))
    assert "3 seeds (1 configurations), 2 seeds (1" in basis([*chosen("naive"), *chosen("seu", seeds=[0, 1])])
    for chart in every_chart():
        assert "Benchmark split_digits" in chart.caption


def test_styles_differ() -> None:
    """No two look the same; a strategy looks the same beside others."""
    assert len(set(styles_of([f"s{n}" for n in range(24)]))) == len({style(n) for n in range(24)}) == 24
    assert styles_of(["seu", "naive"])[0] == styles_of(["seu", "ewc"])[0]


class TestFiles:
    def test_same_bytes_again(self) -> None:
        chart = every_chart()[0]
        assert render(chart) == render(chart)

    @pytest.mark.parametrize(
        ("width", "inches"),
        [("3.25in", 3.25), ("82.55mm", 3.25), ("icml", 3.25), ("icml-wide", 6.75), ("neurips", 5.5)],
    )
    def test_exactly_as_wide_as_the_column(self, width: str, inches: float) -> None:
        """In every format, so that a paper includes it without scaling; with fonts that publishers accept."""
        files = render(average_accuracy(chosen("naive")), Layout.of(width))
        box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ", files["pdf"])
        assert box is not None and float(box[1]) == pytest.approx(72 * inches, abs=0.01)
        assert struct.unpack(">I", files["png"][16:20]) == (300 * inches,)
        assert b"/Type3" not in files["pdf"] and b"/Type 3" not in files["pdf"] and b"/FontFile2" in files["pdf"]
        assert (b"STIXGeneral" in files["pdf"] or b"Times" in files["pdf"]) == width[0].isalpha()

    @pytest.mark.parametrize("text", ["", "3.25", "in", "-3in", "3,25in", "nanin", "1e3in", "1cm", "90in", "x", "٣in"])
    def test_what_is_no_width(self, text: str) -> None:
        with pytest.raises(
            ValueError, match=r"is no width; give one such as 3\.25in|figures are 2\.5 to 20 inches wide"
        ):
            Layout.of(text)

    @pytest.mark.parametrize("width", ["3.25in", "neurips", None])
    def test_nothing_is_cut(self, width: str | None, subtests: pytest.Subtests) -> None:
        """All of it lies within the figure, also where names are long."""
        import matplotlib.style

        layout = Layout() if width is None else Layout.of(width)
        for chart in every_chart("a long name of a configuration, which has (many=options, and=more)"):
            with subtests.test(chart.kind), matplotlib.style.context(layout.settings):
                figure = draw(chart, layout)
                figure.draw_without_rendering()
                box, (wide, high) = figure.get_tightbbox(), figure.get_size_inches()
                assert wide == layout.width
                assert min(box.x0, box.y0) > -0.01 and box.x1 < wide + 0.01 and box.y1 < high + 0.01
                texts = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text()]
                assert min(float(text.get_fontsize()) for text in texts) >= 5.5

    def test_names_are_text(self) -> None:
        """A stranger's name is neither a formula nor markup."""
        for chart in every_chart(HOSTILE)[:3]:
            svg = render(chart)["svg"].decode()
            assert "<script" not in svg and "\x1b" not in svg and "&lt;script&gt;" in svg and "frac" in svg


class TestPlotly:
    def test_values(self) -> None:
        """What plotly draws is what the chart has; it is plain JSON, without NaN."""
        for chart in every_chart():
            figure = json.loads(json.dumps(plotly_figure(chart), allow_nan=False))
            series = [s for panel in chart.panels for s in panel.series]
            traces = [trace for trace in figure["data"] if trace.get("type") != "heatmap"]
            for trace, each in zip(traces, series, strict=True):
                assert trace["x"] == pytest.approx(list(each.x), rel=1e-5)
                assert [y is None for y in trace["y"]] == np.isnan(each.y).tolist()
                assert [y for y in trace["y"] if y is not None] == pytest.approx(each.y[np.isfinite(each.y)], rel=1e-5)
            matrices = [trace["z"] for trace in figure["data"] if trace.get("type") == "heatmap"]
            assert len(matrices) == sum(panel.matrix is not None for panel in chart.panels)
            shown = [trace["name"] for trace in traces if trace["showlegend"]]
            assert len(shown) == len(set(shown)) == len({s.name for s in series if s.look != "step"})

    def test_names_are_text(self) -> None:
        """plotly.js takes some markup in texts: none is a stranger's."""
        tags: set[str] = set()

        def look(value: Any) -> None:
            if isinstance(value, dict | list):
                for each in value.values() if isinstance(value, dict) else value:
                    look(each)
            elif isinstance(value, str):
                tags.update(re.findall("<[^>]*>", value))

        for chart in every_chart(HOSTILE + "<a href='x'>"):
            look(plotly_figure(chart))
        assert tags == {"<br>"}
