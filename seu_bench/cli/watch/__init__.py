"""``seu-bench watch``: the runs of a results folder while they are made, in the terminal and as a page. It only reads.

==================  =================================================================
:mod:`.command`     the command: options, and how often it looks
:mod:`.states`      states of all runs, of which only what changed is read again
:mod:`.view`        what is shown of them, in values
:mod:`.resuming`    the command that resumes a run
:mod:`.frame`       the view for the terminal, as high and wide as that is
:mod:`.page`        the view as an HTML page that loads itself again
:mod:`.terminal`    the screen and the keys
==================  =================================================================
"""
