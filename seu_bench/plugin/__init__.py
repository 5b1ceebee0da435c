"""Plugins: how they are found, what they register, and the interfaces of executors, loggers and commands.

- ``manager``: entry points, loaded into a pluggy manager
- ``entries``: names of one kind with the plugin and the package of each
- ``registry``: everything that installed plugins offer
- ``code``: whose code a registered name stands for, and a digest of its source
- ``subjects``: what a name given to ``check-plugin`` stands for
- ``registration``: what a registering hook is called with; factories and commands that are imported when they are used
- ``executors``: what runs the jobs of a sweep
- ``loggers``: what writes a run down for another program

The hooks themselves are in :mod:`seu_bench.hookspecs`; strategies, searchers and creators have their interfaces in
:mod:`seu_bench.training`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .executors import Ended, Event, Executor, ExecutorFactory, Job, Noticed, Started
    from .loggers import LoggedRun, LoggedValues, LoggerFactory, RunLogger
    from .manager import Entry, Kind, load_plugins
    from .registration import CommandFactory, LazyCommand, Register, Unavailable, offered
    from .registry import Registry

__all__ = [
    "CommandFactory",
    "Ended",
    "Entry",
    "Event",
    "Executor",
    "ExecutorFactory",
    "Job",
    "Kind",
    "LazyCommand",
    "LoggedRun",
    "LoggedValues",
    "LoggerFactory",
    "Noticed",
    "Register",
    "Registry",
    "RunLogger",
    "Started",
    "Unavailable",
    "load_plugins",
    "offered",
]

__getattr__, __dir__ = attach(__name__)
