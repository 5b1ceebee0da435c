"""A leaderboard: its rows, and the standing of each one beside the best of a column."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from seu_bench.config.options import format_option
from seu_bench.config.streams import Scenario
from seu_bench.results.code import metric_code
from seu_bench.results.metric import Metric
from seu_bench.results.record import Record
from seu_bench.results.record_parts import TuningRecord
from seu_bench.results.reference_rows import MissingReferences, format_seeds, reference_of
from seu_bench.results.scenarios import with_scenario
from seu_bench.results.statistics.differences import PairedDifference, Verdict, compare_paired
from seu_bench.results.statistics.ranks import rank_by_common_seeds, usual_seeds
from seu_bench.results.statistics.samples import SampleSummary, summarize
from seu_bench.utils.notebook import Strong, html_table
from seu_bench.utils.text import spreadsheet_cell

#: Columns in which each row is compared with the best one, by its seeds; in both a higher value is better.
COMPARED: Final = ("acc", "mixed_score")
#: Keys of a record that distinguish configurations of one strategy, searcher and creator.
CHOICES: Final = ("options", "searcher_options", "creator_options", "benchmark_overrides")

#: What all records of a leaderboard have in common.
PLACE: Final = ("benchmark", "benchmark_version", "scenario", "protocol", "data_fingerprint")

#: Behind the number of seeds of a row that lacks some.
FEW_SEEDS: Final = " ‡"

#: Standing of a row in a column: ``best``, or whether its difference to that one is significant.
Standing: TypeAlias = Literal["best"] | Verdict


@dataclass(frozen=True, eq=False, repr=False)
class Row:
    """A configuration.

    Attributes:
        number: from 1, of the row in the whole leaderboard: a name for it, and no rank.
        rank: by accuracy, among the learners of the whole leaderboard
            (:func:`~seu_bench.results.statistics.ranks.rank_by_common_seeds`); ``None`` for references, and where
            nothing is ranked, accuracy was not measured, or there are too few seeds.
        configuration: the label, unique among the rows.
        runs: the records by seed, in the order of seeds.
        on_front: whether no other row of the whole leaderboard is as accurate with less memory, or more accurate with
            as much.
    """

    number: int
    configuration: str
    runs: Mapping[int, Record]
    rank: int | None = None
    on_front: bool = False
    _summaries: dict[str, SampleSummary | None] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        """Number, configuration and seeds."""
        return f"Row({self.number}, {self.configuration!r}, seeds={list(self.runs)})"

    @cached_property
    def record(self) -> Record:
        """The record of the lowest seed: what was chosen is the same in all."""
        return next(iter(self.runs.values()))

    @cached_property
    def reference(self) -> str | None:
        """What the row is a reference of; ``None`` for a learner."""
        return reference_of(self.record)

    @property
    def tunings(self) -> Mapping[TuningRecord, int]:
        """Tunings that chose options, mostly one or none, and how many of the runs each was for."""
        return Counter(run.tuned for run in self.runs.values() if run.tuned is not None)

    def tuning_documents(self) -> list[dict[str, Any]]:
        """The tunings as plain values, with their share per run."""
        return [
            {**tuning.model_dump(mode="json"), "image_passes_per_run": tuning.image_passes / runs}
            for tuning, runs in self.tunings.items()
        ]

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
        """The summary over seeds; ``None`` where it was not measured for every one, or by other code of a plugin: means
        would not compare."""
        if metric not in self._summaries:
            runs = self.runs.values()
            is_one = len({metric_code(run, metric) for run in runs}) == 1
            self._summaries[metric] = summarize([run.metrics.get(metric) for run in runs]) if is_one else None
        return self._summaries[metric]

    def mean(self, metric: str) -> float | None:
        """Mean over seeds; ``None`` where it was not measured for every one."""
        found = self.summary(metric)
        return found.mean if found else None


@dataclass(frozen=True, eq=False, repr=False)
class Leaderboard:
    """The records of one benchmark, version, scenario, protocol and data fingerprint.

    Attributes:
        name: of its files, without extension.
        fingerprints: number of leaderboards that differ from this one in nothing but the data fingerprint, and it.
        records: number of records that were counted.
        excluded: which records were not counted and why, one line for each reason.
        rows: by accuracy; references last.
        columns: the metrics shown, by id.
        size: the metric of size of that front: ``memory_bytes``, or ``params_total`` where a record has no memory.
        missing: references that the whole leaderboard lacks, and the command that makes them.
        unranked: why its records are never ranked: nothing is compared then, and it is written to no file; ``None`` for
            those that are.
        views: if only some of the rows are here, why, one line for each reason.
        changed: settings that are not as in the protocol, the same in all rows that have them.
        budgets: how many images rows keep in memory, where that is not the same for all that keep some.
    """

    benchmark: str
    benchmark_version: int
    protocol: str
    data_fingerprint: str
    name: str
    fingerprints: int
    records: int
    excluded: tuple[str, ...]
    rows: tuple[Row, ...]
    columns: Mapping[str, Metric]
    size: str
    scenario: Scenario = "task"
    missing: MissingReferences | None = None
    unranked: str | None = None
    views: tuple[str, ...] = ()
    changed: Mapping[str, Any] = field(default_factory=dict)
    budgets: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """Benchmark, version and protocol, the scenario where it is not ``task``, and why it is not ranked, for a
        heading; not escaped."""
        protocol = with_scenario(f"protocol {self.protocol}", self.scenario)
        place = f"{self.benchmark}, version {self.benchmark_version}, {protocol}"
        return place if self.unranked is None else f"{place}, NOT RANKED ({self.unranked})"

    @property
    def references(self) -> tuple[Row, ...]:
        """Rows that compete with nobody; they come last."""
        return tuple(row for row in self.rows if row.reference is not None)

    @cached_property
    def seeds(self) -> frozenset[int]:
        """Seeds that most learners have."""
        learners = [row.runs for row in self.rows if row.reference is None]
        return usual_seeds(learners or [row.runs for row in self.rows])

    @property
    def settings(self) -> list[str]:
        """How the rows were run, where that is not as the title says, one sentence each; not escaped."""
        found = []
        if self.changed:
            changed = ", ".join(f"{key}={format_option(value)}" for key, value in self.changed.items())
            found.append(f"options changed from the protocol, in every row that has them: {changed}")
        if self.budgets:
            found.append(f"memories are not equal: rows keep {' or '.join(map(str, self.budgets))} images")
        return found

    @property
    def conditions(self) -> list[str]:
        """:attr:`settings` and :attr:`seed_note`, for a caption; not escaped."""
        return [*self.settings, *([f"{FEW_SEEDS.strip()} {self.seed_note}"] if self.seed_note else [])]

    @property
    def seed_note(self) -> str | None:
        """What the mark :data:`FEW_SEEDS` means; ``None`` where no row has it."""
        if not any(self.lacks_seeds(row) for row in self.rows):
            return None
        return (
            f"lacks some of the seeds {format_seeds(self.seeds)}, which most rows have: its means are over its own "
            "seeds, ranks and marks compare two rows on the seeds that both have"
        )

    def lacks_seeds(self, row: Row) -> bool:
        """Whether a row lacks some of the seeds that most have, and must be marked."""
        return not self.seeds <= row.runs.keys()

    def first(self, most: int | None) -> tuple[Row, ...]:
        """The first ``most`` rows, ``None`` for all, and every reference."""
        learners = [row for row in self.rows if row.reference is None]
        return (*learners[:most], *self.references)

    def heading(self, metric: str) -> str:
        """Heading of a metric's column, with its unit."""
        return self.columns[metric].column or metric

    def standings(self, metric: str) -> list[Standing | None]:
        """Standing of each row in a column of :data:`COMPARED`; ``None`` where it has no mean, or is a reference.

        See :meth:`beside_best`.
        """
        best, others = self.beside_best(metric)
        said: dict[Row, Standing] = {row: found.verdict for row, found in others.items()}
        return ["best" if row is best else said.get(row) for row in self.rows]

    def beside_best(self, metric: str) -> tuple[Row | None, dict[Row, PairedDifference]]:
        """The best row of a column of :data:`COMPARED`, and the differences of the other rows to it.

        The best row is the first of the best rank in the metric among those that are no references, which are compared
        with none. The other rows are one family of comparisons. Where nothing is ranked there is no best row.
        """
        if self.unranked is not None:
            return None, {}
        rows = [row for row in self.rows if row.reference is None and row.mean(metric) is not None]
        if not rows:
            return None, {}
        ranks = rank_by_common_seeds([row.values(metric) for row in rows])
        best = min(zip(rows, ranks, strict=True), key=lambda ranked: ranked[1] or math.inf)[0]
        others = [row for row in rows if row is not best]
        found = compare_paired([(row.values(metric), best.values(metric)) for row in others])
        return best, dict(zip(others, found, strict=True))

    def __repr__(self) -> str:
        """Which it is, and how many rows it has."""
        return f"Leaderboard({self.title!r}, {len(self.rows)} rows)"

    def _repr_html_(self) -> str:
        """The table for a notebook; the highest means of the columns that are compared are bold."""
        rows = []
        best = {name: self.beside_best(name)[0] for name in COMPARED if name in self.columns}
        for row in self.rows:
            texts = {name: mean_and_deviation(metric, row.summary(name)) for name, metric in self.columns.items()}
            cells = [Strong(text) if best.get(name) is row else text for name, text in texts.items()]
            rows.append([row.rank, row.configuration, row.seeds, *cells])
        headings = ["rank", "configuration", "seeds", *map(self.heading, self.columns)]
        references = f"references: {', '.join(row.configuration for row in self.references)}"
        notes = ["mean ± standard deviation over seeds", *([references] if self.references else [])]
        notes += [*self.conditions, *self.views]
        return html_table(self.title, headings, rows, notes, left=2)

    def narrowed(self, rows: Sequence[Row], reason: str) -> Leaderboard:
        """Select rows for a ``reason`` among :attr:`views`.

        Numbers, ranks and front stay those of the whole leaderboard; the best of these rows is what the others are
        compared with.
        """
        return replace(self, rows=tuple(rows), views=(*self.views, reason))

    def table(self) -> list[dict[str, Any]]:
        """One dictionary per row, in the units of the record, e.g. for ``pandas.DataFrame``.

        Its keys: ``benchmark``, ``benchmark_version``, ``scenario``, ``protocol``, ``data_fingerprint``, ``rank``,
        ``row``, ``on_front``, ``configuration``, ``strategy``, ``searcher``, ``creator``, ``seeds`` (how many),
        ``reference`` (what the row is one of; ``None`` for a learner), ``tuned`` (the method; ``None``: the options
        were not tuned); for each of :attr:`columns`
        ``<metric>_mean`` (``None``: not measured for every seed), ``<metric>_std``, ``<metric>_low`` and
        ``<metric>_high`` (95 % confidence interval of the mean; ``None`` for one seed); for each of :data:`COMPARED`
        ``<metric>_against_best``; the options as JSON; ``run_ids``. Rows
        that are not ranked have ``unranked``, the reason, after ``data_fingerprint``.
        """
        place = {key: getattr(self, key) for key in PLACE}
        # A column of its own only where it says something.
        place |= {"unranked": self.unranked} if self.unranked is not None else {}
        return [
            {
                **place,
                **{
                    key: row[key]
                    for key in ("rank", "row", "on_front", "configuration", "strategy", "searcher", "creator")
                },
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

    def document(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        names = (*PLACE, "changed", "records", "size", "unranked", "views", "excluded")
        standings = {name: self.standings(name) for name in COMPARED}
        rows = [
            {
                "rank": row.rank,
                "row": row.number,
                "on_front": row.on_front,
                "reference": row.reference,
                "configuration": row.configuration,
                **{key: getattr(row.record, key) for key in ("strategy", "searcher", "creator", *CHOICES)},
                "run_ids": {str(seed): run_id for seed, run_id in row.run_ids.items()},
                "metrics": {
                    name: {part: getattr(row.summary(name), part, None) for part in ("mean", "std", "low", "high")}
                    for name in self.columns
                },
                "tunings": row.tuning_documents(),
                "against_best": {name: found[index] for name, found in standings.items()},
            }
            for index, row in enumerate(self.rows)
        ]
        missing = self.missing and self.missing._asdict()
        return {**{name: getattr(self, name) for name in names}, "missing_references": missing, "rows": rows}


def mean_and_deviation(metric: Metric, found: SampleSummary | None) -> str:
    """Mean ± standard deviation in the unit of the metric's column; ``-``: not measured for every seed."""
    if found is None:
        return "-"
    text = metric.format_cell(found.mean)
    return text if found.std is None else f"{text} ± {metric.format_cell(found.std)}"


def to_csv(boards: Iterable[Leaderboard]) -> str:
    """The tables of leaderboards as one CSV text; what was not measured is blank. Empty where there is no row.

    There is a column ``scenario`` only where one is not ``task``.
    """
    rows = [row for board in boards for row in board.table()]
    if all(row["scenario"] == "task" for row in rows):
        rows = [{name: value for name, value in row.items() if name != "scenario"} for row in rows]
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, dict.fromkeys(name for row in rows for name in row), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: spreadsheet_cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()
