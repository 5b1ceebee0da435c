"""A leaderboard: its rows, what is best in them, and the texts that show it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from seu_bench.metrics import METRIC_DEFINITIONS
from seu_bench.results.leaderboard.grouping import CHOICES, count
from seu_bench.results.leaderboard.sample_summary import CONFIDENCE, SEEDS_TO_COMPARE, SampleSummary, verdict
from seu_bench.utils.text import escape_markdown

if TYPE_CHECKING:
    import pandas

#: Metrics of a leaderboard, in the order of its columns: heading and the factor from the record's unit to it.
COLUMNS: Final[dict[str, tuple[str, float]]] = {
    "mixed_score": ("mixed score", 1),
    "acc": ("acc (%)", 100),
    "forgetting": ("forgetting (%)", 100),
    "percent_of_joint": ("% of joint", 100),
    "params_total": ("parameters (M)", 1e-6),
    "macs": ("MACs (M)", 1e-6),
    "learning_acc": ("learning acc (%)", 100),
    "intransigence": ("intransigence (%)", 100),
    "train_seconds": ("training (s)", 1),
}
_FORMATS: Final = {"mixed_score": ",.4f", "params_total": ",.3f", "macs": ",.3f", "train_seconds": ",.1f"}
#: What a frame calls the numbers of a column.
_NAMES: Final = {metric: [f"{metric}_{what}" for what in ("mean", "std", "low", "high")] for metric in COLUMNS}
#: Of the columns: where a lower value is the better one.
LESS_IS_BETTER: Final = frozenset({"forgetting", "params_total", "macs", "intransigence", "train_seconds"})
#: Columns in which each row is compared with the best one, by its seeds; in both a higher value is better.
COMPARED: Final = ("mixed_score", "acc")

#: How a row stands in a column: ``best``, or what the seeds say of its difference to that one.
Standing: TypeAlias = Literal["best", "apart", "within", "undecided"]
#: What is shown before a value.
MARKS: Final[dict[Standing, str]] = {"best": "* ", "within": "≈ ", "undecided": "? ", "apart": ""}
LEGEND: Final = (
    f"{MARKS['best']}the highest mean of its column; {MARKS['within']}seeds do not tell the row from that one: paired "
    f"t-test over the seeds that both have, p >= {1 - CONFIDENCE:.2f}, each row tested by itself; "
    f"{MARKS['undecided']}not decided, with fewer than {SEEDS_TO_COMPARE} seeds in common; no mark: told apart"
)


@dataclass(frozen=True, eq=False)
class Row:
    """A configuration.

    Attributes:
        rank: from 1, in the whole leaderboard.
        configuration: what was chosen, in words that tell it from the other rows.
        choices: the options and overrides in full, by the record's key.
        run_ids: of the records, by seed.
        values: what was measured, in the units of the record, by metric and seed.
        spreads: by metric; ``None`` where it was not measured for every seed.
    """

    rank: int
    configuration: str
    strategy: str
    searcher: str | None
    creator: str | None
    choices: Mapping[str, Mapping[str, Any]]
    run_ids: Mapping[int, str]
    values: Mapping[str, Mapping[int, float]]
    spreads: Mapping[str, SampleSummary | None]

    @property
    def seeds(self) -> int:
        """How many seeds it was run with."""
        return len(self.run_ids)

    def mean(self, metric: str) -> float | None:
        """Mean over seeds; ``None`` where it was not measured for every one."""
        found = self.spreads[metric]
        return found.mean if found else None


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """The records of one benchmark, version, protocol and data fingerprint.

    Attributes:
        name: of its files, without extension.
        fingerprints: number of leaderboards that differ from this one in nothing but the data fingerprint, and it.
        records: number of records that were counted.
        left_out: which records were not counted and why, one line for each reason.
        rows: best first, by mean mixed score.
        views: if only some of the rows are here, why, one line for each reason.
    """

    benchmark: str
    benchmark_version: int
    protocol: str
    data_fingerprint: str
    name: str
    fingerprints: int
    records: int
    left_out: tuple[str, ...]
    rows: tuple[Row, ...]
    views: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Benchmark, version and protocol, for a heading; not escaped."""
        return f"{self.benchmark}, version {self.benchmark_version}, protocol {self.protocol}"

    @cached_property
    def frame(self) -> pandas.DataFrame:
        """One row per configuration, best first, in the units of the record.

        Columns: ``benchmark``, ``benchmark_version``, ``protocol``, ``data_fingerprint``, ``rank``, ``configuration``,
        ``strategy``, ``searcher``, ``creator``, ``seeds`` (how many); for each of :data:`COLUMNS` ``<metric>_mean``
        (NaN: not measured for every seed), ``<metric>_std``, ``<metric>_low`` and ``<metric>_high`` (95 % confidence
        interval of the mean; NaN for one seed); for each of :data:`COMPARED` ``<metric>_against_best``; the options as
        JSON; ``run_ids``.
        """
        import pandas

        rows = self._cells_by_column()
        frame = pandas.DataFrame(rows, columns=list(rows[0]) if rows else [])
        for column in [name for name in frame if str(name).endswith(("_mean", "_std", "_low", "_high"))]:
            # A column of None alone would be one of objects, which cannot be averaged.
            frame[column] = frame[column].astype("float64")
        return frame

    def _cells_by_column(self) -> list[dict[str, Any]]:
        place = {key: getattr(self, key) for key in ("benchmark", "benchmark_version", "protocol", "data_fingerprint")}
        standings = {metric: self.standings(metric) for metric in COMPARED}
        rows = []
        for index, row in enumerate(self.rows):
            cells: dict[str, Any] = dict(place)
            cells |= {key: getattr(row, key) for key in ("rank", "configuration", "strategy", "searcher", "creator")}
            cells["seeds"] = row.seeds
            for metric, names in _NAMES.items():
                cells.update(zip(names, _numbers(row.spreads[metric]).values(), strict=True))
            cells |= {f"{metric}_against_best": standings[metric][index] for metric in COMPARED}
            cells |= {part: json.dumps(row.choices[part], sort_keys=True) for part in CHOICES}
            rows.append(cells | {"run_ids": " ".join(row.run_ids.values())})
        return rows

    def standings(self, metric: str) -> list[Standing | None]:
        """How each row stands in a column of :data:`COMPARED`; ``None`` where it has no mean.

        The best row has the highest mean; of several, the first.
        """
        return self._standings[metric]

    @cached_property
    def _standings(self) -> dict[str, list[Standing | None]]:
        return {metric: _standings(self.rows, metric) for metric in COMPARED}

    def narrowed(self, rows: Sequence[Row], told: str) -> Leaderboard:
        """The same with some of the rows only; their ranks stay, and the best of them is compared with.

        Args:
            told: why, for :attr:`views`.
        """
        return replace(self, rows=tuple(rows), views=(*self.views, told))

    def heading(self, metric: str) -> str:
        """Heading of a metric's column, with its unit."""
        return COLUMNS[metric][0]

    def cells(self, metrics: Sequence[str] = tuple(COLUMNS), most: int | None = None) -> list[list[str]]:
        """The rows for a reader: rank, configuration, seeds, mean ± standard deviation of ``metrics``; not escaped.

        Args:
            most: rows at the most; ``None``: all.
        """
        marked = {metric: self.standings(metric) for metric in metrics if metric in COMPARED}
        shown = []
        for index, row in enumerate(self.rows[:most]):
            cells = [str(row.rank), row.configuration, str(row.seeds)]
            for metric in metrics:
                standing = marked[metric][index] if metric in marked else None
                cells.append((MARKS[standing] if standing else "") + _mean_and_deviation(metric, row.spreads[metric]))
            shown.append(cells)
        return shown

    def intervals(self, metrics: Sequence[str] = tuple(COLUMNS), most: int | None = None) -> list[list[str]]:
        """The rows for a reader: rank, configuration, 95 % confidence intervals of the means; not escaped.

        Args:
            most: rows at the most; ``None``: all.
        """
        return [
            [str(row.rank), row.configuration, *[_interval(metric, row.spreads[metric]) for metric in metrics]]
            for row in self.rows[:most]
        ]

    def to_markdown(self) -> str:
        """The leaderboard as a Markdown page; whatever comes from records is escaped."""
        lines = [
            f"# {escape_markdown(self.title)}",
            "",
            f"- data fingerprint: {escape_markdown(self.data_fingerprint)}",
            f"- {count(self.records, 'record')}, {count(len(self.rows), 'configuration')}",
            *[f"- {escape_markdown(view)}" for view in self.views],
            "- mean ± standard deviation (n - 1) over seeds; `-` where it was not measured for every seed",
            f"- {escape_markdown(LEGEND)}",
        ]
        if self.fingerprints > 1:
            lines.append(
                f"- there are records of this benchmark, version and protocol on {self.fingerprints} different data "
                "fingerprints: they are not comparable, so each has a leaderboard of its own; the one with the most "
                "records has the plain file name, the others have the beginning of the fingerprint appended"
            )
        headings = [self.heading(metric) for metric in COLUMNS]
        lines += ["", _table(["#", "configuration", "seeds", *headings], self.cells())]
        lines += ["", "## Confidence intervals", ""]
        lines += [
            "95 % confidence interval of the mean by Student's t with n - 1 degrees of freedom; `-` for one seed."
        ]
        lines += ["", _table(["#", "configuration", *headings], self.intervals())]
        lines += ["", "## Definitions", ""]
        lines += [f"- {heading}: {escape_markdown(METRIC_DEFINITIONS[key])}" for key, (heading, _) in COLUMNS.items()]
        lines += ["", "## Left out", "", *[f"- {escape_markdown(line)}" for line in self.left_out or ("nothing",)]]
        return "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """The columns of :attr:`frame` as CSV; what was not measured is blank."""
        rows = self._cells_by_column()
        text = io.StringIO()
        if rows:
            table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
            table.writeheader()
            table.writerows(rows)
        return text.getvalue()

    def document(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        standings = {metric: self.standings(metric) for metric in COMPARED}
        return {
            "benchmark": self.benchmark,
            "benchmark_version": self.benchmark_version,
            "protocol": self.protocol,
            "data_fingerprint": self.data_fingerprint,
            "records": self.records,
            "views": list(self.views),
            "left_out": list(self.left_out),
            "rows": [
                {
                    "rank": row.rank,
                    "configuration": row.configuration,
                    "strategy": row.strategy,
                    "searcher": row.searcher,
                    "creator": row.creator,
                    **row.choices,
                    "run_ids": {str(seed): run_id for seed, run_id in row.run_ids.items()},
                    "metrics": {metric: _numbers(row.spreads[metric]) for metric in COLUMNS},
                    "against_best": {metric: standings[metric][index] for metric in COMPARED},
                }
                for index, row in enumerate(self.rows)
            ],
        }


def shown_value(metric: str, value: float) -> str:
    """A metric's value in the unit of its column, without the unit."""
    text = format(value * COLUMNS[metric][1], _FORMATS.get(metric, ",.2f"))
    return text if text.strip("-0.") else text.lstrip("-")  # no negative zero


def _standings(rows: Sequence[Row], metric: str) -> list[Standing | None]:
    measured = [row for row in rows if row.mean(metric) is not None]
    best = max(measured, key=lambda row: row.mean(metric) or 0.0, default=None)
    found: list[Standing | None] = []
    for row in rows:
        if best is None or row.mean(metric) is None:
            found.append(None)
        else:
            found.append("best" if row is best else verdict(best.values[metric], row.values[metric]))
    return found


def _numbers(found: SampleSummary | None) -> dict[str, float | None]:
    if found is None:
        return {"mean": None, "std": None, "low": None, "high": None}
    return {"mean": found.mean, "std": found.std, "low": found.low, "high": found.high}


def _mean_and_deviation(metric: str, found: SampleSummary | None) -> str:
    if found is None:
        return "-"
    text = shown_value(metric, found.mean)
    return text if found.std is None else f"{text} ± {shown_value(metric, found.std)}"


def _interval(metric: str, found: SampleSummary | None) -> str:
    if found is None or found.low is None or found.high is None:
        return "-"
    return f"{shown_value(metric, found.low)} to {shown_value(metric, found.high)}"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown in columns of even width; configurations to the left, all else to the right."""
    escaped = [list(headings), *[[escape_markdown(cell) for cell in row] for row in rows]]
    widths = [max(3, *map(len, column)) for column in zip(*escaped, strict=True)]
    left = [heading == "configuration" for heading in headings]
    lines = [[_filled(*cell) for cell in zip(row, widths, left, strict=True)] for row in escaped]
    rule = [
        ":" + "-" * (width - 1) if side else "-" * (width - 1) + ":" for width, side in zip(widths, left, strict=True)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], rule, *lines[1:]])


def _filled(text: str, width: int, left: bool) -> str:
    return text.ljust(width) if left else text.rjust(width)
