"""Making a report: records are read, charts are drawn and written, then the page that holds them all."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from seu_bench.config.commands import command
from seu_bench.errors import OptionError, ResultsError
from seu_bench.results.building import read_leaderboards, unranked_leaderboards
from seu_bench.results.comparison import compare_over_benchmarks
from seu_bench.results.leaderboard import Leaderboard, Row
from seu_bench.results.metric import Metric
from seu_bench.results.record import Record, read_record, record_path
from seu_bench.results.record_files import read_records, require_records
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.report import charts
from seu_bench.results.report.charts import Chart
from seu_bench.results.report.configurations import GREY, Configuration, style, styles_of
from seu_bench.results.report.drawing import Layout, render
from seu_bench.results.report.page import Contents, RankSection, Section, render_page
from seu_bench.utils.files import check_output, refuse_link, write_atomic
from seu_bench.utils.locks import folder_lock
from seu_bench.utils.progress import tracked
from seu_bench.utils.text import printable

#: A longer stream is no picture any more, and its matrices are larger than what a report should hold.
MOST_TASKS: Final = 100
#: Figures of a group at the least, and configurations of which learning curves are drawn.
_OF_GROUP, _DETAILED = 4, 4


@dataclass(frozen=True)
class Limits:
    """Limits of a report: configurations drawn in each group, and figures of all groups together."""

    configurations: int = 8
    figures: int = 30


@dataclass(frozen=True)
class ReportFiles:
    """The HTML file, the PDF, SVG and PNG files, what is not shown and why, and the number of groups."""

    page: Path
    figures: tuple[Path, ...]
    outside: tuple[str, ...]
    groups: int


def write_report(
    results: Path,
    output: Path | None = None,
    benchmark: str | None = None,
    protocol: str | None = None,
    limits: Limits | None = None,
    metrics: Mapping[str, Metric] = METRICS,
    *,
    unranked: bool = False,
    layout: Layout | None = None,
) -> ReportFiles:
    """Make the report of a results folder anew.

    Args:
        results: the results folder.
        output: the page, ``<results>/report.html`` by default; figures go to the folder ``figures`` beside it.
        benchmark, protocol: only groups of these.
        limits: how much is drawn: of more figures those over benchmarks, then those of groups with the most records.
        metrics: those known, e.g. of the plugins installed; a column is shown where a record has its metric.
        unranked: whether finished runs that are never ranked are shown, too, in groups of their own.
        layout: width and fonts of the figures, e.g. of a paper's column.

    Raises:
        ResultsError: there are no records, none of ``benchmark`` and ``protocol``, none that can be reported where
            there is a report already, or nothing can be written there.
        OptionError: ``output`` ends like something else than a page.

    Example:
        >>> write_report(Path("results"), limits=Limits(configurations=4)).page  # doctest: +SKIP
        PosixPath('results/report.html')
    """
    limits = limits or Limits()
    page = output or results / "report.html"
    check_output(page)
    if page.suffix.lower() not in (".html", ".htm"):
        remedy = f"call it {page.stem}.html; figures are written beside it"
        raise OptionError("a report is an HTML page, and this is not called one", where=str(page), remedy=remedy)
    folder = page.parent / "figures"
    refuse_link(folder, "remove it; figures can be made again at any time")
    contents = read_contents(results, benchmark, protocol, limits, metrics, unranked=unranked)
    if os.path.lexists(page) and not contents.sections:
        raise ResultsError(
            "no record can be reported now, and there is a report already, which would be replaced by an empty one",
            where=str(page),
            remedy=f"see why: {command('leaderboard', results=results)}; or remove the page, or name another --output",
        )
    paths: list[Path] = []
    with folder_lock(folder):
        for name, chart in tracked(list(contents.charts.items()), "drawing figures"):
            for form, content in render(chart, layout).items():
                paths.append(folder / f"{name}.{form}")
                write_atomic(paths[-1], content, durable=False)  # it can be made again at any time
        write_atomic(page, render_page(contents))
    return ReportFiles(page, tuple(paths), tuple(contents.outside), len(contents.sections))


def read_contents(
    results: Path,
    benchmark: str | None,
    protocol: str | None,
    limits: Limits,
    metrics: Mapping[str, Metric],
    *,
    unranked: bool = False,
) -> Contents:
    """Read what a report of a results folder shows; arguments and errors are those of :func:`write_report`."""
    require_records(results)
    build = read_leaderboards(results, metrics)
    every = [*build.boards, *(unranked_leaderboards(build.records, metrics) if unranked else ())]
    boards = [b for b in every if benchmark in (None, b.benchmark) and protocol in (None, b.protocol)]
    outside = build.excluded(benchmark, unranked=unranked)
    if not boards and (benchmark or protocol):
        asked = [f"{what} {name!r}" for what, name in (("benchmark", benchmark), ("protocol", protocol)) if name]
        raise ResultsError(
            f"no record of {' and '.join(asked)} can be ranked",
            where=str(results),
            remedy=f"see which there are: {command('leaderboard', '--unranked', results=results)}"
            + "".join(f"\n  {line}" for line in outside),
        )
    ranks = []
    for found in compare_over_benchmarks(boards, metrics=metrics):
        scenario = "" if found.scenario == "task" else f"-{found.scenario}"
        name = f"over-benchmarks-{found.protocol}{scenario}-average-ranks"
        ranks.append(RankSection(name, found, charts.average_ranks(found, metrics)))
    by_size = sorted(boards, key=lambda board: (board.unranked is not None, -board.records))
    read = by_size[: math.ceil(limits.figures / _OF_GROUP)]
    rows = {board: _choose_rows(board, limits.configurations) for board in read}
    records = _read_in_full(results, {it for own in rows.values() for row in own for it in row.run_ids.values()})
    sections = {board: Section(board, *_charts(board, rows.get(board, []), records)) for board in boards}
    known = {each.name: each.chart for each in ranks}
    for board in by_size:
        known |= sections[board].charts
    comparing_first = sorted(known.items(), key=lambda item: item[1].kind.startswith("learning-curves"))
    drawn = dict(comparing_first[: limits.figures])
    if len(drawn) < len(known) or len(read) < len(boards):
        left_out = f"{len(known) - len(drawn)} figures, and all of {len(boards) - len(read)} groups, are not drawn"
        outside = [*outside, f"{left_out} (--figures, --benchmark and --protocol choose)"]
    return Contents(list(sections.values()), ranks, outside, drawn)


def choose(strategies: Sequence[str], most: int) -> list[int]:
    """Choose rows to draw: the best of each strategy, then the next best."""
    best = [place for place, strategy in enumerate(strategies) if strategy not in strategies[:place]]
    return sorted(list(dict.fromkeys([*best, *range(len(strategies))]))[:most])


def _choose_rows(board: Leaderboard, most: int) -> list[Row]:
    """Choose learners, then of references that are the same, such as on several backbones, the most accurate."""
    learners = [row for row in board.rows if row.reference is None]
    best = {row.reference: row for row in sorted(board.references, key=lambda row: row.mean("acc") or 0.0)}
    return [*(learners[place] for place in choose([row.record.strategy for row in learners], most)), *best.values()]


def _read_in_full(results: Path, wanted: set[str]) -> dict[str, Record]:
    """Read the records of runs once more: leaderboards do not keep what only figures need."""
    found = {}
    for run_id in wanted:
        with contextlib.suppress(ResultsError):
            found[run_id] = read_record(record_path(results, run_id))
    if any(run_id != record.run_id for run_id, record in found.items()) or len(found) < len(wanted):
        records = (item for item in read_records(results) if isinstance(item, Record))  # packed, or in other folders
        found = {item.run_id: item for item in records if item.run_id in wanted}
    return found


def _charts(
    board: Leaderboard, rows: Sequence[Row], records: Mapping[str, Record]
) -> tuple[dict[str, Chart], list[str]]:
    """Make the charts of some rows of a board by name, and say what is not drawn."""
    learners = [row.record.strategy for row in rows if row.reference is None]
    looks = [*styles_of(learners), *(style(number, GREY) for number in range(len(rows) - len(learners)))]
    every: list[Configuration] = []
    for row, look in zip(rows, looks, strict=True):
        runs = tuple(records[run_id] for run_id in row.run_ids.values() if run_id in records)
        each = Configuration(row.number, printable(row.configuration), runs, look)
        if len(runs) == row.seeds and 0 < each.tasks <= MOST_TASKS:
            every.append(each)
    drawn = [each for each in every if each.reference is None]
    notes = []
    if len(every) < len(rows):
        notes.append(f"streams of more than {MOST_TASKS} tasks, and records that went meanwhile, are not drawn")
    competing = len(board.rows) - len(board.references)
    if competing > len(learners) > 0:
        notes.append(
            f"{len(drawn)} of {competing} configurations are drawn: the best of each strategy, then the next best "
            "(--top changes how many)"
        )
    found: list[Chart] = []
    if drawn:
        found = charts.compare(drawn, [each for each in every if each.reference is not None])
        found += [chart for each in drawn for chart in charts.learning_curves(each)][:_DETAILED]
    return {f"{board.name}-{chart.kind}": chart for chart in found}, notes
