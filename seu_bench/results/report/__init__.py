"""The report: one HTML page that needs no network, and its figures, made from records alone.

- ``writing``: :func:`write_report`, from records to files
- ``page``: the page by its templates, with summary, charts, and tables and figures to save
- ``sections``: which records are read, and which pictures are made of them
- ``paper``: the SEU paper's own numbers, beside ours
- ``draw_comparing``, ``draw_confusion``, ``draw_size``: the figures of all configurations of a group
- ``draw_learning``, ``draw_single``: those of one configuration each
- ``draw_ranks``: the critical-difference diagram, over several benchmarks
- ``references``: lines across and hollow markers for what competes with nobody
- ``summary``: configurations, and means and deviations over their seeds
- ``figures``: :func:`write_figures`, figures chosen by name, without a page
- ``rendering``: a figure as SVG, PDF and PNG, in one value
- ``basis``: what figures rest on, for their captions
- ``canvas``: colours, styles, panels and legends
- ``layout``: width and font of figures, for a page or a paper; the set-up of matplotlib
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .figures import FigureFiles, write_figures
    from .layout import Layout
    from .rendering import RenderedFigure
    from .sections import Limits
    from .writing import ReportFiles, write_report

__all__ = ["FigureFiles", "Layout", "Limits", "RenderedFigure", "ReportFiles", "write_figures", "write_report"]

__getattr__, __dir__ = attach(__name__)
