"""The report: one HTML page that needs no network, and its figures, made from records alone.

- ``writing``: :func:`write_report`: records are read, configurations chosen, files written
- ``configurations``: means and deviations over the seeds of a configuration
- ``charts``: what each figure shows, as values, words and a table
- ``drawing``: a chart by matplotlib, as PDF, SVG and PNG
- ``page``, ``plotting``: the page, and a chart by plotly
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .drawing import Layout
    from .writing import Limits, ReportFiles, write_report

__all__ = ["Layout", "Limits", "ReportFiles", "write_report"]

__getattr__, __dir__ = attach(__name__)
