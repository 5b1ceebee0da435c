"""Results: records of runs, and all that is made of them. Nothing here knows models, data or strategies.

=======================  ===============================================================
:mod:`.record`           the record: its fields and version; reading and writing one
:mod:`.record_files`     the records of a results folder; a run found by its name
:mod:`.metric`           a metric: definition, unit, direction, column
:mod:`.record_metrics`   core's metrics in one table; their values for a record
:mod:`.names`            display names and citations of what records name
:mod:`.labels`           configurations, scenarios and reasons in words
:mod:`.reference_rows`   rows that leaderboards show and never rank
:mod:`.statistics`       over seeds and over benchmarks; what is called significant
:mod:`.leaderboard`      a leaderboard: rows, ranks, front, views
:mod:`.formats`          Markdown, LaTeX, BibTeX and CSV
:mod:`.building`         from a results folder to leaderboards and a table of pandas
:mod:`.comparison`       runs task by task; configurations over seeds and benchmarks
:mod:`.report`           figures and one HTML page
=======================  ===============================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .building import load_records, make_leaderboards, read_leaderboards
    from .comparison import compare, compare_over_benchmarks, compare_over_seeds
    from .formats import to_bibtex, to_latex
    from .leaderboard import Leaderboard
    from .metric import Metric
    from .record import Record, StageRecord, read_record
    from .record_files import find_record, read_records
    from .record_metrics import METRICS
    from .reference_rows import REFERENCE_ROWS
    from .report.drawing import Layout
    from .report.page import write_report
    from .statistics import compare_paired, compare_ranks, summarize

__all__ = [
    "METRICS",
    "REFERENCE_ROWS",
    "Layout",
    "Leaderboard",
    "Metric",
    "Record",
    "StageRecord",
    "compare",
    "compare_over_benchmarks",
    "compare_over_seeds",
    "compare_paired",
    "compare_ranks",
    "find_record",
    "load_records",
    "make_leaderboards",
    "read_leaderboards",
    "read_record",
    "read_records",
    "summarize",
    "to_bibtex",
    "to_latex",
    "write_report",
]

__getattr__, __dir__ = attach(__name__)
