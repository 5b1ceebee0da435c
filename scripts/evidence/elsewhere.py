"""The quick part made twice, on machines with different processors: what comes of rounding alone."""

from __future__ import annotations

from collections.abc import Iterator

import pandas

from scripts.evidence.beside_paper import groups
from scripts.evidence.formatting import counted, difference, mean, table
from scripts.evidence.runs import STRATEGIES, chosen

HEADINGS = (
    "benchmark",
    "strategy",
    "seeds",
    "equal runs",
    "accuracy",
    "elsewhere",
    "mixed score",
    "elsewhere",
    "difference in mixed score",
)


def beside_each_other(here: pandas.DataFrame, there: pandas.DataFrame) -> str:
    """One row per benchmark and strategy; ``equal runs`` are those with the same accuracy matrix, to the last bit."""
    rows = []
    for one, other in _twice(here, there):
        run = one.iloc[0]
        texts = (f"`{run['benchmark']}`", f"`{run['strategy']}`", str(len(other)))
        values = [mean(runs[metric], metric) for metric in ("acc", "mixed_score") for runs in (one, other)]
        equal = f"{equal_runs(one, other)} of {len(other)}"
        rows.append((*texts, equal, *values, difference(other, one, "mixed_score")))
    return table(HEADINGS, rows, texts=2)


def significant(here: pandas.DataFrame, there: pandas.DataFrame) -> str:
    """The same strategies, there against here: in how many the seeds show a difference, though there is none."""
    return counted([(other, one) for one, other in _twice(here, there)], "mixed_score")


def equal_runs(one: pandas.DataFrame, other: pandas.DataFrame) -> int:
    """In how many runs of ``other`` every entry of the accuracy matrix is that of the run of ``one`` with its seed."""
    matrices = dict(zip(one["seed"], one["accuracy_matrix"], strict=True))
    return sum(
        matrices.get(seed) == matrix for seed, matrix in zip(other["seed"], other["accuracy_matrix"], strict=True)
    )


def seu_against_others(runs: pandas.DataFrame) -> str:
    """SEU's mixed score against that of every other strategy on every benchmark, counted by significance."""
    return counted(_pairs(runs), "mixed_score")


def _twice(here: pandas.DataFrame, there: pandas.DataFrame) -> Iterator[tuple[pandas.DataFrame, pandas.DataFrame]]:
    """One strategy on one benchmark, made on both machines."""
    for benchmark, protocol in groups(there):
        for strategy in STRATEGIES:
            one, other = (
                chosen(runs, benchmark=benchmark, protocol=protocol, strategy=strategy) for runs in (here, there)
            )
            if len(one) and len(other):
                yield one, other


def _pairs(runs: pandas.DataFrame) -> Iterator[tuple[pandas.DataFrame, pandas.DataFrame]]:
    for benchmark, protocol in groups(runs):
        ours = chosen(runs, benchmark=benchmark, protocol=protocol, strategy="seu")
        for strategy in STRATEGIES:
            other = chosen(runs, benchmark=benchmark, protocol=protocol, strategy=strategy)
            if strategy != "seu" and len(other):
                yield ours, other
