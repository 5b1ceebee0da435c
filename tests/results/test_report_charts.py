"""Charts: the values of figures, with seeds and deviations, as plotly.js takes them; names stay text."""

from __future__ import annotations

import base64
import gzip
import json
import math
import re
import statistics

import pytest
from support.report_records import HOSTILE, SEEDS, published, runs

from seu_bench.results.report.canvas import reference_styles, style
from seu_bench.results.report.page.charts import Chart, charts_of
from seu_bench.results.report.page.plotly_library import read_library
from seu_bench.results.report.summary import Configuration, Published


@pytest.fixture(scope="module")
def charts() -> dict[str, Chart]:
    """Two configurations, one of a single seed, a reference, and a result of the paper."""
    drawn = [
        Configuration(1, "naive", runs("naive"), style(1), 1),
        Configuration(2, "seu", runs("seu", [0]), style(0), 2),
    ]
    beside = [Configuration(3, "joint", runs("joint"), reference_styles(1)[0])]
    return charts_of(drawn, beside, [Published("SGD", 54.0, 12_978_314, style(2))])


def accuracies(strategy: str, row: int, task: int) -> list[float]:
    """Percent, by seed."""
    return [100 * float(published(strategy, seed).accuracy_matrix[row][task] or 0) for seed in SEEDS]


def test_kinds(charts: dict[str, Chart]) -> None:
    """One for each figure that compares configurations by values; nothing where nothing is drawn."""
    kinds = ["average-accuracy", "accuracy-memory", "accuracy-parameters", "accuracy-curves", "original-retained"]
    assert list(charts) == kinds
    assert charts_of([], []) == {}


def test_average_accuracy(charts: dict[str, Chart]) -> None:
    """Mean and deviation over seeds; one seed has none; a reference is a line across at its final accuracy."""
    naive, seu, joint = charts["average-accuracy"].series
    means = [statistics.fmean(accuracies("naive", 1, task)[seed] for task in (0, 1)) for seed in range(3)]
    (points,) = naive.views
    assert points.x == [0, 1, 2, 3, 4] and naive.seeds == "3 seeds"
    assert points.y[1] == pytest.approx(statistics.fmean(means), rel=1e-6)
    assert points.up[1] == pytest.approx(statistics.stdev(means), rel=1e-6)
    assert seu.views[0].up == [None] * 5 and seu.seeds == "1 seed"
    final = 100 * statistics.fmean(float(published("joint", seed).metrics["acc"] or 0) for seed in SEEDS)
    assert joint.is_hollow and joint.views[0].y == pytest.approx([final] * 5, rel=1e-6)


def test_size(charts: dict[str, Chart]) -> None:
    """Millions and percent; the paper's result and the reference are hollow."""
    by_name = {series.name: series for series in charts["accuracy-parameters"].series}
    assert [name for name, series in by_name.items() if series.is_hollow] == ["reference: joint", "the paper's SGD"]
    (point,) = by_name["1 naive"].views
    assert point.x == pytest.approx([float(published("naive", 0).metrics["params_total"] or 0) / 1e6], rel=1e-6)
    assert re.fullmatch(r"[\d.]+ ± [\d.]+ %<br>0\.\d{3} ± 0\.000 million parameters", point.text[0])
    assert by_name["the paper's SGD"].views[0].text == ["54.00 %<br>12.978 million parameters"]


def test_forgetting(charts: dict[str, Chart]) -> None:
    """The fall by seed, whose deviation is not that of either accuracy."""
    chart = charts["original-retained"]
    assert [view.unit for view in chart.views] == ["points", "%", "%"]
    fallen, original, retained = chart.series[0].views
    differences = [a - b for a, b in zip(accuracies("naive", 0, 0), accuracies("naive", 4, 0), strict=True)]
    assert fallen.y[0] == pytest.approx(statistics.fmean(differences), rel=1e-6)
    assert fallen.up[0] == pytest.approx(statistics.stdev(differences), rel=1e-6)
    assert fallen.y[4] == 0
    assert original.y[0] == pytest.approx(statistics.fmean(accuracies("naive", 0, 0)), rel=1e-6)
    assert retained.y[0] == pytest.approx(statistics.fmean(accuracies("naive", 4, 0)), rel=1e-6)


def test_each_task(charts: dict[str, Chart]) -> None:
    """From when it is learned on."""
    chart = charts["accuracy-curves"]
    assert len(chart.views) == 5 and chart.views[0].name == "task 0 (classes 4-5)"
    views = chart.series[0].views
    assert [points.x for points in views] == [list(range(task, 5)) for task in range(5)]
    assert views[2].y[1] == pytest.approx(statistics.fmean(accuracies("naive", 3, 2)), rel=1e-6)


def test_not_measured() -> None:
    """It is a gap and no zero; a configuration without a size is not in a chart of sizes."""
    record = published("naive", 0)
    matrix = [list(row) for row in record.accuracy_matrix]
    matrix[3][0] = None
    broken = record.model_copy(update={"accuracy_matrix": matrix, "metrics": {"acc": math.nan}})
    found = charts_of([Configuration(1, "naive", (broken,), style(0))], [])
    assert found["average-accuracy"].series[0].views[0].y[3] is None
    assert found["accuracy-parameters"].series == ()
    for chart in found.values():
        json.dumps(chart.document(), allow_nan=False)


def test_names_are_text() -> None:
    """No markup of a name reaches what plotly.js takes for markup of its own."""
    chart = charts_of([Configuration(1, f"<a href='x'>{HOSTILE}", runs("naive"), style(0))], [])["average-accuracy"]
    label = chart.document()["series"][0]["label"]
    assert re.findall(r"<[^>]*>", label) == ["<b>", "</b>", "<br>"] * label.count("<br>") + ["<b>", "</b>"]
    assert "&lt;script&gt;" in label and "\x1b" not in label


def test_library() -> None:
    """It is what the package has, and the same whenever it is packed."""
    library = read_library()
    assert gzip.decompress(base64.b64decode(library.packed)).decode() == library.text
    assert "plotly.js v" in library.text[:100] and read_library() == library
    assert len(library.packed) < 2.2e6
