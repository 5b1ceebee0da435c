"""The page of published numbers of each method, beside ours of the nearest setting that has records."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from scripts.evidence.beside_paper import printed
from scripts.evidence.formatting import template
from scripts.evidence.runs import EVIDENCE, ROOT, records, short_name
from seu_bench.metrics import avg_acc_curve
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import complete_matrix, known_metric
from seu_bench.results.statistics import SampleSummary, summarize

PAGE: Final = ROOT / "docs" / "evidence" / "published_numbers.md"
SOURCE: Final[Mapping[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
#: Mean over all steps but the first; the other metrics of the file are metrics of records.
LATER: Final = "later_acc"
_read: Final = cache(records)


class Line(NamedTuple):
    """A published number, in percent, its setting in the file, and our runs by seed."""

    setting: Mapping[str, Any]
    strategy: str
    metric: str
    theirs: float
    runs: tuple[Record, ...]

    @property
    def ours(self) -> SampleSummary | None:
        """Ours in percent; ``None`` without runs, or where one was not measured."""
        curves = [avg_acc_curve(complete_matrix(run))[1:] for run in self.runs] if self.metric == LATER else []
        values = [getattr(summarize(curve), "mean", None) for curve in curves] or [
            known_metric(self.metric)(run) for run in self.runs
        ]
        return summarize([None if value is None else 100 * value for value in values])

    @property
    def difference(self) -> float | None:
        """Ours less theirs, in points."""
        return None if self.ours is None else self.ours.mean - self.theirs


def nearest(ours: Mapping[str, Any], strategy: str, folder: Path) -> tuple[Record, ...]:
    """Our runs by seed; none where the set has none.

    Args:
        ours: ``set``, ``benchmark``, ``protocol`` (empty: called as the strategy); to tell configurations apart,
            ``options`` (empty: not given; of those that the strategy has) and all ``overrides`` of the benchmark.

    Raises:
        ValueError: two runs of a seed: nothing is averaged over configurations.
    """
    found: dict[int, Record] = {}
    for run in _read(folder / ours["set"]):
        is_nearest = (
            (run.benchmark, run.protocol) == (ours["benchmark"], ours["protocol"] or strategy)
            and short_name(run) == strategy
            and run.benchmark_overrides == ours.get("overrides", run.benchmark_overrides)
            and all((run.options.get(key, its) or "") == its for key, its in ours.get("options", {}).items())
        )
        if is_nearest and found.setdefault(run.seed, run) is not run:
            raise ValueError(f"{ours['set']}, {ours['benchmark']}: more than one run of a seed of {strategy!r}")
    return tuple(found[seed] for seed in sorted(found))


def read_lines(folder: Path = EVIDENCE) -> list[Line]:
    """Each number with our runs, in the order of the file."""
    lines = []
    for each in SOURCE["settings"]:
        paper = {"acc": {name: its["acc"] for name, its in printed(each.get("paper", "")).items()}}
        for metric, numbers in each.get("published", paper).items():
            for name, theirs in numbers.items():
                lines.append(Line(each, name, metric, theirs, nearest(each["ours"], name, folder)))
    return lines


def rendered(folder: Path = EVIDENCE) -> str:
    """The page as the published records have it."""
    return template("published.md.jinja").render(source=SOURCE, lines=read_lines(folder))
