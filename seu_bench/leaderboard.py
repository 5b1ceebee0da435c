"""Leaderboards: records to tables, as Markdown and CSV; they can be thrown away and made again at any time.

A leaderboard holds the records of one benchmark, one version of it, one protocol and one data fingerprint, and never
mixes these. A row is a configuration: a strategy with its searcher, creator and options, over all seeds it was run on.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from seu_bench.errors import ResultsError
from seu_bench.files import refuse_link, write_whole
from seu_bench.metrics import METRIC_DEFINITIONS
from seu_bench.record import Record, read_records
from seu_bench.reference import compare_with_joint
from seu_bench.wording import (
    configuration_label,
    escape_markdown,
    printable,
    protocol_settings,
    why_not_ranked,
)

if TYPE_CHECKING:
    import pandas

#: Metrics of a leaderboard, in the order of its columns: heading and the factor from the record's unit to it.
COLUMNS: Final[dict[str, tuple[str, float]]] = {
    "mixed_score": ("mixed score", 1),
    "acc": ("acc (%)", 100),
    "forgetting": ("forgetting (%)", 100),
    "percent_of_joint": ("% of joint", 100),
    "params_total": ("parameters (M)", 1e-6),
    "learning_acc": ("learning acc (%)", 100),
    "intransigence": ("intransigence (%)", 100),
    "train_seconds": ("training (s)", 1),
}
_DECIMALS: Final = {"mixed_score": 4, "params_total": 3, "train_seconds": 1}
#: Keys of a record per task whose last value is the metric of that name.
_PER_TASK: Final = ("params_total", "params_active", "macs")
_CHOICES: Final = ("options", "searcher_options", "creator_options", "benchmark_overrides")

#: Benchmark, version, protocol.
_Place: TypeAlias = tuple[str, int, str]


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """The records of one benchmark, version, protocol and data fingerprint.

    Attributes:
        name: of its files, without extension.
        fingerprints: number of leaderboards that differ from this one in nothing but the data fingerprint, and it.
        records: number of records that were counted.
        left_out: which records were not counted and why, one line for each reason.
        frame: one row per configuration, best first: ``configuration``, ``strategy``, ``searcher``, ``creator``,
            ``seeds`` (how many), ``<metric>_mean`` and ``<metric>_std`` for each of :data:`COLUMNS` in the units of
            the record (NaN: not measured for every seed; standard deviations with ddof = 1, NaN for one seed), the
            options as JSON, ``run_ids``.
    """

    benchmark: str
    benchmark_version: int
    protocol: str
    data_fingerprint: str
    name: str
    fingerprints: int
    records: int
    left_out: tuple[str, ...]
    frame: pandas.DataFrame

    @property
    def title(self) -> str:
        """Benchmark, version and protocol, for a heading; not escaped."""
        return f"{self.benchmark}, version {self.benchmark_version}, protocol {self.protocol}"

    def to_markdown(self) -> str:
        """The leaderboard as a Markdown page; whatever comes from records is escaped."""
        import pandas

        rows = [[escape_markdown(cell) for cell in row] for row in self.cells()]
        headings = ["#", "configuration", "seeds", *map(self.heading, COLUMNS)]
        table = pandas.DataFrame(rows, columns=headings).to_markdown(
            index=False, disable_numparse=True, colalign=("right", "left", *["right"] * (len(COLUMNS) + 1))
        )
        lines = [
            f"# {escape_markdown(self.title)}",
            "",
            f"- data fingerprint: {escape_markdown(self.data_fingerprint)}",
            f"- {_count(self.records, 'record')}, {_count(len(self.frame), 'configuration')}",
            "- mean ± standard deviation (n - 1) over seeds; `-` where it was not measured for every seed",
        ]
        if self.fingerprints > 1:
            lines.append(
                f"- there are records of this benchmark, version and protocol on {self.fingerprints} different data "
                "fingerprints: they are not comparable, so each has a leaderboard of its own; the one with the most "
                "records has the plain file name, the others have the beginning of the fingerprint appended"
            )
        lines += ["", table, "", "## Definitions", ""]
        lines += [f"- {heading}: {escape_markdown(METRIC_DEFINITIONS[key])}" for key, (heading, _) in COLUMNS.items()]
        lines += ["", "## Left out", "", *[f"- {escape_markdown(line)}" for line in self.left_out or ("nothing",)]]
        return "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """The frame as CSV; what was not measured is blank."""
        return self.frame.to_csv(index=False, lineterminator="\n")

    def heading(self, metric: str) -> str:
        """Heading of a metric's column, with its unit."""
        return COLUMNS[metric][0]

    def cells(self, metrics: Sequence[str] = tuple(COLUMNS)) -> list[list[str]]:
        """The rows for a reader: rank, configuration, seeds, mean ± standard deviation of ``metrics``; not escaped."""
        return [
            [
                str(rank),
                str(row["configuration"]),
                str(row["seeds"]),
                *[_mean_and_deviation(key, row[f"{key}_mean"], row[f"{key}_std"]) for key in metrics],
            ]
            for rank, row in enumerate(self.frame.to_dict("records"), start=1)
        ]


def load_records(folder: Path | str = "results") -> pandas.DataFrame:
    """Every readable record of a results folder as one row, in the order of run ids.

    Columns are the record's keys; metrics are columns by id (``metrics.<id>`` where a record key has that name), those
    that need a run of ``joint`` found among the folder's records as for leaderboards
    (:func:`~seu_bench.reference.compare_with_joint`);
    options, overrides and environment are ``options.<name>``, ``environment.device``, ``environment.versions.torch``,
    .... What a record has per task and a metric has of the last one is ``params_total_per_task`` and so on.
    ``frame.attrs["unreadable"]`` lists the runs that could not be read.

    Raises:
        ResultsError: the folder does not exist.
    """
    import pandas

    records, unreadable = _read(Path(folder))
    rows = [_flat(record) for record in records]
    metrics = dict.fromkeys(_metric_column(key) for record in records for key in record.metrics)
    columns = dict.fromkeys(key for row in rows or [_flat(_empty())] for key in row)
    frame = pandas.DataFrame(rows, columns=list(columns))
    for column in ("limit", "seconds", *metrics):
        # A column of None alone would be one of objects, which cannot be averaged.
        frame[column] = pandas.to_numeric(frame[column])
    frame.attrs["unreadable"] = unreadable
    return frame


def build_leaderboards(results: Path, benchmark: str | None = None) -> list[Leaderboard]:
    """The leaderboards of a results folder in the order of their names.

    Args:
        results: the folder that holds ``runs``.
        benchmark: only those of this benchmark.

    Raises:
        ResultsError: the folder does not exist.
    """
    records, unreadable = _read(results)
    unread = _told("not read", unreadable)
    groups: dict[_Place, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        if record.may_be_ranked and record.data_fingerprint:
            groups[_place(record)][record.data_fingerprint].append(record)
    boards = []
    names: set[str] = set()
    for place in sorted(groups):
        by_data = groups[place]
        unranked = _unranked([record for record in records if _place(record) == place])
        for fingerprint in sorted(by_data, key=lambda key: (-len(by_data[key]), key)):
            name = _free_name(place, fingerprint, names)
            names.add(name)
            board = _board(place, fingerprint, by_data[fingerprint])
            told = (*board.left_out, *unranked, *unread)
            boards.append(replace(board, name=name, fingerprints=len(by_data), left_out=told))
    # Chosen last, so that a leaderboard's name does not depend on which others were asked for.
    return [board for board in boards if benchmark in (None, board.benchmark)]


def left_out(results: Path, benchmark: str | None = None) -> list[str]:
    """Which records of a results folder enter no leaderboard and why, one line for each reason.

    Raises:
        ResultsError: the folder does not exist.
    """
    records, unreadable = _read(results)
    unranked = _unranked([record for record in records if benchmark in (None, record.benchmark)])
    return [*unranked, *_told("not read", unreadable)]


def write_leaderboards(results: Path) -> list[Path]:
    """Write every leaderboard to ``<results>/leaderboards/<benchmark>-v<version>-<protocol>.md`` and ``.csv``.

    Returns:
        The files written.

    One process at a time reads records and writes, so that the last one has seen those of all.

    Raises:
        ResultsError: the folder does not exist or cannot be written to.
    """
    from seu_bench.locks import alone_in

    folder = results / "leaderboards"
    _refuse_absent(results)
    refuse_link(folder, "remove it; leaderboards can be made again at any time")
    written = []
    with alone_in(folder):
        for board in build_leaderboards(results):
            for suffix, text in ((".md", board.to_markdown()), (".csv", board.to_csv())):
                path = folder / f"{board.name}{suffix}"
                write_whole(path, text)
                written.append(path)
    return written


def _read(results: Path) -> tuple[list[Record], list[str]]:
    """The records, compared with ``joint``, and the names of the runs that cannot be read."""
    _refuse_absent(results)
    records, unreadable = [], []
    for item in read_records(results):
        if isinstance(item, Record):
            records.append(item)
        else:
            unreadable.append(Path(item.where or "?").parent.name)
    return compare_with_joint(records), unreadable


def _refuse_absent(results: Path) -> None:
    if not results.is_dir():
        raise ResultsError(
            "there is no such results folder",
            where=str(results),
            remedy="run something first, or give another folder with --results",
        )


def _flat(record: Record) -> dict[str, Any]:
    document = record.model_dump(mode="python") | {"may_be_ranked": record.may_be_ranked}
    environment = document.pop("environment")
    parts = {key: document.pop(key) for key in _CHOICES}
    metrics = document.pop("metrics")
    parts["environment.versions"] = environment.pop("versions")
    parts["environment"] = environment
    document |= {f"{key}_per_task": document.pop(key) for key in _PER_TASK}
    document |= {_metric_column(key): value for key, value in metrics.items()}
    return document | {f"{part}.{key}": value for part, values in parts.items() for key, value in values.items()}


def _empty() -> Record:
    return Record(run_id="x", status="finished", strategy="", benchmark="x", benchmark_version=0, protocol="x", seed=0)


def _metric_column(metric: str) -> str:
    return f"metrics.{metric}" if metric in Record.model_fields and metric not in _PER_TASK else metric


def _place(record: Record) -> _Place:
    return record.benchmark, record.benchmark_version, record.protocol


def _unranked(records: Sequence[Record]) -> list[str]:
    runs: dict[str, list[str]] = defaultdict(list)
    for record in records:
        if reason := why_not_ranked(record):
            runs[reason].append(record.run_id)
    return [line for reason in sorted(runs) for line in _told("not ranked", runs[reason], reason)]


def _told(what: str, run_ids: Sequence[str], reason: str = "the record is unreadable") -> list[str]:
    if not run_ids:
        return []
    named = [printable(run_id) for run_id in run_ids[:5]]
    more = f" and {len(run_ids) - 5} more" if len(run_ids) > 5 else ""
    return [f"{_count(len(run_ids), 'record')} {what}: {printable(reason)} ({', '.join(named)}{more})"]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _free_name(place: _Place, fingerprint: str, taken: set[str]) -> str:
    """The plain name; with the fingerprint's beginning, then a number, where another leaderboard has it."""
    plain = "{}-v{}-{}".format(*place)
    if len(plain) > 200:  # file systems take 255 letters
        plain = f"{plain[:180]}-{hashlib.sha256(plain.encode()).hexdigest()[:16]}"
    candidates = [plain, f"{plain}-{fingerprint[:8]}", *[f"{plain}-{fingerprint[:8]}-{n}" for n in range(2, 10_000)]]
    # Names come from records, which may hold anything: no letter may leave the folder.
    return next(name for text in candidates if (name := re.sub(r"[^A-Za-z0-9._-]", "_", text)) not in taken)


def _configuration(record: Record) -> str:
    """What was chosen, as text that is equal where the choice is."""
    names = [record.strategy, record.searcher, record.creator]
    options = [getattr(record, part) for part in _CHOICES]
    # A protocol that was edited without a new version of its benchmark must not share a row with what it was.
    return json.dumps([names, options, protocol_settings(record), record.precision], sort_keys=True)


def _board(place: _Place, fingerprint: str, records: Sequence[Record]) -> Leaderboard:
    import pandas

    latest: dict[tuple[str, int], Record] = {}
    for record in sorted(records, key=lambda record: (record.started, record.run_id)):
        latest[_configuration(record), record.seed] = record
    kept = {id(record) for record in latest.values()}
    repeated = [record.run_id for record in records if id(record) not in kept]
    by_choice: dict[str, list[Record]] = defaultdict(list)
    for (choice, _), record in sorted(latest.items()):
        by_choice[choice].append(record)
    firsts = [runs[0] for runs in by_choice.values()]
    rows = [_row(configuration_label(runs[0], firsts), runs) for runs in by_choice.values()]
    # A score is never negative, so that what was not measured comes last.
    rows.sort(key=lambda row: (-(row["mixed_score_mean"] or 0), row["configuration"]))
    frame = pandas.DataFrame(rows)
    for column in (f"{key}_{what}" for key in COLUMNS for what in ("mean", "std")):
        frame[column] = frame[column].astype("float64")
    told = _told("not counted", repeated, "a later record has the same configuration and seed")
    return Leaderboard(*place, fingerprint, "", 1, len(latest), tuple(told), frame)


def _row(label: str, runs: Sequence[Record]) -> dict[str, Any]:
    first = runs[0]
    row: dict[str, Any] = {
        "configuration": label,
        "strategy": first.strategy,
        "searcher": first.searcher,
        "creator": first.creator,
        "seeds": len(runs),
    }
    for key in COLUMNS:
        values = [value for run in runs if (value := run.metrics.get(key)) is not None and math.isfinite(value)]
        whole = len(values) == len(runs)  # a mean over some of the seeds would not compare with the others
        row[f"{key}_mean"] = statistics.fmean(values) if whole else None
        row[f"{key}_std"] = statistics.stdev(map(float, values)) if whole and len(values) > 1 else None
    row |= {part: json.dumps(getattr(first, part), sort_keys=True) for part in _CHOICES}
    return row | {"run_ids": " ".join(run.run_id for run in runs)}


def _mean_and_deviation(key: str, mean: float, deviation: float) -> str:
    if math.isnan(mean):
        return "-"
    factor, decimals = COLUMNS[key][1], _DECIMALS.get(key, 2)
    text = f"{round(mean * factor, decimals) + 0.0:,.{decimals}f}"  # adding 0.0 turns -0.0 into 0.0
    return text if math.isnan(deviation) else f"{text} ± {deviation * factor:,.{decimals}f}"
