"""Sections of the report, one for each leaderboard: which records are read, and which pictures are made of them."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from seu_bench.config.commands import command
from seu_bench.errors import ResultsError
from seu_bench.results.building import read_leaderboards, unranked_leaderboards
from seu_bench.results.leaderboard import Leaderboard, Row
from seu_bench.results.metric import Metric
from seu_bench.results.record import Record, read_record, record_path
from seu_bench.results.record_files import read_records, require_records
from seu_bench.results.record_metrics import METRICS
from seu_bench.results.reference_rows import reference_of
from seu_bench.results.report import draw_comparing, paper
from seu_bench.results.report.canvas import Picture, Style, reference_styles, styles_of
from seu_bench.results.report.draw_confusion import task_confusions
from seu_bench.results.report.draw_learning import learning_curves
from seu_bench.results.report.draw_ranks import RankSection, rank_sections
from seu_bench.results.report.draw_single import genotypes, paths
from seu_bench.results.report.draw_size import MEMORY, accuracy_against_size
from seu_bench.results.report.summary import Configuration
from seu_bench.utils.text import printable

#: A longer stream is no picture any more, and its matrices are larger than what a report should hold.
MOST_TASKS: Final = 100
#: Pictures that compare the configurations of a group.
_COMPARING: Final = 5
#: Groups that are read in full, for the list of runs and the paper's numbers, even where no figures were asked for.
_READ: Final = 8


@dataclass(frozen=True)
class Limits:
    """Limits of a report, so that it opens with any number of records.

    Args:
        configurations: drawn in each group.
        figures: of all groups together.
        detailed: configurations of a group of which units, paths and learning curves are drawn, each.
        units: tasks of a configuration of which the unit is drawn.
        rows: of a leaderboard.
        runs: listed in a group.
    """

    configurations: int = 8
    figures: int = 30
    detailed: int = 2
    units: int = 10
    rows: int = 1000
    runs: int = 100

    @property
    def note(self) -> str:
        """The limit of figures, and how to change it."""
        how = "--figures changes that, --benchmark and --protocol choose groups"
        return f"a report has at most {self.figures} figures ({how})"


@dataclass
class Section:
    """One leaderboard, the configurations of it that figures show, references apart, these figures, and what is not
    drawn and why."""

    board: Leaderboard
    drawn: list[Configuration] = field(default_factory=list)
    references: list[Configuration] = field(default_factory=list)
    comparing: list[Picture] = field(default_factory=list)
    single: list[Picture] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def place(self) -> tuple[str, int, str]:
        """Benchmark, version and protocol, by which the paper's numbers are found: none for what is not ranked, and for
        scenarios that the paper has not."""
        if self.board.unranked is not None or self.board.scenario != "task":
            return "", 0, ""
        return self.board.benchmark, self.board.benchmark_version, self.board.protocol

    @property
    def charted(self) -> tuple[list[Configuration], list[Configuration]]:
        """Configurations and references of which the streams are short enough to be drawn."""
        drawn, beside = ([c for c in them if 0 < c.tasks <= MOST_TASKS] for them in (self.drawn, self.references))
        return drawn, beside

    @property
    def runs(self) -> list[tuple[int | None, Record]]:
        """Records behind the figures, each with the rank of its configuration."""
        return [(each.rank, run) for each in self.drawn for run in each.runs]


def read_sections(
    results: Path,
    benchmark: str | None,
    protocol: str | None,
    limits: Limits,
    metrics: Mapping[str, Metric] = METRICS,
    *,
    unranked: bool = False,
) -> tuple[list[Section], list[RankSection], list[str]]:
    """Read the sections of a results folder, those over several of them, and which records are in none and why.

    Where there are more figures than ``limits`` allow, those over several benchmarks come first, then those that
    compare configurations, and of these the groups with the most records. Raises :class:`ResultsError` if there are no
    records, or none of this benchmark and protocol that can be ranked. With ``unranked``, sections
    of finished runs that are never ranked follow.
    """
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
    chosen = {}
    most = max(_READ, math.ceil(limits.figures / _COMPARING))
    for board in sorted(boards, key=_weight)[:most]:
        learners = [row for row in board.rows if reference_of(row.record) is None]
        places = choose([row.record.strategy for row in learners], limits.configurations)
        chosen[board.name] = [*[learners[place] for place in places], *best_references(board.rows)]
    records = _records(results, {run.run_id for rows in chosen.values() for row in rows for run in row.runs.values()})
    sections = [_section(board, chosen.get(board.name), records, limits) for board in boards]
    ranks = rank_sections(boards, limits.figures, metrics)
    _limit(sections, limits, limits.figures - sum(each.is_drawn for each in ranks))
    return sections, ranks, outside


def choose(strategies: Sequence[str], most: int) -> list[int]:
    """Choose rows to draw: the best of each strategy, the paper's strategies first, then the next best."""
    best: dict[str, int] = {}
    for place, strategy in enumerate(strategies):
        best.setdefault(strategy, place)
    papers = [best[strategy] for strategy in paper.document()["names"] if strategy in best]
    order = dict.fromkeys([*papers, *best.values(), *range(len(strategies))])
    return sorted(list(order)[:most])


def best_references(rows: Sequence[Row]) -> list[Row]:
    """Choose references to draw: of those that are the same, such as on several backbones, the most accurate."""
    best: dict[str, Row] = {}
    for row in rows:
        what = reference_of(row.record)
        if what is not None and (what not in best or (row.mean("acc") or 0) > (best[what].mean("acc") or 0)):
            best[what] = row
    return list(best.values())


def _records(results: Path, wanted: set[str]) -> dict[str, Record]:
    """Read the records of runs once more, in full: leaderboards do not keep what only figures need."""
    found = {}
    for run_id in wanted:
        with contextlib.suppress(ResultsError):
            record = read_record(record_path(results, run_id))
            if record.run_id == run_id:
                found[run_id] = record
    if len(found) < len(wanted):  # packed, or in folders of other names
        others = (item for item in read_records(results) if isinstance(item, Record))
        found |= {item.run_id: item for item in others if item.run_id in wanted and item.run_id not in found}
    return found


def _section(board: Leaderboard, rows: Sequence[Row] | None, records: dict[str, Record], limits: Limits) -> Section:
    """The section of a board, of which these rows are drawn; ``None``: it has no figures."""
    section = Section(board)
    if rows is None:
        section.notes.append(f"this group has no figures: {limits.note}")
        return section
    there = [row for row in rows if records.keys() >= set(row.run_ids.values())]
    learners = [row for row in there if reference_of(row.record) is None]
    references = [row for row in there if reference_of(row.record) is not None]

    def made(rows: Sequence[Row], styles: Sequence[Style]) -> list[Configuration]:
        """What can be drawn of these rows, each in its style."""
        return [
            Configuration(
                row.number,
                printable(row.configuration),
                tuple(records[it] for it in row.run_ids.values()),
                style,
                row.rank,
            )
            for row, style in zip(rows, styles, strict=True)
        ]

    section.drawn = made(learners, styles_of([row.record.strategy for row in learners]))
    section.references = made(references, reference_styles(len(references)))
    drawn, beside = section.charted
    if any(c.tasks > MOST_TASKS for c in (*section.drawn, *section.references)):
        section.notes.append(f"streams of more than {MOST_TASKS} tasks are not drawn")
    if missing := len(rows) - len(there):
        section.notes.append(f"{missing} configurations are not drawn: their records went while this was made")
    competing = sum(reference_of(row.record) is None for row in board.rows)
    if competing > sum(reference_of(row.record) is None for row in rows):
        section.notes.append(
            f"{len(drawn)} of {competing} configurations are drawn: the best of each strategy, the paper's "
            "strategies first, then the next best (--top changes how many)"
        )
    if drawn:
        section.comparing = [
            draw_comparing.average_curve(drawn, beside),
            *([accuracy_against_size(drawn, (), beside, MEMORY)] if any(map(_has_memory, drawn)) else []),
            accuracy_against_size(drawn, paper.published_points(section.place), beside),
            draw_comparing.accuracy_curves(drawn),
            draw_comparing.original_against_retained(drawn),
            draw_comparing.heat_maps(drawn),
            *([picture] if (picture := task_confusions(drawn)) else []),
        ]
        searched = [c for c in drawn if any(c.example.genotypes or ())]
        chosen = searched + [c for c in drawn if c not in searched]
        units = [picture for c in searched[: limits.detailed] for picture in genotypes(c, limits.units)]
        curves = [picture for c in chosen if (picture := learning_curves(c))][: limits.detailed + 2]
        section.single = [*[picture for c in chosen if (picture := paths(c))][: limits.detailed], *units, *curves]
    return section


def _has_memory(configuration: Configuration) -> bool:
    """Whether its runs say what they kept, which older ones do not."""
    return math.isfinite(float(configuration.metric(MEMORY.metric).mean))


def _weight(board: Leaderboard) -> tuple[bool, int]:
    """Place of a group among those that get figures: ranked ones first, then those with the most records."""
    return board.unranked is not None, -board.records


def _limit(sections: Sequence[Section], limits: Limits, free: int) -> None:
    """Exclude pictures beyond those ``free``: first those of single configurations, and of groups with few records."""
    by_size = sorted(sections, key=lambda section: _weight(section.board))
    for pictures, section in [(s.comparing, s) for s in by_size] + [(s.single, s) for s in by_size]:
        if len(pictures) > free:
            section.notes.append(f"{len(pictures) - free} of this group's figures are excluded: {limits.note}")
        del pictures[free:]
        free -= len(pictures)
