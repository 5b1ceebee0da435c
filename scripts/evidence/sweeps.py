"""The sweeps that make the sets, and which of their runs have no published record."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from scripts.evidence.evidence import COMPONENTS
from scripts.evidence.runs import EVIDENCE, ROOT, records
from seu_bench.plugin.registry import Registry
from seu_bench.sweeps.plan import expand_requests, resolve_all
from seu_bench.sweeps.spec import SweepSpec, make_spec

FOLDER: Final = "scripts/evidence/sweeps"
#: What each file makes: the set, and in words.
FILES: Final = {
    "quick_1_paper": ("quick", "the paper's strategies, `linear` and `independent`, by `quick`"),
    "quick_2_control": ("quick", "SEU's control, by `quick`"),
    "quick_3_avalanche": ("quick", "Avalanche's strategies, by `quick`"),
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


def pending(files: Iterable[str], folder: Path = EVIDENCE) -> list[tuple[str, int, int]]:
    """List the sweeps with runs that have no published record: the file, how many runs have one, and of how many.

    Those of benchmark files are left out: their data need not be at hand.
    """
    found = []
    for file in files:
        wanted = planned_ids(file)
        there = {record.run_id for record in records(folder / Path(sweep(file).results).name)} if wanted else set()
        if wanted - there:
            found.append((file, len(wanted & there), len(wanted)))
    return found


@cache
def planned_ids(file: str) -> frozenset[str]:
    """Run ids of all runs of a sweep; none of a sweep of benchmark files."""
    spec, registry = sweep(file), Registry()
    if any("/" in benchmark for benchmark in spec.benchmark):
        return frozenset()
    configurations = resolve_all(registry, spec, expand_requests(registry, spec, []))
    return frozenset(each.at(seed).spec.run_id for each in configurations for seed in spec.seeds)


def sweep(file: str) -> SweepSpec:
    """Read a sweep's file."""
    return make_spec({}, ROOT / FOLDER / f"{file}.toml")
