"""Real records for the tests of the report: those of an earlier version on ``split_digits``, and changes of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from seu_bench.results.record import Record, write_record
from seu_bench.results.record_files import find_record
from seu_bench.results.report.charts import Configuration, style

RECORDS = Path(__file__).resolve().parent / "sample_records"
#: The paper's strategies, and the upper reference.
STRATEGIES = ("ewc", "joint", "ltg", "naive", "pnn", "seu")
SEEDS = (0, 1, 2)
#: Markup, an attribute's end, what a formula, a terminal and a template would make something of.
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)> $\\frac{1}{ {{7*7}} \x1b[31m"


@cache
def published(strategy: str, seed: int) -> Record:
    """A record of ``split_digits``, protocol ``quick``."""
    return find_record(RECORDS, f"split_digits-quick-{strategy}-seed{seed}-")


def runs(strategy: str, seeds: Sequence[int] = SEEDS) -> tuple[Record, ...]:
    """Those of several seeds."""
    return tuple(published(strategy, seed) for seed in seeds)


def put(results: Path, record: Record, **fields: Any) -> Record:
    """Write a record with some fields changed."""
    changed = Record.model_validate(record.model_dump() | fields)
    write_record(results, changed)
    return changed


def put_all(results: Path, strategies: Sequence[str] = STRATEGIES, seeds: Sequence[int] = SEEDS) -> Path:
    """Write the published records of these strategies; the results folder."""
    for strategy in strategies:
        for record in runs(strategy, seeds):
            write_record(results, record)
    return results


def configuration(*records: Record, label: str = "label") -> Configuration:
    """The only configuration of a figure."""
    return Configuration(label, records, style(0))
