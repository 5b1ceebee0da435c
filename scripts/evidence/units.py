"""docs/evidence/units.md: search spaces at equal parameters, and creators beside each other, among which `adapt`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from scripts.evidence.comparing import compare_rows
from scripts.evidence.components import percent, reused_share
from scripts.evidence.formatting import heading, mean, table, template
from scripts.evidence.runs import EVIDENCE, ROOT, SEU, records
from scripts.evidence.sweeps import FOLDER
from scripts.evidence.tables import verdicts
from seu_bench.results.building import read_leaderboards
from seu_bench.results.leaderboard import Row
from seu_bench.results.record import Record

PAGE: Final = ROOT / "docs" / "evidence" / "units.md"
SET: Final = "units"
BENCHMARKS: Final = ("split_fashion", "split_cifar100")
#: Rows of the first table by name: search space and searcher; all with new units everywhere.
SPACES: Final = ("darts_cell, random", "darts_cell, mdl", "mbconv, random", "mbconv, mdl")
#: Rows of the second: creators on cells drawn at random.
CREATORS: Final = ("adapt", "adapt, rank 4", "mdl", "frugal", "all_new")
#: Strategies of the published set `quick` that stand beside; of it is also the row `all_new`.
BESIDE: Final = ("linear", "independent")
COLUMNS: Final = ("acc", "params_total", "mixed_score", "train_flops")
COMPARED: Final = ("acc", "mixed_score")
#: Initial channels by which cells and inverted residuals are of one size, and those of the protocol.
CHANNELS: Final = {"darts_cell": 9, "mbconv": 6}
OWN: Final = 8
SEEDS: Final = range(5)
Rows: TypeAlias = Mapping[str, Row]


def name_of(record: Record) -> str | None:
    """The row of a run; ``None``: it is in no table."""
    if record.strategy != SEU:
        return record.strategy if record.strategy in BESIDE else None
    space, channels = record.options.get("space", "darts_cell"), record.options.get("channels") or OWN
    if record.creator == "all_new" and channels == CHANNELS[space]:
        return f"{space}, {record.searcher}"
    if space != "darts_cell" or record.searcher != "random" or channels != OWN:
        return None
    rank = (record.creator_options or {}).get("rank")
    return f"{record.creator}, rank {rank}" if rank else str(record.creator)


def read_rows() -> dict[str, dict[str, Row]]:
    """Rows by benchmark and name, of the seeds of the sweeps."""
    found: dict[str, dict[str, Row]] = {benchmark: {} for benchmark in BENCHMARKS}
    for folder in ("quick", SET):
        for board in read_leaderboards(EVIDENCE / folder).boards if (EVIDENCE / folder).is_dir() else ():
            for row in board.rows if board.benchmark in found else ():
                if name := name_of(row.record):
                    runs = {seed: run for seed, run in row.runs.items() if seed in SEEDS}
                    found[board.benchmark][name] = replace(row, runs=runs)
    return found


def row_table(rows: Rows, wanted: Sequence[str], shares: Mapping[str, tuple[float | None, float | None]]) -> str:
    """A row for each name, then those that stand beside."""
    lines = []
    for name in (*wanted, *BESIDE):
        if (row := rows.get(name)) is not None:
            told = [shares.get(run.run_id, (None, None)) for run in row.runs.values()]
            columns = [mean(row, column) for column in COLUMNS] + [percent(each) for each in zip(*told, strict=True)]
            lines.append((f"`{name}`", str(row.seeds), *columns))
    return table(["row", "seeds", *map(heading, COLUMNS), "places that reuse (%)", "that adapt (%)"], lines)


def adapted_share(record: Record) -> float | None:
    """Of the places on the paths of all tasks but the first, the share that wraps an old unit for the task."""
    places = [it == "adapt" for choices in (record.choices or ())[1:] for it in choices]
    return sum(places) / len(places) if places else (0.0 if record.paths else None)


def rendered() -> str:
    """The page as the published records have it."""
    rows = read_rows()
    shares = {
        it.run_id: (reused_share(it), adapted_share(it)) for name in ("quick", SET) for it in records(EVIDENCE / name)
    }
    spaces = [(f"mbconv, {it}", f"darts_cell, {it}") for it in ("random", "mdl")]
    spaces += [(f"{it}, mdl", f"{it}, random") for it in ("darts_cell", "mbconv")]
    creators = [(one, it) for one in CREATORS[:2] for it in CREATORS[2:]]
    return template("units.md.jinja").render(
        benchmarks=BENCHMARKS,
        channels=CHANNELS,
        own=OWN,
        spaces=lambda benchmark: row_table(rows[benchmark], SPACES, shares),
        creators=lambda benchmark: row_table(rows[benchmark], CREATORS, shares),
        space_verdicts=verdicts(compare_rows(rows, spaces, COMPARED)),
        creator_verdicts=verdicts(compare_rows(rows, creators, COMPARED)),
        commands=[f"seu-bench sweep {FOLDER}/{file.name}" for file in sorted((ROOT / FOLDER).glob("units_*.toml"))],
    )
