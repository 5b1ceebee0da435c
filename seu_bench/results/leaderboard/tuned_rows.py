"""Rows whose hyper-parameters were tuned, for a reader: the mark, what it means, and what the tuning cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from seu_bench.results.leaderboard.boards import Leaderboard, Row
from seu_bench.results.record_parts import TuningRecord
from seu_bench.utils.text import format_seconds

#: Behind the label of a tuned row.
TUNED: Final = " †"
#: Methods of tuning that use what no lifelong learner has, and what that is.
_UNFAIR: Final = {"whole-stream": "validation images of all tasks before the last one is learned"}
HEADINGS: Final = (
    "rank",
    "configuration",
    "method",
    "seeds",
    "runs",
    "passes (M)",
    "per run (M)",
    "TFLOP",
    "processor",
    "file",
)
MEANING: Final = (
    "What chose the hyper-parameters of the rows marked †, all trials together and shared among the runs of the row: "
    "image passes, measuring included; without it, floating-point operations and time of a processor; `-` where these "
    "were not measured."
)


def tuning_cells(rows: Iterable[Row]) -> list[list[str]]:
    """Text by :data:`HEADINGS` for each tuning of each row; not escaped."""
    return [_cells(row, tuning, runs) for row in rows for tuning, runs in row.tunings.items()]


def _cells(row: Row, tuning: TuningRecord, runs: int) -> list[str]:
    passes = [f"{value / 1e6:,.3f}" for value in (tuning.image_passes, tuning.image_passes / runs)]
    flops = "-" if tuning.flops is None else f"{tuning.flops / 1e12:,.3f}"
    seconds = "-" if tuning.cpu_seconds is None else format_seconds(tuning.cpu_seconds)
    seeds, file = ", ".join(map(str, tuning.seeds)), f"{tuning.id} {tuning.sha256[:10]}"
    return [
        str(row.rank or "-"),
        row.configuration,
        tuning.method,
        seeds,
        f"{tuning.runs:,}",
        *passes,
        flops,
        seconds,
        file,
    ]


def tuning_notes(board: Leaderboard) -> Iterator[str]:
    """What the mark of tuned rows means, and which of them used more than a learner has."""
    if any(row.tunings for row in board.rows):
        yield (
            f"{TUNED.strip()} hyper-parameters chosen by seu-bench tune on other seeds, without test images; what that "
            "took is in no other cost"
        )
    for method, what in _UNFAIR.items():
        rows = [row.configuration for row in board.rows if any(tuning.method == method for tuning in row.tunings)]
        if rows:
            yield f"tuned by {method}, which uses {what}: {', '.join(rows)}"
