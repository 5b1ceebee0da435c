"""One of everything that a plugin can register. This module imports no torch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from seu_bench import LazyFactory, hookimpl
from seu_bench.config import BackboneOptions, BenchmarkFile, Options
from seu_bench.plugin import LazyCommand
from seu_bench.results import Metric
from seu_bench_kit import CreatorFactory, SearcherFactory

if TYPE_CHECKING:
    from seu_bench.config import BenchmarkSource
    from seu_bench.data import DatasetSource
    from seu_bench.plugin import CommandFactory, Register
    from seu_bench.results import Record
    from seu_bench.training import StageProgress, StrategyFactory


class HeadsOnlyOptions(BackboneOptions):
    """The schedule's options (epochs, batch_size, ...), the backbone's, and one of our own."""

    freeze_after: int = Field(1, ge=1, description="tasks that train the whole network")


class NoOptions(Options):
    """No options."""


def params_per_task(record: Record) -> float | None:
    """Compute the parameters stored, divided by the number of tasks."""
    return record.params_total[-1] / len(record.task_names) if record.params_total else None


PARAMS_PER_TASK = Metric(
    params_per_task,
    "parameters stored after the last task, per task",
    unit="count",
    higher_is_better=False,
    column="parameters per task (M)",
)


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Register ``heads_only``."""
    register(
        "heads_only",
        LazyFactory(
            "the backbone is frozen after the first tasks; later ones train a head",
            options=HeadsOnlyOptions,
            build="my_seu_plugin.learning:build_heads_only",
            check_options={
                "backbone": "mlp"
            },  # frozen after so few images, the default one is of no use to later heads
        ),
    )


@hookimpl
def register_searchers(register: Register[SearcherFactory]) -> None:
    """Register ``my_random``."""
    register(
        "my_random",
        SearcherFactory(
            "a random genotype; trains nothing", options=NoOptions, build="my_seu_plugin.learning:RandomSearch"
        ),
    )


@hookimpl
def register_creators(register: Register[CreatorFactory]) -> None:
    """Register ``newest``."""
    register(
        "newest",
        CreatorFactory(
            "takes the new unit in every layer; reuses nothing",
            options=NoOptions,
            build="my_seu_plugin.learning:NewestCreation",
        ),
    )


@hookimpl
def register_datasets(register: Register[DatasetSource]) -> None:
    """Register ``stripes``."""
    from my_seu_plugin.stripes import Stripes

    register("stripes", Stripes())


@hookimpl
def register_benchmarks(register: Register[BenchmarkSource]) -> None:
    """Register ``split_stripes``."""
    register("split_stripes", BenchmarkFile(Path(__file__).with_name("split_stripes.toml")))


@hookimpl
def register_metrics(register: Register[Metric]) -> None:
    """Register ``params_per_task``."""
    register("params_per_task", PARAMS_PER_TASK)


@hookimpl
def register_commands(register: Register[CommandFactory]) -> None:
    """Register ``seu-bench best``."""
    register("best", LazyCommand("my_seu_plugin.commands:best", "print the best accuracy of all records"))


@hookimpl
def task_learned(record: Record, task: int) -> None:
    """Print the accuracies after each task."""
    row = record.accuracy_matrix[task][: task + 1]
    print(f"after {record.task_names[task]}: {row}", file=sys.stderr)


@hookimpl
def stage_progress(progress: StageProgress) -> None:
    """Do nothing; called often, so be quick."""
