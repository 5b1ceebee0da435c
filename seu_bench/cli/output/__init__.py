"""What commands say, and how much of it.

- ``verbosity``: ``--quiet`` and ``--verbose``, before or after the name of a command
- ``run_summary``: a run in a dozen lines, and what it was resolved to
- ``entry``: one name that is installed, with its options
"""
