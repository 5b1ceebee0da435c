"""Learning a task: stages, phases, the base of strategies, and the interfaces of what plugins bring.

=======================  =====================================================================
:mod:`.interfaces`       factories of strategies and backbones, their context, estimates of costs
:mod:`.backbones`        the network below the heads, built, filled with weights, and with heads
:mod:`.stage`            a loop over epochs that is timed, reported and resumed; phases of a task
:mod:`.strategy`         base class of strategies: phases, resuming, precision, cached features
:mod:`.method`           base class of methods: a strategy as its mathematics
:mod:`.memories`         images of earlier tasks: reservoir, ring, balanced, herded
:mod:`.loops`            an evaluation, optimiser, learning rates, best weights, the stage of a task
:mod:`.rehearsal`        the cost of a method, which learns a stream on stand-ins
:mod:`.as_it_is`         strategies of Avalanche in its own loop
:mod:`.state`            checks of states and errors of loading them
:mod:`.monitoring`       what is measured: accuracies, sizes, memory
=======================  =====================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .backbones import backbone_model, build_backbone, dropout_factor, width_factor
    from .interfaces import BackboneFactory, Cost, StageCost, StrategyContext, StrategyFactory, checked_options
    from .loops import (
        BestWeights,
        EpochMeter,
        Forward,
        TrainingStage,
        clip_gradients,
        epoch_rate,
        evaluate,
        make_optimizer,
        set_rate,
    )
    from .memories import Balanced, Herded, Memory, Reservoir, Ring
    from .method import Method
    from .monitoring import AccuracyMatrix, KeptImages, ModelSizes, bytes_by_kind, memory_of
    from .rehearsal import PassFlops, evaluation_passes, on_meta, pass_flops
    from .stage import EpochlessStage, EpochReport, Phase, Stage, StageProgress, TaskData
    from .strategy import StagedStrategy

__all__ = [
    "AccuracyMatrix", "BackboneFactory", "Balanced", "BestWeights", "Cost", "EpochMeter", "EpochReport",
    "EpochlessStage", "Forward", "Herded", "KeptImages", "Memory", "Method", "ModelSizes", "PassFlops", "Phase",
    "Reservoir", "Ring", "Stage", "StageCost", "StageProgress", "StagedStrategy", "StrategyContext",
    "StrategyFactory", "TaskData", "TrainingStage", "backbone_model", "build_backbone", "bytes_by_kind",
    "checked_options", "clip_gradients", "epoch_rate", "dropout_factor", "evaluate", "evaluation_passes",
    "make_optimizer", "memory_of", "on_meta", "pass_flops", "set_rate", "width_factor",
]  # fmt: skip

__getattr__, __dir__ = attach(__name__)
