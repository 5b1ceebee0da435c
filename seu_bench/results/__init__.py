"""Results: records of runs, and all that is made of them. Nothing here knows models, data or strategies.

=======================  ===============================================================
:mod:`.record`           the record: its fields and version; reading and writing one
:mod:`.record_parts`     types of its values, and values that belong together
:mod:`.record_files`     the records of a results folder; a run found by its name
:mod:`.metric`           a metric: definition, unit, direction, column
:mod:`.record_metrics`   core's metrics in one table; their values for a record
:mod:`.scenarios`        scenarios in words
:mod:`.reference`        metrics relative to a run that was trained jointly
:mod:`.reference_rows`   rows that leaderboards show and never rank
:mod:`.comparison`       two runs task by task
:mod:`.over_seeds`       configurations compared over their seeds
:mod:`.over_benchmarks`  configurations compared over several benchmarks
:mod:`.statistics`       over seeds and over benchmarks; what is called significant
:mod:`.labels`           configurations and reasons in words
:mod:`.leaderboard`      leaderboards
:mod:`.report`           figures and one HTML page
=======================  ===============================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .comparison import Comparison, compare
    from .frame import load_records
    from .leaderboard.boards import Leaderboard
    from .leaderboard.building import LeaderboardBuild, make_leaderboards, read_leaderboards
    from .leaderboard.latex import to_latex
    from .leaderboard.tables import Leaderboards
    from .metric import Metric
    from .over_benchmarks import BenchmarkComparison, compare_over_benchmarks
    from .over_seeds import SeedComparison, compare_over_seeds
    from .record import Record, StageRecord, read_record
    from .record_files import find_record, pack_records, read_records, unpack_records
    from .record_metrics import METRICS, compute_metrics, without_times
    from .reference_rows import REFERENCE_ROWS, reference_of
    from .report.drawing import Layout
    from .report.writing import write_report
    from .statistics.differences import PairedDifference, Verdict, compare_paired, holm
    from .statistics.power import detectable_effect
    from .statistics.ranks import AverageRank, RankComparison, compare_ranks
    from .statistics.samples import SampleSummary, summarize

__all__ = [
    "METRICS",
    "REFERENCE_ROWS",
    "AverageRank",
    "BenchmarkComparison",
    "Comparison",
    "Layout",
    "Leaderboard",
    "LeaderboardBuild",
    "Leaderboards",
    "Metric",
    "PairedDifference",
    "RankComparison",
    "Record",
    "SampleSummary",
    "SeedComparison",
    "StageRecord",
    "Verdict",
    "compare",
    "compare_over_benchmarks",
    "compare_over_seeds",
    "compare_paired",
    "compare_ranks",
    "compute_metrics",
    "detectable_effect",
    "find_record",
    "holm",
    "load_records",
    "make_leaderboards",
    "pack_records",
    "read_leaderboards",
    "read_record",
    "read_records",
    "reference_of",
    "summarize",
    "to_latex",
    "unpack_records",
    "without_times",
    "write_report",
]

__getattr__, __dir__ = attach(__name__)
