"""Plugins: how they are found, what they register, and the interfaces of executors, loggers and commands.

- ``manager``: plugins found by entry points and files, and the names that they register
- ``methods``: methods of packages, files and classes
- ``registry``: everything that installed plugins offer
- ``code``: the code behind a registered name
- ``paths``: classes of Avalanche by their import path
- ``registration``: what a registering hook is called with, and factories that are imported when they are used
- ``executors``, ``loggers``: the interfaces of both

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
