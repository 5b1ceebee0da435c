"""Validated values: what a run is asked for and what it resolves to. No torch.

=======================  ================================================================
:mod:`.options`          base of options; ``-o key=value`` read, layered and described
:mod:`.common_options`   options that strategies or searchers share
:mod:`.protocol`         schedules, sizes of networks and numbers of images
:mod:`.benchmark`        data sets, stream and protocols of a benchmark
:mod:`.streams`          of which images tasks are made, and in which order
:mod:`.benchmark_file`   benchmarks from TOML; the standard protocols
:mod:`.toml_file`        files that users write, refused with all of their faults
:mod:`.faults`           faults of values in plain words, with what may have been meant
:mod:`.unapplied`        fields without effect on a finished run
:mod:`.run`              fields of a run, the resolved run and its id
:mod:`.commands`         commands that are printed to be pasted into a shell
=======================  ================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .benchmark import BenchmarkSource, BenchmarkSpec
    from .benchmark_file import BenchmarkFile
    from .common_options import (
        LEARNING_RATES,
        BackboneOptions,
        BudgetOptions,
        MemoryOptions,
        NetworkOptions,
        ScoringOptions,
        SelectingOptions,
        TaskInferenceOptions,
        TrainingOptions,
        UntrainedOptions,
        WidthOptions,
    )
    from .fields import CommandLine
    from .options import Options, TuningGrid
    from .protocol import CreationSchedule, ImageLimits, ProtocolSpec, Schedule, ScheduleOptions, SearchSchedule
    from .run import ComputeConfig, Request
    from .streams import SCENARIOS, Scenario

__all__ = [
    "LEARNING_RATES",
    "SCENARIOS",
    "BackboneOptions",
    "BenchmarkFile",
    "BenchmarkSource",
    "BenchmarkSpec",
    "BudgetOptions",
    "CommandLine",
    "ComputeConfig",
    "CreationSchedule",
    "ImageLimits",
    "MemoryOptions",
    "NetworkOptions",
    "Options",
    "ProtocolSpec",
    "Request",
    "Schedule",
    "ScheduleOptions",
    "Scenario",
    "ScoringOptions",
    "SearchSchedule",
    "SelectingOptions",
    "TaskInferenceOptions",
    "TrainingOptions",
    "TuningGrid",
    "UntrainedOptions",
    "WidthOptions",
]

__getattr__, __dir__ = attach(__name__)
