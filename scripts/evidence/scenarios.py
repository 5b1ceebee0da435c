"""docs/evidence/scenarios.md: class-incremental streams, and what answering without a task label is worth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scripts.evidence.formatting import heading, mean, table, template
from scripts.evidence.runs import EVIDENCE, ROOT
from scripts.evidence.sweeps import FOLDER, pending
from seu_bench.results.building import read_leaderboards
from seu_bench.results.leaderboard import Leaderboard, Row
from seu_bench.results.record_metrics import known_metric

PAGE: Final = ROOT / "docs" / "evidence" / "scenarios.md"
#: The set of records.
SET: Final = "scenarios"
#: Columns of a benchmark's table.
COLUMNS: Final = (
    "acc", "avg_incremental_acc", "task_accuracy", "cross_task_errors", "forgetting", "memory_bytes", "image_passes",
)  # fmt: skip
#: What has to be beaten without a network, what forgets, and what has all images at once.
TRIVIAL, PLAIN, BOUND = "nearest_mean", "naive", "joint"
#: Strategies that keep images.
REHEARSING: Final = ("replay", "er_ace", "gdumb", "icarl")
#: Within so many points of one task's share nothing is left of the others.
NEAR: Final = 3.0
SWEEPS: Final = tuple(sorted(path.stem for path in (ROOT / FOLDER).glob("scenarios_*.toml")))


def boards(folder: Path = EVIDENCE) -> tuple[Leaderboard, ...]:
    """The leaderboards of the set; none where it was not run."""
    return read_leaderboards(folder / SET).boards if (folder / SET).is_dir() else ()


def name_of(row: Row) -> str:
    """The strategy, and how it infers tasks."""
    certainty = row.record.options.get("infer_task")
    return f"{row.record.strategy} ({certainty})" if certainty else row.record.strategy


def table_of(board: Leaderboard) -> str:
    """Rows by accuracy, learners first."""
    rows = {name_of(row): row for row in board.rows}
    ordered = sorted(rows.items(), key=lambda item: (item[1].reference is not None, -(item[1].mean("acc") or 0)))
    headings = ["strategy", "seeds", *map(heading, COLUMNS[:-1]), "image passes (M)"]
    return table(
        headings,
        [
            (
                f"`{name}`" + ("" if row.reference is None else " (reference)"),
                str(row.seeds),
                *[mean(row, column) for column in COLUMNS[:-1]],
                f"{(row.mean(COLUMNS[-1]) or 0) / 1e6:.2f}",
            )
            for name, row in ordered
        ],
    )


def findings(board: Leaderboard) -> Iterator[str]:
    """What the table says, in sentences that its numbers make."""
    rows = {name_of(row): row for row in board.rows}
    tasks = len(board.rows[0].record.task_names)
    share = 100 / tasks
    plain = _percent(rows.get(PLAIN))
    if plain is not None:
        verdict = "one task's share: nothing is left of the others"
        if abs(plain - share) > NEAR:
            verdict = "more than that" if plain > share else "less: the last task is not learned whole either"
        yield f"`{PLAIN}` ends at {plain:.1f} %, where one of {tasks} tasks is {share:.1f} %: {verdict}."
    kept = {name: value for name in REHEARSING if (value := _percent(rows.get(name))) is not None}
    if kept and plain is not None:
        fallen = [name for name, value in kept.items() if value - plain <= NEAR]
        told = ", ".join(f"`{name}` {value:.1f}" for name, value in sorted(kept.items(), key=lambda item: -item[1]))
        yield f"With memories of the same size (%): {told}. " + (
            f"No better than `{PLAIN}`: {', '.join(f'`{name}`' for name in fallen)}." if fallen else "None falls to it."
        )
    trivial = _percent(rows.get(TRIVIAL))
    if trivial is not None:
        below = [
            name
            for name, row in rows.items()
            if row.reference is None and (value := _percent(row)) is not None and value <= trivial
        ]
        yield f"The nearest class mean of the pixels, without a network, reaches {trivial:.1f} %. " + (
            f"Not above it: {', '.join(f'`{name}`' for name in sorted(below))}."
            if below
            else "Every learner is above it."
        )
    inferred = {name: row for name, row in rows.items() if row.record.options.get("infer_task")}
    for name, row in sorted(inferred.items()):
        right, value = row.mean("task_accuracy"), _percent(row)
        if right is not None and value is not None:
            yield (
                f"`{name}` gives {value:.1f} %: the most certain path is that of the right task for "
                f"{100 * right:.1f} % of the images, where guessing is right for {share:.1f} %. An image takes "
                f"all {tasks} paths."
            )
    bound = _percent(rows.get(BOUND))
    best = max(
        ((value, name) for name, row in rows.items() if row.reference is None and (value := _percent(row)) is not None),
        default=None,
    )
    if bound is not None and best is not None:
        told = f"is {bound - best[0]:.1f} points below `{BOUND}`, which has all images at once"
        yield f"The best learner, `{best[1]}`, {told}."


def rendered(folder: Path = EVIDENCE) -> str:
    """The page as the published records have it."""
    return template("scenarios.md.jinja").render(
        boards=boards(folder),
        table=table_of,
        findings=findings,
        definitions=[(heading(name), known_metric(name).summary) for name in COLUMNS[:4]],
        commands=[f"seu-bench sweep {FOLDER}/{file}.toml" for file in SWEEPS],
        pending=pending(SWEEPS, folder),
        folder=FOLDER,
    )


def _percent(row: Row | None) -> float | None:
    value = None if row is None else row.mean("acc")
    return None if value is None else 100 * value
