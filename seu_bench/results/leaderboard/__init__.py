"""Leaderboards: records to tables; they can be thrown away and made again at any time.

A leaderboard holds the records of one benchmark, one version of it, one protocol and one data fingerprint, and never
mixes these. A row is a configuration: a strategy with its searcher, creator and options, over all seeds it was run on.

==================  =================================================================
:mod:`.grouping`    which record belongs where, and what is left out
:mod:`.spread`      mean, deviation, interval, and whether a difference is more
:mod:`.boards`      a leaderboard: rows, marks, and what it looks like
:mod:`.views`       the part of one that keeps to a budget or is not dominated
:mod:`.building`    from a results folder to leaderboards and their files
:mod:`.frames`      records as a table of pandas
==================  =================================================================
"""

from __future__ import annotations

from seu_bench.results.leaderboard.boards import COLUMNS, Leaderboard
from seu_bench.results.leaderboard.building import build_leaderboards, left_out, make_leaderboards, write_leaderboards
from seu_bench.results.leaderboard.frames import load_records

__all__ = [
    "COLUMNS",
    "Leaderboard",
    "build_leaderboards",
    "left_out",
    "load_records",
    "make_leaderboards",
    "write_leaderboards",
]
