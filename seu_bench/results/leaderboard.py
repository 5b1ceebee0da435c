"""A leaderboard: its rows, their order and ranks, the front of accuracy against memory, and views of all that.

Rows that are references are no part of the contest: they come last, have no rank, and take none from others.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from seu_bench.config.options import did_you_mean, format_option
from seu_bench.config.streams import Scenario
from seu_bench.errors import OptionError
from seu_bench.results.labels import with_scenario
from seu_bench.results.metric import Metric
from seu_bench.results.names import Installed, display_label
from seu_bench.results.record import Record, TuningRecord, metric_code
from seu_bench.results.record_metrics import METRICS, known_metric
from seu_bench.results.reference_rows import MissingReferences, format_seeds, reference_of
from seu_bench.results.statistics import (
    PairedDifference,
    SampleSummary,
    Verdict,
    compare_paired,
    rank_by_common_seeds,
    summarize,
    usual_seeds,
)
from seu_bench.utils.text import html_table, printable

if TYPE_CHECKING:
    import pandas

ACCURACY: Final = "acc"
#: Columns in which each row is compared with the best one, by its seeds; in both a higher value is better.
COMPARED: Final = (ACCURACY, "mixed_score")
#: Keys of a record that distinguish configurations of one strategy, searcher and creator.
CHOICES: Final = ("options", "searcher_options", "creator_options", "benchmark_overrides")
#: What all records of a leaderboard have in common.
PLACE: Final = ("benchmark", "benchmark_version", "scenario", "protocol", "data_fingerprint")
#: What a model keeps, in words: the front has the first of these that was measured for all rows.
SIZES: Final[Mapping[str, str]] = {"memory_bytes": "memory", "params_total": "parameters"}
#: Shorter names of metrics.
SHORT_NAMES: Final = {"params": "params_total", "memory": "memory_bytes", "seconds": "train_seconds"}
#: Before the rank of a row on the front; in place of that of a reference; behind the label of a tuned row; behind the
#: number of seeds of a row that lacks some.
FRONT, REFERENCE, TUNED, FEW_SEEDS = "● ", "○ ", " †", " ‡"
_SUMMARY: Final = ("mean", "std", "low", "high")

#: Standing of a row in a column: ``best``, or whether its difference to that one is significant.
Standing: TypeAlias = Literal["best"] | Verdict
#: Marks before the values of compared columns.
MARKS: Final[Mapping[Standing | None, str]] = {"best": "* ", "not significant": "≈ ", "too few seeds": "? "}


@dataclass(frozen=True, eq=False)
class Row:
    """A configuration over its seeds.

    ``number`` is a name for the row in the whole leaderboard, ``rank`` by accuracy among all learners (``None``: a
    reference, not measured, or too few seeds); on the front no other learner is as accurate and smaller, or as small
    and more accurate.
    """

    number: int
    configuration: str
    runs: Mapping[int, Record] = field(repr=False)
    rank: int | None = None
    on_front: bool = False
    _summaries: dict[str, SampleSummary | None] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def record(self) -> Record:
        """The record of the lowest seed: what was chosen is the same in all."""
        return next(iter(self.runs.values()))

    @cached_property
    def reference(self) -> str | None:
        """What the row is a reference of; ``None`` for a learner."""
        return reference_of(self.record)

    @cached_property
    def tunings(self) -> Mapping[TuningRecord, int]:
        """Tunings that chose options, mostly one or none, and how many of the runs each was for."""
        return Counter(run.tuned for run in self.runs.values() if run.tuned is not None)

    @property
    def seeds(self) -> int:
        """Number of seeds."""
        return len(self.runs)

    @property
    def run_ids(self) -> dict[int, str]:
        """Run ids by seed."""
        return {seed: run.run_id for seed, run in self.runs.items()}

    def values(self, metric: str) -> dict[int, float]:
        """Measured values by seed, in the unit of the record."""
        found = {seed: run.metrics.get(metric) for seed, run in self.runs.items()}
        return {seed: float(value) for seed, value in found.items() if value is not None and math.isfinite(value)}

    def summary(self, metric: str) -> SampleSummary | None:
        """The summary over seeds; ``None`` where it was not measured for every one, or by different plugin code."""
        if metric not in self._summaries:
            runs = self.runs.values()
            is_one = len({metric_code(run, metric) for run in runs}) == 1
            self._summaries[metric] = summarize([run.metrics.get(metric) for run in runs]) if is_one else None
        return self._summaries[metric]

    def mean(self, metric: str) -> float | None:
        """Mean over seeds; ``None`` where there is no :meth:`summary`."""
        found = self.summary(metric)
        return found.mean if found else None

    def document(self, metrics: Iterable[str]) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "rank": self.rank,
            "row": self.number,
            "on_front": self.on_front,
            "reference": self.reference,
            "configuration": self.configuration,
            **{key: getattr(self.record, key) for key in ("strategy", "searcher", "creator", *CHOICES)},
            "run_ids": {str(seed): run_id for seed, run_id in self.run_ids.items()},
            "metrics": {name: {part: getattr(self.summary(name), part, None) for part in _SUMMARY} for name in metrics},
            "tunings": [
                {**tuning.model_dump(mode="json"), "image_passes_per_run": tuning.image_passes / runs}
                for tuning, runs in self.tunings.items()
            ],
        }


@dataclass(frozen=True, eq=False, repr=False)
class Leaderboard:
    """The records of one benchmark, version, scenario, protocol, data fingerprint and pretrained network, if any."""

    benchmark: str
    benchmark_version: int
    scenario: Scenario
    protocol: str
    data_fingerprint: str
    name: str  # of its files, without extension
    records: int  # that were counted
    excluded: tuple[str, ...]  # which records were not counted and why, one line for each reason
    rows: tuple[Row, ...]  # by accuracy; references last
    columns: Mapping[str, Metric]  # shown, by id
    size: str  # the metric of size of the front
    missing: MissingReferences | None = None
    unranked: str | None = None  # why its records are never ranked: nothing is compared then, and no file written
    views: tuple[str, ...] = ()  # why only some of the rows are here, one line for each reason
    changed: Mapping[str, Any] = field(default_factory=dict)  # from the protocol, the same in all rows that have it
    budgets: tuple[int, ...] = ()  # images kept in memory, where they are not the same for all that keep some
    pretrained: str | None = None  # network and weights that all of them began with
    tasks: int | None = None  # where another leaderboard differs from this one by how many there are
    installed: Installed = field(default_factory=dict)  # whose display names and citations tables for papers have
    _beside: dict[str, tuple[Row | None, dict[Row, PairedDifference]]] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        return f"Leaderboard({self.title!r}, {len(self.rows)} rows)"

    @property
    def title(self) -> str:
        """Benchmark, version, protocol and scenario, and why it is not ranked; not escaped."""
        protocol = with_scenario(f"protocol {self.protocol}", self.scenario)
        tasks = "" if self.tasks is None else f", {self.tasks} task{'s' * (self.tasks != 1)}"
        place = f"{self.benchmark}, version {self.benchmark_version}, {protocol}{tasks}"
        return place if self.unranked is None else f"{place}, NOT RANKED ({self.unranked})"

    @property
    def learners(self) -> tuple[Row, ...]:
        """Rows that are no references."""
        return tuple(row for row in self.rows if row.reference is None)

    @property
    def references(self) -> tuple[Row, ...]:
        """Rows that are never ranked; they come last."""
        return tuple(row for row in self.rows if row.reference is not None)

    @cached_property
    def seeds(self) -> frozenset[int]:
        """Seeds that most learners have."""
        return usual_seeds(row.runs for row in self.learners or self.rows)

    def lacks_seeds(self, row: Row) -> bool:
        """Whether a row lacks some of the seeds that most have, and must be marked."""
        return not self.seeds <= row.runs.keys()

    @property
    def settings(self) -> list[str]:
        """How the rows were run, where that is not as the title says, one sentence each; not escaped."""
        found = []
        if self.changed:
            changed = ", ".join(f"{key}={format_option(value)}" for key, value in self.changed.items())
            found.append(f"options changed from the protocol, in every row that has them: {changed}")
        if self.budgets:
            found.append(f"memories are not equal: rows keep {' or '.join(map(str, self.budgets))} images")
        if any(map(self.lacks_seeds, self.rows)):
            found.append(
                f"{FEW_SEEDS.strip()} lacks some of the seeds {format_seeds(self.seeds)}, which most rows have: its "
                "means are over its own seeds, ranks and marks compare two rows on the seeds that both have"
            )
        return found

    def first(self, most: int | None) -> tuple[Row, ...]:
        """Return the first ``most`` learners, ``None`` for all, and every reference."""
        return (*self.learners[:most], *self.references)

    def heading(self, metric: str) -> str:
        """Return the heading of a metric's column, with its unit."""
        return self.columns[metric].column or metric

    def standings(self, metric: str) -> list[Standing | None]:
        """Return each row's standing in a column; ``None`` for references, and where it is not :data:`COMPARED`."""
        best, others = self.beside_best(metric) if metric in COMPARED else (None, {})
        said: dict[Row, Standing] = {row: found.verdict for row, found in others.items()}
        return ["best" if row is best else said.get(row) for row in self.rows]

    def beside_best(self, metric: str) -> tuple[Row | None, dict[Row, PairedDifference]]:
        """Return the best learner, where any is ranked, and the differences of the others to it, one family."""
        if (known := self._beside.get(metric)) is not None:
            return known
        rows = [row for row in self.learners if row.mean(metric) is not None and self.unranked is None]
        if not rows:
            return None, {}
        ranks = rank_by_common_seeds([row.values(metric) for row in rows])
        best = min(zip(rows, ranks, strict=True), key=lambda ranked: ranked[1] or math.inf)[0]
        others = [row for row in rows if row is not best]
        found = compare_paired([(row.values(metric), best.values(metric)) for row in others])
        self._beside[metric] = best, dict(zip(others, found, strict=True))
        return self._beside[metric]

    def view(self, rows: Iterable[Row], what: str) -> Leaderboard:
        """Select or order rows, and say ``what`` was done; numbers, ranks and front are those of the whole."""
        rows = tuple(rows)
        gone = [row.configuration for row in self.rows if row not in rows]
        return replace(self, rows=rows, views=(*self.views, f"{what}{_explain_exclusion(gone)}"))

    def with_display_names(self) -> Leaderboard:
        """The leaderboard with rows called as papers call them, without what :attr:`settings` says of all of them."""
        texts = "|".join(re.escape(f"{key}={format_option(value)}") for key, value in self.changed.items()) or "(?!)"
        one = f"(?:{texts})"
        shared = re.compile(rf" \({one}(?:, {one})*\)|, {one}(?=[,)])|(?<=\()(?:{one}, )+")
        labels = [display_label(shared.sub("", row.configuration), self.installed) for row in self.rows]
        rows = [replace(row, configuration=label) for row, label in zip(self.rows, labels, strict=True)]
        return replace(self, rows=tuple(rows))

    def document(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        names = (*PLACE, "changed", "records", "size", "unranked", "views", "excluded")
        standings = {name: self.standings(name) for name in COMPARED}
        rows = [
            row.document(self.columns) | {"against_best": {name: found[at] for name, found in standings.items()}}
            for at, row in enumerate(self.rows)
        ]
        missing = self.missing and self.missing._asdict()
        return {**{name: getattr(self, name) for name in names}, "missing_references": missing, "rows": rows}

    def table(self) -> list[dict[str, Any]]:
        """Return one flat dictionary per row, in the units of the record, e.g. for ``pandas.DataFrame``.

        ``<metric>_low`` and ``_high`` are the 95 % confidence interval of ``_mean``; ``None``: not measured for every
        seed. Options are JSON.
        """
        place = {key: getattr(self, key) for key in (*PLACE, *(["unranked"] if self.unranked is not None else []))}
        shown = ("rank", "row", "on_front", "configuration", "strategy", "searcher", "creator")
        return [
            {
                **place,
                **{key: row[key] for key in shown},
                "seeds": len(row["run_ids"]),
                "reference": row["reference"],
                "tuned": ", ".join(tuning["method"] for tuning in row["tunings"]) or None,
                **{f"{name}_{part}": value for name, found in row["metrics"].items() for part, value in found.items()},
                **{f"{name}_against_best": standing for name, standing in row["against_best"].items()},
                **{part: json.dumps(row[part], sort_keys=True) for part in CHOICES},
                "run_ids": " ".join(row["run_ids"].values()),
            }
            for row in self.document()["rows"]
        ]

    def cells(self, metrics: Iterable[str] | None = None, most: int | None = None) -> list[list[str]]:
        """Return rows of text: rank, configuration, seeds, mean ± standard deviation of the metrics; not escaped.

        ``most`` is the number of learners shown; every reference is.
        """
        names, shown = list(self.columns if metrics is None else metrics), []
        said = [dict(zip(self.rows, self.standings(name), strict=True)) for name in names]
        for row in self.first(most):
            rank = (FRONT if row.on_front else "") + f"{row.rank or '-'}"
            label = row.configuration + (TUNED if row.tunings else "")
            seeds = f"{row.seeds}{FEW_SEEDS if self.lacks_seeds(row) else ''}"
            marks = [MARKS.get(standings[row], "") for standings in said]
            means = [mean_and_deviation(self.columns[name], row.summary(name)) for name in names]
            texts = [rank if row.reference is None else REFERENCE.strip(), label, seeds]
            shown.append([*texts, *map(operator.add, marks, means)])
        return shown

    def _repr_html_(self) -> str:
        headings = ["rank", "configuration", "seeds", *map(self.heading, self.columns)]
        notes = ["mean ± standard deviation over seeds; ○ a reference", *self.settings, *self.views]
        return html_table(self.title, headings, self.cells(), notes)


class Leaderboards(tuple[Leaderboard, ...]):
    """Leaderboards of a results folder; ``excluded`` says why records are in none, one line for each reason."""

    excluded: tuple[str, ...] = ()

    @property
    def frame(self) -> pandas.DataFrame:
        """A row for each configuration of each leaderboard (:meth:`Leaderboard.table`)."""
        import pandas

        frame = pandas.DataFrame([row for board in self for row in board.table()])
        numbers = [name for name in frame.columns if name.endswith(tuple(f"_{part}" for part in _SUMMARY))]
        return frame.astype(dict.fromkeys(numbers, "float64"))

    def _repr_html_(self) -> str:
        tables = "\n".join(board._repr_html_() for board in self)
        return tables or html_table("no record can be ranked", (), (), self.excluded)


def mean_and_deviation(metric: Metric, found: SampleSummary | None) -> str:
    """Format mean ± standard deviation in the unit of the metric's column; ``-``: not measured for every seed."""
    if found is None:
        return "-"
    text = metric.format_cell(found.mean)
    return text if found.std is None else f"{text} ± {metric.format_cell(found.std)}"


def count(number: int, what: str) -> str:
    """``1 record``, ``2 records``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def join_names(names: Sequence[str]) -> str:
    """The first names and how many more there are, on one line."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{', '.join(map(printable, names[:5]))}{more}"


def _explain_exclusion(names: Sequence[str]) -> str:
    return f": {count(len(names), 'row')} excluded ({join_names(names)})" if names else ""


def size_axis(rows: Sequence[Row]) -> str:
    """Return the metric of size by which all learners can be compared: memory, or else parameters."""
    rows = [row for row in rows if row.reference is None and row.mean(ACCURACY) is not None]
    sized = [row for row in rows if any(row.mean(size) is not None for size in SIZES)]
    memory, parameters = SIZES
    return memory if sized and all(row.mean(memory) is not None for row in sized) else parameters


def not_dominated(rows: Sequence[Row], axes: Sequence[str], metrics: Mapping[str, Metric] = METRICS) -> list[Row]:
    """Select rows whose means of all ``axes`` are measured, and which no other row dominates: is at least as good in
    all, and better in one. Equal rows both stay."""
    signs = [-1 if known_metric(axis, metrics).higher_is_better else 1 for axis in axes]
    measured = [row for row in rows if all(row.mean(axis) is not None for axis in axes)]
    points = {row: [sign * (row.mean(axis) or 0.0) for sign, axis in zip(signs, axes, strict=True)] for row in measured}
    front: list[list[float]] = []
    for mine in sorted(points.values()):  # whatever dominates a point stands before it
        if not any(other != mine and all(map(operator.le, other, mine)) for other in front):
            front.append(mine)
    return [row for row, point in points.items() if point in front]


def rank_rows(rows: Iterable[Row]) -> dict[Row, int | None]:
    """Rank the rows whose accuracy was measured for every seed."""
    measured = [row for row in rows if row.mean(ACCURACY) is not None]
    return dict(zip(measured, rank_by_common_seeds([row.values(ACCURACY) for row in measured]), strict=True))


def _by_metric(rows: Iterable[Row], name: str, metric: Metric) -> list[Row]:
    """Order rows by their means of a metric, the best, or else the lowest, first; references last."""
    sign = -1 if metric.higher_is_better else 1
    means = {row: row.mean(name) for row in rows}
    return sorted(means, key=lambda row: (row.reference is not None, means[row] is None, sign * (means[row] or 0.0)))


def order_rows(rows: Sequence[Row], *, ranked: bool = True) -> tuple[Row, ...]:
    """Order the rows of a leaderboard and number them from 1; rank the learners where anything is ``ranked``."""
    learners = [row for row in rows if row.reference is None and ranked]
    front = set(not_dominated(learners, (ACCURACY, size_axis(rows))))
    ranks = rank_rows(learners)
    first = sorted(rows, key=lambda row: (row not in front, row.configuration))
    return tuple(
        replace(row, number=number, rank=ranks.get(row), on_front=row in front)
        for number, row in enumerate(_by_metric(first, ACCURACY, METRICS[ACCURACY]), 1)
    )


def parse_metric(option: str, text: str, metrics: Mapping[str, Metric] = METRICS) -> str:
    """Parse the name of a metric, or a short one, that an option was given; it must be one of ``metrics``."""
    name = SHORT_NAMES.get(text.strip(), text.strip())
    if name not in metrics:
        raise OptionError(
            f"{option} {text!r}: there is no such metric here{did_you_mean(name, [*SHORT_NAMES, *metrics])}",
            remedy="give one of " + ", ".join(metrics),
        )
    return name


def parse_view(
    budgets: Iterable[str] = (),
    pareto: str | None = None,
    sort: str | None = None,
    metrics: Mapping[str, Metric] = METRICS,
) -> Callable[[Leaderboard], Leaderboard]:
    """Parse what is to be shown of leaderboards, to a function that makes this view of one.

    Args:
        budgets: limits such as ``params=5e6,macs=1e9`` of metrics that should be low, in the units of records.
        pareto: only the front in these metrics, ``acc,params_total``; in accuracy and size where it is empty.
        sort: the metric to sort by, the best first.
        metrics: those known.
    """
    low = {name: metric for name, metric in metrics.items() if metric.higher_is_better is False}
    limits: dict[str, float] = {}
    for text in (part for given in budgets for part in given.split(",")):
        name, _, number = text.partition("=")
        metric = parse_metric("--budget", name, low)
        try:
            limits[metric] = min(float(number), limits.get(metric, math.inf))
        except ValueError:
            limits[metric] = math.nan
        if not 0 < limits[metric] < math.inf:
            raise OptionError(f"--budget {text}: it is no positive number", remedy=f"give one such as {name}=5e6")
    directed = {name: metric for name, metric in metrics.items() if metric.higher_is_better is not None}
    axes = [parse_metric("--pareto", name, directed) for name in pareto.split(",")] if pareto else []
    if axes and (len(axes) < 2 or len(set(axes)) < len(axes)):
        raise OptionError(f"--pareto {pareto!r}: it takes two different axes or more", remedy="give acc,params_total")
    by = parse_metric("--sort", sort, metrics) if sort is not None else None

    def view(board: Leaderboard) -> Leaderboard:
        for name, limit in limits.items():
            kept = [row for row in board.rows if (mean := row.mean(name)) is not None and mean <= limit]
            board = board.view(kept, f"{metrics[name].column or name} at most {metrics[name].format_cell(limit)}")
        if pareto is not None:
            names = axes or [ACCURACY, size_axis(board.rows)]
            front = not_dominated(board.learners, names, metrics)
            kept = [row for row in board.rows if row.reference is not None or row in front]
            board = board.view(kept, f"Pareto front of {' and '.join(metrics[name].column or name for name in names)}")
        if by is not None:
            rows = _by_metric(board.rows, by, metrics[by])
            first = "the highest" if metrics[by].higher_is_better else "the lowest"
            board = board.view(rows, f"sorted by {metrics[by].column or by}, {first} first")
        return board

    return view
