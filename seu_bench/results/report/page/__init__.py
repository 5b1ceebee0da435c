"""The page of a report: one HTML file with everything that it shows, does and saves.

======================  =====================================================================
:mod:`.rendered`        the page, by the templates; what it may load
:mod:`.overview`        its summary: the best of each benchmark, and all configurations
:mod:`.charts`          values of the figures, for charts that answer to the pointer
:mod:`.plotly_library`  the library that draws these, packed
:mod:`.downloads`       tables and figures as links that save them
======================  =====================================================================

``templates/`` has a template for each part, the style, and two scripts: of tables and of charts.
"""
