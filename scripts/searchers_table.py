"""The table of searchers and creators, made from records.

    python scripts/searchers_table.py results/published/searchers > results/published/searchers.md

A difference between two rows *exceeds the spread over seeds* where the worse row's best seed is below the better row's
worst seed: the two ranges do not overlap. With three seeds that happens to two equal rows once in ten times.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path

import pandas

import seu_bench

SEARCHERS = ("random", "mdl", "darts", "blockwise", "zero_cost")
CREATORS = ("mdl", "all_new", "reuse_first", "frugal")
#: What everything else is compared with: the control, and the paper's.
CONTROL, PAPERS = "random", "mdl"
#: Columns of a table: the record's column, the heading, a factor, decimals; all over the seeds.
COLUMNS = (
    ("acc", "acc %", 100.0, 1),
    ("params_total", "parameters", 1.0, 0),
    ("mixed_score", "mixed score", 1.0, 4),
    ("search_seconds", "search s", 1.0, 0),
    ("image_passes", "image passes", 1.0, 0),
)

INTRODUCTION = """\
Made by `scripts/searchers_table.py` from the records beside it; [README.md](README.md) says how they were made. Mean
over the seeds and, in brackets, lowest to highest. `-`: not measured. A difference *exceeds the spread over seeds*
where the ranges of two rows do not overlap; with three seeds that happens to equal rows once in ten times."""


def table(runs: pandas.DataFrame) -> Iterator[str]:
    """One row per searcher and creator; mean and, in brackets, lowest to highest of the seeds."""
    headings = ["searcher", "creator", "seeds", *(heading for _, heading, _, _ in COLUMNS)]
    yield "| " + " | ".join(headings) + " |"
    yield "| --- | --- |" + " ---: |" * (len(headings) - 2)
    for searcher, creator in itertools.product(SEARCHERS, CREATORS):
        found = chosen(runs, searcher, creator)
        cells = [_cell(found[column] * factor, decimals) for column, _, factor, decimals in COLUMNS]
        seeds = ", ".join(str(seed) for seed in sorted(found["seed"])) or "not measured"
        yield "| " + " | ".join([searcher, creator, seeds, *cells]) + " |"


def comparisons(runs: pandas.DataFrame, column: str) -> Iterator[str]:
    """List the differences that exceed the spread: searchers against the control, creators against the paper's."""
    sides = [
        ("searcher", [(CONTROL, creator, searcher, creator) for searcher in SEARCHERS for creator in CREATORS]),
        ("creator", [(searcher, PAPERS, searcher, creator) for creator in CREATORS for searcher in SEARCHERS]),
    ]
    for kind, pairs in sides:
        compared, lines = 0, []
        for *one, searcher, creator in pairs:
            two = chosen(runs, one[0], one[1]), chosen(runs, searcher, creator)
            if [searcher, creator] == one or len(two[0]) < 2 or set(two[0]["seed"]) != set(two[1]["seed"]):
                continue
            base, other = (found[column] for found in two)
            compared += 1
            name, against = (searcher, one[0]) if kind == "searcher" else (creator, one[1])
            place = f"creator `{creator}`" if kind == "searcher" else f"searcher `{searcher}`"
            if other.min() > base.max():
                lines.append(f"`{name}` is above `{against}` with {place}")
            elif other.max() < base.min():
                lines.append(f"`{name}` is below `{against}` with {place}")
        against = CONTROL if kind == "searcher" else PAPERS
        counts = f"{len(lines)} of {compared} differences exceed the spread" if compared else "not measured"
        yield f"{kind.capitalize()}s against `{against}`: {counts}."
        yield ""
        yield from (f"- {line}" for line in lines)
        if lines:
            yield ""


def chosen(runs: pandas.DataFrame, searcher: str, creator: str) -> pandas.DataFrame:
    """The runs of a searcher and a creator."""
    return runs[(runs["searcher"] == searcher) & (runs["creator"] == creator)]


def _cell(values: pandas.Series[float], decimals: int) -> str:
    if not len(values):
        return "-"
    mean, least, most = (f"{value:,.{decimals}f}" for value in (values.mean(), values.min(), values.max()))
    return f"{mean} ({least} to {most})"


def document(folder: Path) -> Iterator[str]:
    """The whole page."""
    records = seu_bench.load_records(folder)
    finished = records[records["status"] == "finished"]
    yield "# Searchers and creators"
    yield ""
    yield from INTRODUCTION.splitlines()
    for benchmark, runs in finished.groupby("benchmark"):
        yield ""
        yield f"## {benchmark}, protocol {', '.join(sorted(set(runs['protocol'])))}"
        yield ""
        yield from table(runs)
        for column, name in (("mixed_score", "Mixed score"), ("acc", "Accuracy")):
            yield ""
            yield f"### {name}"
            yield ""
            lines = list(comparisons(runs, column))
            yield from lines[:-1] if lines and not lines[-1] else lines


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    print("\n".join(document(parser.parse_args().folder)))


if __name__ == "__main__":
    main()
