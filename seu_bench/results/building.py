"""From a results folder to leaderboards, their files, and a table of pandas.

A leaderboard holds the records of one benchmark, one version of it, one scenario, one protocol and one data
fingerprint, and never mixes these. A row is a configuration: a strategy with its searcher, creator and options, over
all seeds it was run on. Leaderboards can be thrown away and made again at any time.
"""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from seu_bench.config.common_options import BackboneOptions
from seu_bench.config.streams import SCENARIOS
from seu_bench.errors import NewerRecordError, ResultsError
from seu_bench.results.formats import to_csv, to_markdown
from seu_bench.results.labels import (
    as_mapping,
    benchmark_title,
    canonical,
    configuration_labels,
    other_overrides,
    protocol_settings,
    shared_changes,
    unequal_budgets,
    why_not_ranked,
)
from seu_bench.results.leaderboard import CHOICES, Leaderboard, Row, count, join_names, order_rows, size_axis
from seu_bench.results.metric import Metric, Reference
from seu_bench.results.names import Installed
from seu_bench.results.record import RECORD_NAME, Record, learner_code
from seu_bench.results.record_files import DETAILS, read_records
from seu_bench.results.record_metrics import (
    METRICS,
    OVER_IMAGES,
    SCENARIO_METRICS,
    complete_matrix,
    measured_rows,
    says_more,
)
from seu_bench.results.reference_rows import APART, missing_references, reference_of
from seu_bench.utils.files import refuse_link, write_atomic
from seu_bench.utils.text import printable

if TYPE_CHECKING:
    import pandas

#: Keys of a record per task whose last value is the metric of that name.
_PER_TASK: Final = ("params_total", "mask_bits", "params_active", "macs", "memory_bytes")
#: Metrics that most records have no value of, or 0: a column of them is shown where one has another.
_RARE: Final = ("tuning_passes", "mask_bits", "memory_added_bytes")


@dataclass(frozen=True)
class LeaderboardBuild:
    """The leaderboards of a results folder."""

    records: Sequence[Record]  # all that were read, by run id, without what leaderboards do not need
    unread: Mapping[str, Sequence[str]]  # runs that could not be read, by the reason
    boards: tuple[Leaderboard, ...]  # in the order of benchmarks, versions, protocols and scenarios
    paths: tuple[Path, ...] = ()  # the files written

    def excluded(self, benchmark: str | None = None, *, unranked: bool = False) -> list[str]:
        """Say which records of a benchmark enter no leaderboard, one line for each reason, and which were not read.

        ``unranked``: without those that :func:`unranked_leaderboards` shows.
        """
        records = (record for record in self.records if benchmark in (None, record.benchmark))
        extended = [it for it in extended_runs(self.records) if benchmark in (None, it.benchmark)]
        told = _explain_exclusions((it for it in records if not unranked or it.status != "finished"), self.unread)
        return [*_explain_extended(extended), *told]


def read_leaderboards(
    results: Path, metrics: Mapping[str, Metric] = METRICS, installed: Installed | None = None
) -> LeaderboardBuild:
    """Read a results folder, and make its leaderboards without writing a file.

    Args:
        results: the folder that holds the runs.
        metrics: those known, e.g. of the plugins installed; a column is shown where a record has its metric.
        installed: whose display names and citations :func:`~seu_bench.results.to_latex` prints, as
            ``Registry().kinds``; ``None``: plain names.

    Raises:
        ResultsError: the folder does not exist.
    """
    records, unread = collect(results, metrics)
    own = None if any(it.submitter for it in records) else results  # nobody runs something in a shared folder
    boards = (replace(board, installed=installed or {}) for board in _boards(records, unread, metrics, own))
    return LeaderboardBuild(records, unread, tuple(boards))


def make_leaderboards(results: Path, metrics: Mapping[str, Metric] = METRICS) -> LeaderboardBuild:
    """Read a results folder once, and write every leaderboard to ``<results>/leaderboards/<name>.md`` and ``.csv``.

    One process at a time reads records and writes, so that the last one has seen those of all.

    Args, Returns, Raises: as :func:`read_leaderboards`; also where the folder cannot be written to.
    """
    from seu_bench.utils.locks import folder_lock

    folder = results / "leaderboards"
    if not results.is_dir():
        return read_leaderboards(results)  # refuses
    refuse_link(folder, "remove it; leaderboards can be made again at any time")
    paths = []
    with folder_lock(folder):
        build = read_leaderboards(results, metrics)
        for board in build.boards:
            for suffix, text in ((".md", to_markdown(board)), (".csv", to_csv([board]))):
                paths.append(folder / f"{board.name}{suffix}")
                write_atomic(paths[-1], text)
    return replace(build, paths=tuple(paths))


def collect(
    results: Path, metrics: Mapping[str, Metric] = METRICS, *, details: bool = False
) -> tuple[list[Record], dict[str, list[str]]]:
    """Read a results folder: records by run id, with relative metrics; and runs that are unreadable, by the reason.

    Of a shared folder only runs that manifests name are read. ``details``: as of :func:`read_records`.
    """
    if not results.is_dir():
        raise ResultsError(
            "there is no such results folder",
            where=str(results),
            remedy="run something first, or give another folder with --results",
        )
    records: list[Record] = []
    unread: dict[str, list[str]] = defaultdict(list)
    for item in read_records(results, details=details):
        if isinstance(item, Record):
            records.append(item)
        else:
            newer = isinstance(item, NewerRecordError)
            reason = "a later version of seu-bench wrote the record" if newer else "the record is unreadable"
            place = Path(item.where or "?")
            unread[reason].append(place.parent.name if place.name == RECORD_NAME else place.name)
    records.sort(key=lambda record: record.run_id)
    return compare_with_reference(records, metrics), unread


def unranked_leaderboards(
    records: Iterable[Record], metrics: Mapping[str, Metric] = METRICS
) -> tuple[Leaderboard, ...]:
    """Make leaderboards of the finished records that are never ranked, such as those of the protocol ``smoke``.

    Each has runs of one reason alone, and says it in its title. They are to look at: neither written nor compared.
    """
    places: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for record in records:
        if record.status == "finished" and (reason := why_not_ranked(record)) is not None:
            numbers = {"limit": record.limit, "first tasks": record.first_tasks}
            reason = "; ".join([reason, *[f"{name}: {it:,}" for name, it in numbers.items() if it is not None]])
            places[*_place(record), reason, record.data_fingerprint or ""].append(record)
    gone = _extended(places)
    boards: dict[str, Leaderboard] = {}
    for place, runs in sorted(places.items(), key=lambda item: item[0]):
        if place not in gone:
            name = _free_name(runs[0], boards, "-unranked")
            boards[name] = _board(runs, metrics, name, unranked=place[-2])
    return _with_tasks([*boards.values()])


def extended_runs(records: Iterable[Record]) -> list[Record]:
    """Return the ranked runs that no leaderboard has, because longer runs continue all that its leaderboard would have.

    Where others learned the same tasks, and were not continued, all stay to be compared.
    """
    places: dict[Any, list[Record]] = defaultdict(list)
    for record in records:
        if why_not_ranked(record) is None:
            places[*_place(record), record.data_fingerprint].append(record)
    return [record for place in _extended(places) for record in places[place]]


def _extended(places: Mapping[Any, Sequence[Record]]) -> list[Any]:
    """The places all of whose records are parents of others."""
    parents = {(it.parent.run_id, it.parent.record_sha256) for runs in places.values() for it in runs if it.parent}
    return [at for at, runs in places.items() if all((it.run_id, it.record_sha256) in parents for it in runs)]


def _with_tasks(boards: Sequence[Leaderboard]) -> tuple[Leaderboard, ...]:
    """The boards, those of one title with their numbers of tasks in it where these differ."""
    numbers: dict[str, set[int]] = defaultdict(set)
    for board in boards:
        numbers[board.title].add(len(board.rows[0].record.task_names))
    return tuple(
        replace(board, tasks=len(board.rows[0].record.task_names)) if len(numbers[board.title]) > 1 else board
        for board in boards
    )


def _place(record: Record) -> tuple[str, int, str, int]:
    return record.benchmark, record.benchmark_version, record.protocol, SCENARIOS.index(record.scenario)


def _boards(
    records: Sequence[Record], unread: Mapping[str, Sequence[str]], metrics: Mapping[str, Metric], results: Path | None
) -> Iterator[Leaderboard]:
    by_place: dict[Any, list[Record]] = defaultdict(list)
    for record in records:
        by_place[_place(record)].append(record)
    names: set[str] = set()
    extended = {id(record) for record in extended_runs(records)}
    for _, there in sorted(by_place.items()):
        by_data: dict[str, list[Record]] = defaultdict(list)
        for record in there:
            if record.data_fingerprint and why_not_ranked(record) is None and id(record) not in extended:
                by_data[f"{record.data_fingerprint} {record.pretrained or ''}"].append(record)
        left_out = _explain_extended(record for record in there if id(record) in extended)
        boards = []
        for _, runs in sorted(by_data.items(), key=lambda item: (-len(item[1]), item[0])):
            names.add(name := _free_name(runs[0], names))
            board = _board(runs, metrics, name, (*left_out, *_explain_exclusions(there, unread)))
            boards.append(replace(board, missing=missing_references(runs, results)))
        yield from _with_tasks(boards)


def _board(
    records: Sequence[Record],
    metrics: Mapping[str, Metric],
    name: str,
    excluded: Sequence[str] = (),
    unranked: str | None = None,
) -> Leaderboard:
    latest = {(canonical(_choice(record)), record.seed): record for record in _by_time(records)}
    chosen: dict[str, dict[int, Record]] = defaultdict(dict)
    for choice, seed in sorted(latest):
        chosen[choice][seed] = latest[choice, seed]
    kept = set(map(id, latest.values()))
    repeated = {"a later record has the same configuration and seed": [r.run_id for r in records if id(r) not in kept]}
    labels = configuration_labels([next(iter(runs.values())) for runs in chosen.values()])
    rows = order_rows(
        [Row(0, label, runs) for label, runs in zip(labels, chosen.values(), strict=True)], ranked=unranked is None
    )
    measured = {key for run in latest.values() for key, value in run.metrics.items() if value or key not in _RARE}
    measured -= {name for name in OVER_IMAGES if not any(says_more(run, name) for run in latest.values())}
    first, firsts = records[0], [row.record for row in rows]
    measured -= {metric for metric, scenarios in SCENARIO_METRICS.items() if first.scenario not in scenarios}
    return Leaderboard(
        benchmark=first.benchmark,
        benchmark_version=first.benchmark_version,
        scenario=first.scenario,
        protocol=first.protocol,
        data_fingerprint=first.data_fingerprint or "-",
        pretrained=first.pretrained,
        name=name,
        records=len(latest),
        excluded=(*_lines("not counted", repeated), *excluded),
        rows=rows,
        columns={key: metric for key, metric in metrics.items() if metric.column and key in measured},
        size=size_axis(rows),
        unranked=unranked,
        changed=shared_changes(firsts),
        budgets=unequal_budgets(firsts),
    )


def _by_time(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: (record.started, record.run_id))


def _choice(record: Record) -> list[Any]:
    """Choices of a record as comparable plain values."""
    options = [other_overrides(record) if part == "benchmark_overrides" else getattr(record, part) for part in CHOICES]
    # A protocol that was edited without a new version of its benchmark must not share a row with what it was.
    names = [record.strategy, record.searcher, record.creator]
    settings = [options, protocol_settings(record), record.variant, learner_code(record)]
    return [names, *settings, record.submitter]


def _free_name(record: Record, taken: Iterable[str], end: str = "") -> str:
    """Name a leaderboard's files; with the fingerprint's beginning, then a number, where another one is called so."""
    plain = f"{benchmark_title(record)}-v{record.benchmark_version}-{record.protocol}{end}"[:200]  # of 255 letters
    longer = f"{plain}-{(record.data_fingerprint or '')[:8]}"
    candidates = itertools.chain([plain, longer], (f"{longer}-{number}" for number in itertools.count(2)))
    # Names come from records, which may hold anything: no letter may leave the folder.
    return next(name for text in candidates if (name := re.sub(r"[^A-Za-z0-9._-]", "_", text)) not in taken)


def _explain_extended(records: Iterable[Record]) -> list[str]:
    return _lines("not counted", {"a longer run continues it": [record.run_id for record in records]})


def _explain_exclusions(records: Iterable[Record], unread: Mapping[str, Sequence[str]]) -> list[str]:
    runs: dict[str, list[str]] = defaultdict(list)
    for record in records:
        if reason := why_not_ranked(record):
            runs[reason].append(record.run_id)
    return [*_lines("not ranked", runs), *_lines("not read", unread)]


def _lines(what: str, runs: Mapping[str, Sequence[str]]) -> list[str]:
    found = ((reason, names) for reason, names in sorted(runs.items()) if names)
    return [
        f"{count(len(names), 'record')} {what}: {printable(reason)} ({join_names(names)})" for reason, names in found
    ]


def _is_trained_jointly(record: Record) -> bool:
    """Whether a run learned all of its tasks, two or more, at once: it was evaluated only after the last one."""
    last = len(complete_matrix(record)) - 1
    return last > 0 and measured_rows(record) == [last]


#: Which runs are the reference of a metric.
_KINDS: Final[Mapping[Reference, Callable[[Record], bool]]] = {
    "jointly": _is_trained_jointly,
    "apart": lambda record: reference_of(record) == APART,
}


def compare_with_reference(records: Sequence[Record], metrics: Mapping[str, Metric] = METRICS) -> list[Record]:
    """Compute the relative metrics of records; ``None`` where there is no reference, or something was not measured.

    The reference of a run is the run of the kind that the metric says in the same circumstances, with its seed and its
    network. Where several configurations fit, the one counts whose other options are all as nobody set them; without
    such a one there is none. Records that may not be ranked neither are nor have a reference.
    """
    relative = {name: metric for name, metric in metrics.items() if metric.relative}
    places = {id(it): canonical(_circumstances(it)) for it in records if why_not_ranked(it) is None}
    references = {kind: _references(records, places, kind) for kind in {it.reference for it in relative.values()}}
    found = []
    for record in records:
        place = (places.get(id(record), ""), record.seed)
        own = {kind: found.get(place) for kind, found in references.items()}
        values = {name: _value(name, metric, record, own[metric.reference]) for name, metric in relative.items()}
        completed = record.metrics | values
        found.append(record if completed == record.metrics else record.model_copy(update={"metrics": completed}))
    return found


def _value(name: str, metric: Metric, record: Record, reference: Record | None) -> float | int | None:
    try:
        return metric.beside(record, reference) if reference is not None else None
    except Exception as error:
        warnings.warn(f"metric {name!r} is excluded: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2)
        return None


def _references(records: Sequence[Record], places: Mapping[int, str], kind: Reference) -> dict[tuple[str, int], Record]:
    """Reference runs by place and seed: those of the only configuration there, or the only one with default options."""
    fitting: dict[str, dict[str, dict[int, Record]]] = defaultdict(lambda: defaultdict(dict))
    for record in _by_time(records):
        if id(record) in places and _KINDS[kind](record):
            choice = canonical([record.strategy, _other_options(record), learner_code(record)])
            fitting[places[id(record)]][choice][record.seed] = record
    found = {}
    for place, choices in fitting.items():
        plain = [runs for runs in choices.values() if len(choices) == 1 or _at_defaults(next(iter(runs.values())))]
        if len(plain) == 1:
            found.update({(place, seed): record for seed, record in plain[0].items()})
    return found


def _at_defaults(record: Record) -> bool:
    """Whether a run has, but for its network, the options that it has if no user sets any."""
    protocol = as_mapping(as_mapping(record.protocol_settings.get("strategies")).get(record.strategy))
    defaults = {name: field.default for name, field in BackboneOptions.model_fields.items()} | protocol
    return all(value == defaults.get(name) for name, value in _other_options(record).items())


def _other_options(record: Record) -> dict[str, Any]:
    return {name: value for name, value in record.options.items() if name not in ("backbone", "width")}


def _circumstances(record: Record) -> list[Any]:
    """Common settings of a run and its reference, besides the seed, as plain values."""
    place = [record.benchmark, record.benchmark_version, record.protocol, record.scenario, record.data_fingerprint]
    width = record.options.get("width")
    if width is None:
        width = as_mapping(record.protocol_settings.get("model")).get("width")
    backbone = record.options.get("backbone", BackboneOptions.model_fields["backbone"].default)
    return [place, other_overrides(record), protocol_settings(record), backbone, width, record.submitter]


def load_records(folder: Path | str = "results", *, details: bool = False) -> pandas.DataFrame:
    """Load every readable record of a results folder.

    Args:
        folder: the results folder.
        details: whether to load stages, genotypes and all else that is most of what records hold.

    Returns:
        A row per record, by run id. Columns are the record's keys, metrics by id (``metrics.<id>`` where a key has that
        name), ``options.<name>``, ``environment.device``, .... What a record has per task and a metric has of the last
        one is ``params_total_per_task`` and so on. What is counted is ``Int64``, exact and with ``pandas.NA``; what is
        measured ``float64`` with NaN. ``frame.attrs["unreadable"]`` lists the runs that could not be read.

    Raises:
        ResultsError: the folder does not exist.

    Example:
        ``load_records("results").groupby("strategy")["acc"].mean()``
    """
    import pandas

    records, unread = collect(Path(folder), details=details)
    keys = [key for key in Record.model_fields if details or key not in DETAILS]
    rows = [_flat(record, keys) for record in records]
    frame = pandas.DataFrame(rows, columns=list(dict.fromkeys(name for row in rows for name in row)) or keys)
    counted = {_column(name) for name, metric in METRICS.items() if metric.unit in ("count", "flops", "bytes")}
    counted |= {"limit", "first_tasks", "environment.threads"}
    measured = {_column(name) for record in records for name in record.metrics} | {"seconds"}
    for name in (counted | measured) & {*frame.columns}:
        values = [row.get(name) for row in rows]
        # A record of others may have half a parameter, or one that has no room in 64 bits.
        whole = all(it is None or (float(it).is_integer() and abs(it) < 2**63) for it in values)
        if name in counted and whole:  # from the values: 2**53 + 1 is no float
            frame[name] = pandas.array([None if it is None else int(it) for it in values], dtype="Int64")
        else:
            frame[name] = pandas.array([math.nan if it is None else it for it in values], dtype="float64")
    frame.attrs["unreadable"] = sorted(name for names in unread.values() for name in names)
    return frame


def _flat(record: Record, keys: Iterable[str]) -> dict[str, Any]:
    document = record.model_dump(include={*keys})
    document |= {"may_be_ranked": record.may_be_ranked, "reference": reference_of(record)}
    parts = {key: document.pop(key) for key in (*CHOICES, "environment")}
    parts["environment.versions"] = parts["environment"].pop("versions")
    metrics = document.pop("metrics")
    document |= {f"{key}_per_task": document.pop(key) for key in _PER_TASK}
    document |= {_column(key): value for key, value in metrics.items()}
    return document | {f"{part}.{key}": value for part, values in parts.items() for key, value in values.items()}


def _column(metric: str) -> str:
    return f"metrics.{metric}" if metric in Record.model_fields and metric not in _PER_TASK else metric
