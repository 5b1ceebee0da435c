"""The search and growth kit: what methods share that search for units, grow by them, or pack them.

- ``search_space``: what a space is; ``units``, and ``networks`` of them
- ``genotypes``, ``cells``: the paper's space, ``darts_cell``; ``kernels``: its fast gradients; ``mbconv``; ``dense``
- ``components``: what searchers and creators are given, and their factories
- ``sampling``: stages that sample a network, train it and learn from its score
- ``guard``: supervision of the stages of searchers and creators
- ``transferability``: scores of features that need no training
- ``chain``, ``growing``: a backbone as a chain of layers; networks whose layers grow by units
- ``blocks``: AlexNet variant and residual blocks
- ``masks``: binary masks of one bit
- ``contracts``, ``space_contract``: contract tests of searchers, creators and spaces; need pytest
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .blocks import AlexNetShape, ResidualBlock, even_resnet_parts
    from .cells import CellSpace, ExtensionUnit
    from .chain import ChainLayer, chain_of, run_chain
    from .components import (
        CreationTask,
        CreatorFactory,
        GrowingModel,
        SearcherFactory,
        SearchTask,
        component_passes,
        recalibration_passes,
        schedule_passes,
    )
    from .contracts import CreatorContract, SearcherContract, creation_tasks, search_task
    from .genotypes import EDGES, GENOTYPES, OPERATIONS, Edge, Genotype, uniform_genotype
    from .growing import GrowingLayer, GrowingMethod, GrowingNetwork
    from .guard import GuardedStage
    from .masks import pack_bits, packed_bytes, unpack_bits
    from .networks import GenotypeNetwork, ProxyNetwork
    from .sampling import SampledStage, genotype_network, proxy_network, recalibrate, train_epoch
    from .search_space import Arrow, CellPlan, ChoiceSpace, Chosen, Sample, SearchSpace, SpaceFactory, cell_plans
    from .space_contract import SpaceContract
    from .transferability import extract_features, fit_head, h_score, knn_accuracy, log_evidence, ridge_accuracy
    from .units import Adapted, Stem, Unit, blend

__all__ = [
    "EDGES",
    "GENOTYPES",
    "OPERATIONS",
    "Adapted",
    "AlexNetShape",
    "Arrow",
    "CellPlan",
    "CellSpace",
    "ChainLayer",
    "ChoiceSpace",
    "Chosen",
    "CreationTask",
    "CreatorContract",
    "CreatorFactory",
    "Edge",
    "ExtensionUnit",
    "GenotypeNetwork",
    "Genotype",
    "GrowingLayer",
    "GrowingMethod",
    "GrowingModel",
    "GrowingNetwork",
    "GuardedStage",
    "ProxyNetwork",
    "ResidualBlock",
    "Sample",
    "SampledStage",
    "SearchSpace",
    "SearchTask",
    "SearcherContract",
    "SearcherFactory",
    "SpaceContract",
    "SpaceFactory",
    "Stem",
    "Unit",
    "blend",
    "cell_plans",
    "chain_of",
    "component_passes",
    "creation_tasks",
    "even_resnet_parts",
    "extract_features",
    "fit_head",
    "genotype_network",
    "h_score",
    "knn_accuracy",
    "log_evidence",
    "pack_bits",
    "packed_bytes",
    "proxy_network",
    "recalibrate",
    "recalibration_passes",
    "ridge_accuracy",
    "run_chain",
    "schedule_passes",
    "search_task",
    "train_epoch",
    "uniform_genotype",
    "unpack_bits",
]

__getattr__, __dir__ = attach(__name__)
