"""The critical-difference diagram: average ranks over benchmarks, and which are not told from the best.

After J. Demsar, "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 7, 2006, figure 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seu_bench.results.leaderboard.boards import Leaderboard
from seu_bench.results.metric import Metric
from seu_bench.results.over_benchmarks import BenchmarkComparison, compare_over_benchmarks
from seu_bench.results.record_metrics import METRICS, known_metric
from seu_bench.results.report import canvas
from seu_bench.results.report.canvas import Picture, short
from seu_bench.results.report.summary import sentences
from seu_bench.results.statistics.ranks import AverageRank

#: More configurations are no picture any more; the table has them.
MOST_DRAWN: Final = 24
#: Of the figure in inches: width, height of a line of labels, and what is above the first of them.
_WIDTH, _LINE, _HEAD = 9.0, 0.26, 0.95
#: Places across: where labels end on the left and begin on the right, the scale between 0 and 1.
_LEFT, _RIGHT = -0.06, 1.06


@dataclass(frozen=True)
class RankSection:
    """Configurations of one protocol over several benchmarks: the comparison, and its picture.

    Attributes:
        is_drawn: whether the picture is among those that the report may have; its numbers are shown in any case.
    """

    comparison: BenchmarkComparison
    picture: Picture
    is_drawn: bool

    @property
    def name(self) -> str:
        """Beginning of the names of its figure's files."""
        return f"over-benchmarks-{self.comparison.protocol}"


def rank_sections(
    boards: Iterable[Leaderboard], room: int, metrics: Mapping[str, Metric] = METRICS
) -> list[RankSection]:
    """A section for each protocol of which configurations are on several benchmarks; the first ``room`` are drawn."""
    found = compare_over_benchmarks(boards, metrics=metrics)
    return [RankSection(each, critical_difference(each, metrics), place < room) for place, each in enumerate(found)]


def critical_difference(comparison: BenchmarkComparison, metrics: Mapping[str, Metric] = METRICS) -> Picture:
    """Average ranks on a line, the best on the left; a bar joins those that are not told from the best."""
    ranks, metric = comparison.ranks, known_metric(comparison.metric, metrics)
    shown = ranks.rows[:MOST_DRAWN]
    alike = [row for row in shown if row.verdict in (None, "not significant")]

    def draw() -> Figure:
        half = (len(shown) + 1) // 2
        height = _HEAD + _LINE * (half + 1)
        figure = Figure(figsize=(_WIDTH, height))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(-0.85, 1.85)
        axes.set_ylim(-_LINE * (half + 1), _HEAD)
        _scale(axes, len(ranks.rows))
        if ranks.statistic is not None:
            best = next(row.mean for row in shown if row.verdict is None)
            ends = best, best + ranks.critical_difference
            _bar(axes, *ends, len(ranks.rows), 0.62, "critical difference to the best (Bonferroni-Dunn)")
            _join(axes, alike, len(ranks.rows))
        for line, row in enumerate(shown[:half]):
            _label(axes, row, line, len(ranks.rows), left=True)
        for line, row in enumerate(reversed(shown[half:])):
            _label(axes, row, line, len(ranks.rows), left=False)
        return figure

    words = [f"{row.configuration}: average rank {row.mean:.2f}, {_word(row)}" for row in shown]
    names = {
        board.benchmark: f"{board.benchmark} ({metric.column or comparison.metric})" for board in comparison.boards
    }
    rows = [
        (
            row.configuration,
            f"{row.mean:.2f}",
            "-" if row.corrected is None else f"{row.corrected:.4f}",
            _word(row),
            *(
                f"{metric.format_cell(it.mean(comparison.metric) or 0.0)} (rank {row.ranks[name]:g})"
                for name, it in zip(names, comparison.rows[row.configuration], strict=True)
            ),
        )
        for row in ranks.rows
    ]
    more = f" {len(ranks.rows) - len(shown)} more are in the table." if len(ranks.rows) > len(shown) else ""
    return Picture(
        "average-ranks",
        f"Average ranks over {len(names)} benchmarks",
        "Further left is better; 1 would be the best on every benchmark. "
        + (
            f"The thick bar joins the best, {ranks.control}, with what is not significantly worse: Holm's correction, "
            f"after Friedman's test (p = {ranks.p_value:.4f})."
            if ranks.p_value is not None
            else "Nothing is said of significance: there are too few benchmarks or configurations."
        )
        + more,
        f"Average ranks of {len(ranks.rows)} configurations over {', '.join(names)}. " + sentences(words),
        draw,
        [("configuration", "average rank", "p (Holm)", "beside the best", *names.values()), *rows],
    )


def _word(row: AverageRank) -> str:
    return "the best" if row.verdict is None else row.verdict


def _across(rank: float, count: int) -> float:
    """Place of a rank from 1 to ``count`` on the scale from 0 to 1."""
    return (rank - 1) / max(1, count - 1)


def _scale(axes: Axes, count: int) -> None:
    axes.plot([0, 1], [0, 0], color=canvas.INK, linewidth=1)
    step = max(1, round(count / 12))
    for rank in range(1, count + 1, step):
        place = _across(rank, count)
        axes.plot([place, place], [0, 0.07], color=canvas.INK, linewidth=1)
        axes.annotate(str(rank), (place, 0.11), ha="center", va="bottom", fontsize=8, color=canvas.INK)


def _bar(axes: Axes, low: float, high: float, count: int, y: float, text: str) -> None:
    ends = [_across(low, count), _across(high, count)]
    axes.plot(ends, [y, y], color=canvas.MUTED, linewidth=1, marker="|", markersize=7)
    axes.annotate(text, (ends[0], y + 0.07), ha="left", va="bottom", fontsize=8, color=canvas.MUTED)


def _join(axes: Axes, rows: Sequence[AverageRank], count: int) -> None:
    """Join those that are not told apart from the best, which is one of them."""
    places = [_across(row.mean, count) for row in rows]
    if len(places) > 1:
        ends = [min(places) - 0.008, max(places) + 0.008]
        axes.plot(ends, [-0.09, -0.09], color=canvas.VERMILLION, linewidth=3.5, solid_capstyle="butt", zorder=3)


def _label(axes: Axes, row: AverageRank, line: int, count: int, *, left: bool) -> None:
    """A line from the scale down to the label at its side; labels nearer to the middle are further down."""
    x, y, end = _across(row.mean, count), -_LINE * (line + 1), _LEFT if left else _RIGHT
    axes.plot([x, x, end], [0, y, y], color=canvas.MUTED, linewidth=0.9, zorder=1)
    name = short(row.configuration, 30, 1)
    text = f"{name}  {row.mean:.2f}" if left else f"{row.mean:.2f}  {name}"
    axes.annotate(
        text,
        (end + (-0.015 if left else 0.015), y),
        ha="right" if left else "left",
        va="center",
        fontsize=8.5,
        color=canvas.INK,
    )
