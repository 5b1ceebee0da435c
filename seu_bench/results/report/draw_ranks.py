"""The critical-difference diagram: average ranks over benchmarks, and which are not told from the best.

After J. Demsar, "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 7, 2006, figure 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seu_bench.results.comparison import BenchmarkComparison, compare_over_benchmarks
from seu_bench.results.leaderboard import Leaderboard
from seu_bench.results.metric import Metric
from seu_bench.results.record_metrics import METRICS, known_metric
from seu_bench.results.report.basis import seed_counts
from seu_bench.results.report.canvas import VERMILLION, Picture, fill, letters, short, small
from seu_bench.results.report.layout import FAINT, INK, MUTED, PAGE, PAPER, Layout
from seu_bench.results.report.summary import sentences
from seu_bench.results.scenarios import with_scenario
from seu_bench.results.statistics import AverageRank
from seu_bench.utils.text import printable

#: More configurations are no picture any more; the table has them.
MOST_DRAWN: Final = 24
#: Inches: width on a page, width from which labels stand on both sides, and what is above the scale.
_WIDTH, _TWO_SIDED, _HEAD = 9.0, 5.0, 0.8


@dataclass(frozen=True)
class RankSection:
    """Configurations of one protocol and scenario over several benchmarks: the comparison, and its picture.

    Attributes:
        is_drawn: whether the picture is among those that the report may have; its numbers are shown in any case.
    """

    comparison: BenchmarkComparison
    picture: Picture
    is_drawn: bool

    @property
    def name(self) -> str:
        """Beginning of the names of its figure's files."""
        scenario = "" if self.comparison.scenario == "task" else f"-{self.comparison.scenario}"
        return f"over-benchmarks-{self.comparison.protocol}{scenario}"


def rank_sections(
    boards: Iterable[Leaderboard], room: int, metrics: Mapping[str, Metric] = METRICS
) -> list[RankSection]:
    """A section for each protocol and scenario of which configurations are on several benchmarks.

    The first ``room`` are drawn.
    """
    found = compare_over_benchmarks(boards, metrics=metrics)
    return [RankSection(each, critical_difference(each, metrics), place < room) for place, each in enumerate(found)]


def critical_difference(comparison: BenchmarkComparison, metrics: Mapping[str, Metric] = METRICS) -> Picture:
    """Average ranks on a line, the best on the left; a bar joins those that are not told from the best."""
    ranks, metric = comparison.ranks, known_metric(comparison.metric, metrics)
    shown = ranks.rows[:MOST_DRAWN]

    def draw(layout: Layout = PAGE) -> Figure:
        width = layout.width or _WIDTH
        told = ranks.statistic is not None
        alike = [row for row in shown if not told or row.verdict in (None, "not significant")]
        frame = _Frame(width, len(ranks.rows), _line(), head=_HEAD if told else 0.3, two_sided=width >= _TWO_SIDED)
        lines = (len(shown) + 1) // 2 if frame.two_sided else len(shown)
        figure, axes = frame.drawing(lines)
        _scale(axes, frame)
        if told:
            best = next(row.mean for row in shown if row.verdict is None)
            _bar(axes, frame, best, best + ranks.critical_difference)
            _join(axes, frame, [row.mean for row in alike])
        for place, row in enumerate(shown):
            if not frame.two_sided:
                _row(axes, frame, row, place, filled=row in alike)
            elif place < lines:
                _label(axes, frame, row, place, left=True)
            else:
                _label(axes, frame, row, len(shown) - 1 - place, left=False)
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
                f"{metric.format_cell(means[row.configuration])} (rank {row.ranks[name]:g})"
                for name, means in comparison.means.items()
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
        + more
        + f" {with_scenario(f'Protocol {printable(comparison.protocol)}', comparison.scenario)}; "
        + f"{metric.column or comparison.metric}, means over "
        + f"{seed_counts([len(seeds) for seeds in comparison.seeds for _ in ranks.rows])}.",
        f"Average ranks of {len(ranks.rows)} configurations over {', '.join(names)}. " + sentences(words),
        draw,
        [("configuration", "average rank", "p (Holm)", "beside the best", *names.values()), *rows],
    )


def _word(row: AverageRank) -> str:
    return "the best" if row.verdict is None else row.verdict


def _line() -> float:
    """Inches of a line of labels."""
    return small() * 2.3 / 72


class _Frame(NamedTuple):
    """Places of a diagram in inches: x from the scale's beginning on, y from the scale up; ``worst``: the last rank."""

    width: float
    worst: int
    line: float
    head: float
    two_sided: bool

    @property
    def beside(self) -> float:
        """Inches of the labels on one side."""
        return min(2.7, (0.3 if self.two_sided else 0.42) * self.width)

    @property
    def scale(self) -> float:
        """Inches of the scale."""
        return self.width - self.beside * (2 if self.two_sided else 1) - (0 if self.two_sided else 0.12)

    @property
    def label(self) -> int:
        """Letters of a label, the rank beside it."""
        return letters(self.beside - 0.14, "xtick.labelsize") - 7

    def across(self, rank: float) -> float:
        """Place of a rank from 1 to the number of configurations."""
        return self.scale * (rank - 1) / max(1, self.worst - 1)

    def drawing(self, lines: int) -> tuple[Figure, Axes]:
        """A new figure with so many lines of labels, and its axes."""
        head, foot = self.head, self.line * (lines + 0.8)
        figure = Figure(figsize=(self.width, head + foot))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(-self.beside, self.width - self.beside)
        axes.set_ylim(-foot, head)
        return figure, axes


def _scale(axes: Axes, frame: _Frame) -> None:
    axes.plot([0, frame.scale], [0, 0], color=INK, linewidth=1)
    step = max(1, round(frame.worst * 0.25 / frame.scale))
    for rank in range(1, frame.worst + 1, step):
        place = frame.across(rank)
        axes.plot([place, place], [0, 0.06], color=INK, linewidth=1)
        axes.annotate(str(rank), (place, 0.09), ha="center", va="bottom", fontsize=small(), color=INK)


def _bar(axes: Axes, frame: _Frame, low: float, high: float) -> None:
    """Draw the critical difference above the scale, from the best on."""
    ends, y = [frame.across(low), frame.across(high)], 0.42
    axes.plot(ends, [y, y], color=MUTED, linewidth=1, marker="|", markersize=6)
    text = "critical difference to the best (Bonferroni-Dunn)"
    room = frame.scale + (frame.beside if frame.two_sided else 0.1) - ends[0]
    text = fill(text, letters(room, "xtick.labelsize"))
    axes.annotate(text, (ends[0], y + 0.06), ha="left", va="bottom", fontsize=small(), color=MUTED)


def _join(axes: Axes, frame: _Frame, means: Sequence[float]) -> None:
    """Join those that are not told apart from the best, which is one of them."""
    if len(means) > 1:
        ends = [frame.across(min(means)) - 0.03, frame.across(max(means)) + 0.03]
        axes.plot(ends, [-0.06, -0.06], color=VERMILLION, linewidth=3, solid_capstyle="butt", zorder=3)


def _label(axes: Axes, frame: _Frame, row: AverageRank, line: int, *, left: bool) -> None:
    """A line from the scale down to the label at its side; labels nearer to the middle are further down."""
    x, y, end = frame.across(row.mean), -frame.line * (line + 1), -0.08 if left else frame.scale + 0.08
    axes.plot([x, x, end], [0, y, y], color=MUTED, linewidth=0.8, zorder=1)
    name = short(row.configuration, frame.label, 1)
    text = f"{name}  {row.mean:.2f}" if left else f"{row.mean:.2f}  {name}"
    place = (end - 0.04, y) if left else (end + 0.04, y)
    axes.annotate(text, place, ha="right" if left else "left", va="center", fontsize=small(), color=INK)


def _row(axes: Axes, frame: _Frame, row: AverageRank, line: int, *, filled: bool) -> None:
    """A line across for narrow figures: label, rank, and a dot, filled where it is not told from the best."""
    x, y = frame.across(row.mean), -frame.line * (line + 1)
    axes.plot([0, frame.scale], [y, y], color=FAINT, linewidth=0.6, zorder=1)
    face = INK if filled else PAPER
    axes.plot([x], [y], "o", markersize=4.5, markerfacecolor=face, markeredgecolor=INK, markeredgewidth=0.9)
    text = f"{short(row.configuration, frame.label, 1)}  {row.mean:.2f}"
    axes.annotate(text, (-0.08, y), ha="right", va="center", fontsize=small(), color=INK)
