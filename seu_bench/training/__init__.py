"""Learning a task: stages, phases, the base of strategies, and the interfaces of what plugins bring.

======================  =================================================================
:mod:`.interfaces`      factory of a strategy, its context, and estimates of costs
:mod:`.components`      factories of searchers, creators and backbones, and their inputs
:mod:`.stage`           a loop over epochs that is timed, reported and resumed
:mod:`.task`            a task's images, and a phase of learning it
:mod:`.phases`          the phases of a task, one after another
:mod:`.strategy`        base class of strategies
:mod:`.training_stage`  the stage that trains a task's path
:mod:`.sampling`        stages that sample a network, train it and learn from its score
:mod:`.loops`           one epoch of training, and evaluation
:mod:`.optim`           optimiser, learning rates, clipping, best weights
:mod:`.backbone`        the multi-head model of a run's backbone
:mod:`.costing`         estimates of image passes and sizes
:mod:`.guard`           supervision of the stages of searchers and creators
:mod:`.state`           checks of states and errors of loading them
:mod:`.batches`         Avalanche's data flow on whole batches
:mod:`.callbacks`       Avalanche's callbacks without their idle calls
:mod:`.evaluators`      Avalanche metrics of the accuracy matrix and of sizes
:mod:`.context`         feature cache, precision and compilation around a stage
======================  =================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .backbone import backbone_model, width_factor
    from .callbacks import SilentLogger
    from .components import (
        BackboneFactory,
        Component,
        CreationTask,
        CreatorFactory,
        GrowingModel,
        SearcherFactory,
        SearchTask,
    )
    from .costing import (
        evaluation_passes,
        fixed_cost,
        fixed_size_cost,
        half_passes,
        on_meta,
        schedule_passes,
        task_macs,
        training_passes,
    )
    from .evaluators import AccuracyMatrix, ModelSizes
    from .guard import guarded_stage
    from .interfaces import Cost, StageCost, StrategyContext, StrategyFactory, checked_options
    from .loops import Forward, evaluate, train_epoch
    from .optim import BestWeights, clip_gradients, cosine_rate, make_sgd, set_rate
    from .sampling import SampledStage, genotype_network, proxy_network
    from .stage import EpochlessStage, EpochReport, ProgressCallback, Stage, StageProgress
    from .state import fitting
    from .strategy import StagedStrategy
    from .task import Phase, TaskData
    from .training_stage import EpochMeter, TrainingStage

__all__ = [
    "AccuracyMatrix",
    "BackboneFactory",
    "BestWeights",
    "Component",
    "Cost",
    "CreationTask",
    "CreatorFactory",
    "EpochMeter",
    "EpochReport",
    "EpochlessStage",
    "Forward",
    "GrowingModel",
    "ModelSizes",
    "Phase",
    "ProgressCallback",
    "SampledStage",
    "SearchTask",
    "SearcherFactory",
    "SilentLogger",
    "Stage",
    "StageCost",
    "StageProgress",
    "StagedStrategy",
    "StrategyContext",
    "StrategyFactory",
    "TaskData",
    "TrainingStage",
    "backbone_model",
    "checked_options",
    "clip_gradients",
    "cosine_rate",
    "evaluate",
    "evaluation_passes",
    "fitting",
    "fixed_cost",
    "fixed_size_cost",
    "genotype_network",
    "guarded_stage",
    "half_passes",
    "make_sgd",
    "on_meta",
    "proxy_network",
    "schedule_passes",
    "set_rate",
    "task_macs",
    "train_epoch",
    "training_passes",
    "width_factor",
]

__getattr__, __dir__ = attach(__name__)
