"""Validated values: what a run is asked for and what it resolves to. No torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .benchmark import BenchmarkFile, BenchmarkSource, BenchmarkSpec
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
    from .options import Options, TuningGrid
    from .protocol import CreationSchedule, ImageLimits, ProtocolSpec, Schedule, ScheduleOptions, SearchSchedule
    from .run import CommandLine, ComputeConfig, Request
    from .streams import SCENARIOS, InputKind, Scenario

__all__ = [
    "LEARNING_RATES", "SCENARIOS", "BackboneOptions", "BenchmarkFile", "BenchmarkSource", "BenchmarkSpec",
    "BudgetOptions", "CommandLine", "ComputeConfig", "CreationSchedule", "ImageLimits", "InputKind", "MemoryOptions",
    "NetworkOptions", "Options", "ProtocolSpec", "Request", "Schedule", "ScheduleOptions", "Scenario", "ScoringOptions",
    "SearchSchedule", "SelectingOptions", "TaskInferenceOptions", "TrainingOptions", "TuningGrid", "UntrainedOptions",
    "WidthOptions",
]  # fmt: skip

__getattr__, __dir__ = attach(__name__)
