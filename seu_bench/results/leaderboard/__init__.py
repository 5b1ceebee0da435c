"""Leaderboards: records to tables; they can be thrown away and made again at any time.

A leaderboard holds the records of one benchmark, one version of it, one scenario, one protocol and one data
fingerprint, and never mixes these. A row is a configuration: a strategy with its searcher, creator and options, over
all seeds it was run on.

==================  =================================================================
:mod:`.boards`      a leaderboard: its rows, and the standing of each one
:mod:`.ordering`    the order of rows and their ranks by accuracy; the front against memory
:mod:`.markdown`    cells with units and marks; the Markdown page
:mod:`.latex`       the table of LaTeX
:mod:`.tuned_rows`  the mark of tuned rows, and what the tuning cost
:mod:`.views`       the part of one that keeps to a budget or is not dominated, or another order
:mod:`.unranked`    leaderboards of runs that are never ranked
:mod:`.building`    from a results folder to leaderboards, their files, and a table of pandas
:mod:`.tables`      for notebooks: tables in HTML and of pandas
==================  =================================================================
"""
