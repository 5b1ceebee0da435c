"""Plugins: how they are found, what they register, and the interfaces of executors, loggers and commands.

``registry`` has every name; ``methods`` are those of packages, files and classes. The hooks are in
:mod:`seu_bench.hookspecs`; strategies, searchers and creators have their interfaces in :mod:`seu_bench.training`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .executors import Ended, Event, Executor, ExecutorFactory, Job, Noticed, Started
    from .loggers import LoggedRun, LoggedValues, LoggerFactory, RunLogger
    from .registration import CommandFactory, LazyCommand, Register, Unavailable, offer
    from .registry import Entry, Kind, Registry, load_plugins

__all__ = [
    "CommandFactory", "Ended", "Entry", "Event", "Executor", "ExecutorFactory", "Job", "Kind", "LazyCommand",
    "LoggedRun", "LoggedValues", "LoggerFactory", "Noticed", "Register", "Registry", "RunLogger", "Started",
    "Unavailable", "load_plugins", "offer",
]  # fmt: skip

__getattr__, __dir__ = attach(__name__)
