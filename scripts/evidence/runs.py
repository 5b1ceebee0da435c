"""Published runs, chosen by what they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas

import seu_bench

ROOT = Path(__file__).resolve().parent.parent.parent
PUBLISHED = ROOT / "results" / "published"
EVIDENCE = PUBLISHED / "evidence"
#: The paper's strategies, in the order of its tables.
STRATEGIES = ("naive", "ewc", "ltg", "pnn", "seu")


def finished(folder: Path) -> pandas.DataFrame:
    """Finished runs of a results folder; none where there is no such folder yet."""
    if not folder.is_dir():
        return pandas.DataFrame()
    records = seu_bench.load_records(folder)
    return records[records["status"] == "finished"]


def chosen(runs: pandas.DataFrame, **wanted: Any) -> pandas.DataFrame:
    """Select runs whose columns hold the given values; dots of a column's name are written as two underscores. ``None``
    stands for an option that was left to the protocol, and for a column that no run has."""
    for name, value in wanted.items():
        column = name.replace("__", ".")
        if column not in runs:
            if value is None:
                continue
            return runs.iloc[:0]
        runs = runs[runs[column].isna() if value is None else runs[column] == value]
    return runs


def by_seed(runs: pandas.DataFrame, metric: str) -> Mapping[int, float]:
    """A metric of one configuration by seed.

    Raises:
        ValueError: two runs have one seed, so that they are of more than one configuration.
    """
    if runs["seed"].duplicated().any():
        raise ValueError(f"more than one run of a seed: {', '.join(runs['run_id'])}")
    return {int(seed): float(value) for seed, value in zip(runs["seed"], runs[metric], strict=True)}


def reused_share(runs: pandas.DataFrame) -> pandas.Series[float]:
    """Of the places on the paths of all tasks but the first, the share that holds a unit of an earlier task."""
    return runs.apply(_reused, axis=1)


def _reused(run: pandas.Series[Any]) -> float:
    places = [
        run["unit_tasks"][layer][index] < task
        for task, path in enumerate(run["paths"])
        if task > 0
        for layer, index in enumerate(path)
    ]
    return float(sum(places) / len(places))
