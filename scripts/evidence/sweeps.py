"""The sweeps that make the sets, and which of their runs have no published record."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from scripts.evidence.evidence import COMPONENTS, PARAMETERS, Evidence
from scripts.evidence.runs import ROOT, SEU, named
from seu_bench.sweeps.spec import SweepSpec, make_spec

FOLDER: Final = "scripts/evidence/sweeps"
#: What each file makes: the set, and in words.
FILES: Final = {
    "quick_1_paper": ("quick", "the paper's strategies, `linear` and `independent`, by `quick`"),
    "quick_2_control": ("quick", "SEU's control, by `quick`"),
    "quick_3_avalanche": ("quick", "Avalanche's strategies, by `quick`"),
    "quick_4_parameters": (PARAMETERS, "strategies with as many parameters as SEU"),
    "quick_5_searchers": (COMPONENTS, "searchers"),
    "quick_6_creators": (COMPONENTS, "creators"),
    "quick_7_darts": (COMPONENTS, "the searcher `darts`"),
    "quick_8_relatives": ("quick", "strategies that mask, route or grow, by `quick`"),
    "quick_9_rcl": ("quick", "`rcl`, which tries networks for each task, by `quick`"),
    "half_day_1_paper": ("half_day", "the paper's strategies, `linear` and `independent`, by `half_day`"),
    "half_day_2_control": ("half_day", "SEU's control, by `half_day`"),
    "half_day_3_avalanche": ("half_day", "Avalanche's strategies, by `half_day`"),
    "half_day_4_frugal": ("half_day", "SEU with the creator `frugal`, by `half_day`"),
}


def pending(evidence: Evidence) -> list[tuple[str, int, int, str]]:
    """List the sweeps with runs that have no record: what they make, how many of their runs are there, of how many; and
    the command."""
    found = []
    for file, (name, title) in FILES.items():
        there = {
            (group.benchmark, row, seed)
            for group in evidence.sets[name]
            for row, runs in group.rows.items()
            for seed in runs.runs
        }
        wanted = set(runs_of(sweep(file)))
        if wanted - there:
            found.append((title, len(wanted & there), len(wanted), f"seu-bench sweep {FOLDER}/{file}.toml"))
    return found


def sweep(file: str) -> SweepSpec:
    """Read a sweep's file."""
    return make_spec({}, ROOT / FOLDER / f"{file}.toml")


def runs_of(spec: SweepSpec) -> Iterator[tuple[str, str, int]]:
    """Benchmark, short name of the row and seed of each run of a sweep."""
    for strategy, benchmark, seed in itertools.product(spec.strategy, spec.benchmark, spec.seeds):
        pairs = itertools.product(spec.searcher or ("mdl",), spec.creator or ("mdl",)) if strategy == SEU else [()]
        for pair in pairs:
            yield benchmark, named(strategy, *pair), seed
