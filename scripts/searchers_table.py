"""The table of searchers and creators, made from records.

    python scripts/searchers_table.py results/published/searchers > results/published/searchers.md

Which differences are significant is decided as everywhere (docs/reference/leaderboards.md#significance); the
comparisons of one metric, on one benchmark, of searchers or of creators, are a family.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas

import seu_bench
from seu_bench.results import PairedDifference, compare_paired, detectable_effect

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
over the seeds and, in brackets, lowest to highest. `-`: not measured. Differences are *significant* as everywhere:
paired t-test over the seeds, Holm's correction over the comparisons of one list
([statistics](../../docs/reference/leaderboards.md#significance)). What the seeds would find is the least difference,
in standard deviations of the pairs, that is significant in four of five experiments."""


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
    """List the significant differences: searchers against the control, creators against the paper's."""
    sides = [
        ("searcher", CONTROL, [((CONTROL, creator), (name, creator)) for name in SEARCHERS for creator in CREATORS]),
        ("creator", PAPERS, [((searcher, PAPERS), (searcher, name)) for name in CREATORS for searcher in SEARCHERS]),
    ]
    for kind, against, pairs in sides:
        both = [(base, other) for base, other in pairs if base != other]
        found = compare_paired([(by_seed(runs, *other, column), by_seed(runs, *base, column)) for base, other in both])
        tested = [(other, each) for (_, other), each in zip(both, found, strict=True) if each.corrected is not None]
        lines = [_sentence(kind, other, against, each) for other, each in tested if each.verdict == "significant"]
        yield f"{kind.capitalize()}s against `{against}`: {_counted(len(lines), [each for _, each in tested])}."
        yield ""
        yield from (f"- {line}" for line in lines)
        if lines:
            yield ""


def _counted(significant: int, tested: Sequence[PairedDifference]) -> str:
    if not tested:
        return "not measured"
    pairs = min(found.pairs for found in tested)
    effect = detectable_effect(pairs, len(tested))
    return f"{significant} of {len(tested)} differences significant; {pairs} seeds would find {effect:.1f} deviations"


def _sentence(kind: str, pair: tuple[str, str], against: str, found: PairedDifference) -> str:
    (name, place), beside = (pair, "creator") if kind == "searcher" else (pair[::-1], "searcher")
    direction = "above" if found.summary and found.summary.mean > 0 else "below"
    return f"`{name}` is {direction} `{against}` with {beside} `{place}` (p = {found.corrected:.3f})"


def by_seed(runs: pandas.DataFrame, searcher: str, creator: str, column: str) -> dict[int, float]:
    """A column of a searcher and a creator by seed."""
    found = chosen(runs, searcher, creator)
    return {int(seed): float(value) for seed, value in zip(found["seed"], found[column], strict=True)}


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
