"""The report: one HTML page that needs no network, and figures as files where asked for, made from records alone.

- ``page``: :func:`~.page.write_report`: records are read, configurations chosen, files and the page written
- ``charts``: what each figure shows, as values, words and a table
- ``drawing``, ``plotting``: a chart by matplotlib, as PDF, SVG and PNG, and by plotly
"""
