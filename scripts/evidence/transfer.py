"""docs/evidence/transfer.md: streams that measure transfer, and what a modular network takes on a long one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from scripts.evidence.formatting import NOTHING, heading, mean, names, table, template
from scripts.evidence.runs import EVIDENCE, ROOT, records
from scripts.evidence.sweeps import FOLDER, sweep
from scripts.evidence.transfer_long import LONG_SET, PICTURE, long_run, long_table, saved_table
from seu_bench.results.building import read_leaderboards
from seu_bench.results.leaderboard import Leaderboard, Row
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import known_metric
from seu_bench.results.statistics import summarize

PAGE: Final = ROOT / "docs" / "evidence" / "transfer.md"
#: The set of records.
SET: Final = "transfer"
SWEEPS: Final = tuple(sorted(path.stem for path in (ROOT / FOLDER).glob("transfer_*.toml")))
#: Columns of a stream's table after accuracy on the last task and transfer.
COLUMNS: Final = ("params_total", "memory_bytes", "train_flops")
#: The networks of one's own that transfer is counted from, by backbone.
OWN: Final[Mapping[str, str]] = {"alexnet": "independent", "resnet18_even": "independent, resnet18_even"}
MODULAR, PLAIN, SEU, RULE, TRIVIAL = "mntdp", "naive", "seu, mdl", "seu, knn_prefix", "linear"


@dataclass(frozen=True)
class Published:
    """Accuracy in [0, 1] and modules of MNTDP, and accuracy of LMC, as the authors of LMC ran both on the official
    streams (Ostapenko et al., NeurIPS 2021)."""

    accuracy: float
    modules: int
    lmc: float


#: By stream, in the order of this page; numbers that others published, which no record of ours can produce.
PUBLISHED: Final[Mapping[str, Published]] = {
    "s_minus": Published(0.667, 12, 0.686),
    "s_plus": Published(0.609, 18, 0.624),
    "s_in": Published(0.665, 15, 0.708),
    "s_out": Published(0.657, 11, 0.585),
    "s_pl": Published(0.639, 18, 0.624),
}


def boards(folder: Path = EVIDENCE) -> dict[str, Leaderboard]:
    """The leaderboards of the set by stream; none where it was not run."""
    found = read_leaderboards(folder / SET).boards if (folder / SET).is_dir() else ()
    named = {board.benchmark.removeprefix("transfer_part_"): board for board in found}
    return {stream: named[stream] for stream in PUBLISHED if stream in named}


def name_of(row: Row) -> str:
    """The strategy, and what was chosen for it."""
    return name_of_record(row.record)


def name_of_record(record: Record) -> str:
    """The same of one run."""
    backbone = record.options.get("backbone")
    chosen = record.creator or (backbone if record.strategy == "independent" and backbone != "alexnet" else None)
    return ", ".join(filter(None, [record.strategy, chosen]))


def rows_of(board: Leaderboard) -> dict[str, Row]:
    """Rows by name, by accuracy, learners first."""
    ordered = sorted(board.rows, key=lambda row: (row.reference is not None, -(row.mean("acc") or 0)))
    return {name_of(row): row for row in ordered}


def last_accuracies(row: Row) -> list[float]:
    """Accuracy on the last task of each seed, in [0, 1]."""
    found = [run.accuracy_matrix[-1][-1] for run in row.runs.values()]
    return [value for value in found if value is not None]


@cache
def _published() -> Mapping[str, Record]:
    """The records by run id; those of leaderboards have neither stages nor paths."""
    return {record.run_id: record for record in records(EVIDENCE / SET)}


def whole(row: Row) -> list[Record]:
    """The runs of a row with all that they recorded."""
    return [_published()[run.run_id] for run in row.runs.values() if run.run_id in _published()]


def modules(row: Row) -> str:
    """Modules or units that were made, mean over seeds."""
    made = [sum(map(len, run.unit_tasks)) for run in whole(row) if run.unit_tasks is not None]
    return f"{sum(made) / len(made):.1f}" if made else NOTHING


def table_of(board: Leaderboard) -> str:
    """A row for each configuration."""
    shown = known_metric("acc").format_cell
    headings = ["strategy", "seeds", heading("acc"), "last task (%)", "T(S) (points)", *map(heading, COLUMNS), "units"]
    lines = []
    for name, row in rows_of(board).items():
        last = summarize(last_accuracies(row))
        told = (
            NOTHING
            if last is None
            else shown(last.mean) + (f" ± {shown(last.high - last.mean)}" if last.high is not None else "")
        )
        is_own = name in OWN.values()
        lines.append(
            (
                f"`{name}`" + ("" if row.reference is None else " (reference)"),
                str(row.seeds),
                mean(row, "acc"),
                told,
                NOTHING if is_own else mean(row, "transfer"),
                *[mean(row, column, interval=False) for column in COLUMNS],
                modules(row),
            )
        )
    return table(headings, lines)


def beside_published(found: Mapping[str, Leaderboard]) -> str:
    """MNTDP's accuracy and modules, theirs and ours, by stream."""
    lines = []
    for stream, theirs in PUBLISHED.items():
        row = rows_of(found[stream]).get(MODULAR) if stream in found else None
        ours = [NOTHING, NOTHING] if row is None else [mean(row, "acc", interval=False), modules(row)]
        cells = [f"{100 * theirs.accuracy:.1f}", str(theirs.modules), f"{100 * theirs.lmc:.1f}", *ours]
        lines.append((f"`{stream}`", *cells))
    return table(["stream", "MNTDP-D (%)", "modules", "LMC (%)", "`mntdp` here (%)", "modules"], lines)


def order_of(found: Mapping[str, Leaderboard]) -> str:
    """The order of the streams by MNTDP's accuracy, theirs and ours, in words."""
    ours = {
        stream: value
        for stream, board in found.items()
        if (row := rows_of(board).get(MODULAR)) is not None and (value := row.mean("acc")) is not None
    }
    if len(ours) < 2:
        return "Too few streams were run to compare their order."
    theirs = sorted(ours, key=lambda stream: -PUBLISHED[stream].accuracy)
    mine = sorted(ours, key=lambda stream: -ours[stream])
    told = f"By MNTDP's accuracy the published order of the streams is {_listed(theirs)}"
    return f"{told}; ours is the same." if theirs == mine else f"{told}; ours is {_listed(mine)}."


def _listed(streams: Iterable[str]) -> str:
    return ", ".join(f"`{stream}`" for stream in streams)


def twin_of(record: Record) -> bool | None:
    """Whether the prior of the last task named the first one, or a task with all of its body; ``None``: no prior."""
    prior = [stage for stage in record.stages if stage.name == "prior" and stage.task == len(record.task_names) - 1]
    if not prior or record.paths is None:
        return None
    bodies: dict[tuple[int, ...], list[int]] = {}
    for task, path in enumerate(record.paths[:-1]):
        bodies.setdefault(tuple(path[:-1]), []).append(task)
    scores = [-1.0 if value is None else value for value in prior[0].accuracies]
    best = {score for score in scores if score == max(scores)}
    return any(0 in tasks for tasks, score in zip(bodies.values(), scores, strict=True) if score in best)


def reused_of(record: Record) -> int:
    """Units of the first task's path, from the input on, that the last task's begins with."""
    if not record.paths:
        return 0
    pairs = zip(record.paths[0], record.paths[-1], strict=True)
    return next((length for length, (one, other) in enumerate(pairs) if one != other), len(record.paths[0]))


def findings(stream: str, board: Leaderboard) -> Iterator[str]:
    """What a table says, in sentences that its numbers make."""
    rows = rows_of(board)
    learners = [name for name, row in rows.items() if row.reference is None]
    if learners:
        yield f"In order of accuracy: {', '.join(f'`{name}`' for name in learners)}."
    gains = {name: value for name in learners if (value := rows[name].mean("transfer")) is not None}
    if gains:
        up = names(name for name, value in gains.items() if value > 0) if max(gains.values()) > 0 else "none"
        down = [name for name, value in gains.items() if value <= 0]
        told = f"The last task gains from those before it with {up}"
        yield told + (f", and does not with {names(down)}." if down else ".")
    if TRIVIAL in rows:
        least = rows[TRIVIAL].mean("acc") or 0.0
        below = [name for name, row in rows.items() if name != TRIVIAL and (row.mean("acc") or 0.0) <= least]
        told = f"Not more accurate than a linear classifier for each task: {names(below)}."
        yield told if below else "Every row is more accurate than a linear classifier for each task."
    for name in learners:
        runs = whole(rows[name])
        unstable = sum(
            any(it.stability and it.stability.value >= it.stability.bound for it in run.stages) for run in runs
        )
        if unstable:
            yield (
                f"`{name}` was trained with unstable settings in {unstable} of {len(runs)} runs (step size times the "
                "curvature of its penalty): untuned, it is not at its best."
            )
    for name in (MODULAR, RULE, SEU):
        if name not in rows or stream == "s_pl":
            continue
        runs = whole(rows[name])
        reused = ", ".join(str(reused_of(run)) for run in runs)
        priors = [twin for run in runs if (twin := twin_of(run)) is not None]
        places = len(runs[0].paths[0]) if runs[0].paths else 0
        told = f"`{name}` begins the last task's path with {reused} of the first task's {places} units"
        if priors:
            told += f"; its prior named the first task's body in {sum(priors)} of {len(priors)} runs"
        yield told + "."


def pending() -> Iterator[tuple[str, int, int]]:
    """Sweeps with runs that have no published record: the file, how many there are, and of how many."""
    there = {
        (board.benchmark, name, seed)
        for board in boards().values()
        for name, row in rows_of(board).items()
        for seed in row.runs
    }
    for file in SWEEPS:
        spec = sweep(file)
        (backbone,) = spec.options.get("backbone", (None,))
        wanted = set()
        for strategy in spec.strategy:
            creators = (spec.creator or ("mdl",)) if strategy == "seu" else (None,)
            for creator in creators:
                chosen = creator or (backbone if strategy == "independent" and backbone else None)
                label = ", ".join(filter(None, [strategy, chosen if chosen is None else str(chosen)]))
                wanted |= {(Path(benchmark).stem, label, seed) for benchmark in spec.benchmark for seed in spec.seeds}
        if wanted - there:
            yield file, len(wanted & there), len(wanted)


def rendered(folder: Path = EVIDENCE) -> str:
    """The page as the published records have it."""
    found = boards(folder)
    run = long_run(folder)
    return template("transfer.md.jinja").render(
        boards=found,
        table=table_of,
        findings=findings,
        beside=beside_published(found),
        order=order_of(found),
        commands=[f"seu-bench sweep {FOLDER}/{file}.toml" for file in SWEEPS],
        pending=list(pending()),
        folder=FOLDER,
        long=run,
        long_table=None if run is None else long_table(run),
        picture=f"../pictures/{PICTURE.name}",
        saved=saved_table(),
        long_set=LONG_SET,
    )
