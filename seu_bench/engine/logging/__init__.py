"""Loggers of a run: values sent while it learns, or later from its record.

- ``loggers``: those that a request names, called by the run's hooks
- ``logger_process``: a process for a logger that talks to another machine, so that no run waits for it
- ``logged_values``: names and numbers that every logger is given
- ``log_record``: a finished record, sent afterwards
"""
