"""Every extension point of seu-bench, on one screen.

A plugin is an installed package with an entry point in the group ``seu_bench`` whose target (a module or an object)
implements some of these hooks. ``register`` is called as ``register(name, factory)``; what a factory must offer is the
protocol named in each hook. Factories are light: they import torch when they build.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from collections.abc import Callable

    from seu_bench.config.benchmark import BenchmarkSource
    from seu_bench.data.dataset import DatasetSource
    from seu_bench.plugin.executors import ExecutorFactory
    from seu_bench.plugin.loggers import LoggerFactory
    from seu_bench.plugin.registration import CommandFactory, Register
    from seu_bench.results.metric import Metric, Value
    from seu_bench.results.record import Record
    from seu_bench.training.interfaces import (
        BackboneFactory,
        ComponentFactory,
        Cost,
        EncoderFactory,
        SpaceFactory,
        StrategyFactory,
    )
    from seu_bench.training.stage import StageProgress

#: The group of entry points that plugins are found by, and the name pluggy knows the project by.
GROUP = "seu_bench"

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)


@hookspec
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer strategies, which learn a stream (:class:`~seu_bench.training.interfaces.StrategyFactory`)."""


@hookspec
def register_backbones(register: Register[BackboneFactory]) -> None:
    """Offer networks for strategies that take any (:class:`~seu_bench.training.interfaces.BackboneFactory`)."""


@hookspec
def register_encoders(register: Register[EncoderFactory]) -> None:
    """Offer pretrained networks that make features (:class:`~seu_bench.training.interfaces.EncoderFactory`)."""


@hookspec
def register_searchers(register: Register[ComponentFactory]) -> None:
    """Offer extension-unit searchers (:class:`~seu_bench.training.interfaces.ComponentFactory`)."""


@hookspec
def register_creators(register: Register[ComponentFactory]) -> None:
    """Offer task-model creators (:class:`~seu_bench.training.interfaces.ComponentFactory`)."""


@hookspec
def register_spaces(register: Register[SpaceFactory]) -> None:
    """Offer search spaces of extension units (:class:`~seu_bench.training.interfaces.SpaceFactory`)."""


@hookspec
def register_benchmarks(register: Register[BenchmarkSource]) -> None:
    """Offer benchmarks: TOML files by name (:class:`~seu_bench.config.benchmark.BenchmarkSource`)."""


@hookspec
def register_datasets(register: Register[DatasetSource]) -> None:
    """Offer data sets that benchmarks can name (:class:`~seu_bench.data.dataset.DatasetSource`)."""


@hookspec
def register_metrics(register: Register[Metric | Callable[[Record], Value]]) -> None:
    """Offer metrics of a finished record: functions, or more (:class:`~seu_bench.results.metric.Metric`)."""


@hookspec
def register_executors(register: Register[ExecutorFactory]) -> None:
    """Offer executors, which run the jobs of sweeps (:class:`~seu_bench.plugin.executors.ExecutorFactory`)."""


@hookspec
def register_loggers(register: Register[LoggerFactory]) -> None:
    """Offer loggers, which write a run down for another program (:class:`~seu_bench.plugin.loggers.LoggerFactory`)."""


@hookspec
def register_commands(register: Register[CommandFactory]) -> None:
    """Offer commands, ``seu-bench NAME ...`` (:class:`~seu_bench.plugin.registration.CommandFactory`)."""


@hookspec
def run_started(record: Record, cost: Cost) -> None:
    """Called before a run trains, with its initial record and its estimated cost."""


@hookspec
def stage_progress(progress: StageProgress) -> None:
    """Called when a stage starts, after each epoch, and at most every half second in between."""


@hookspec
def task_learned(record: Record, task: int) -> None:
    """Called when task ``task`` (0-based) was learned and every task up to it evaluated."""


@hookspec
def run_finished(record: Record) -> None:
    """Called when a run ended; ``record.status`` says how."""


@hookspec
def run_notice(message: str) -> None:
    """Called with a message for the user, e.g. that the run is resumed from a checkpoint."""
