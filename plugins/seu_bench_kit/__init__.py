"""The search and growth kit: what methods share that search for units, grow by them, or pack them.

- ``search_space``: operations, genotypes, the plan of cells
- ``components``: what searchers and creators are given, and their factories
- ``cells``: units as modules, the proxy network, the network of one genotype; ``kernels``: their fast gradients
- ``sampling``: stages that sample a network, train it and learn from its score
- ``guard``: supervision of the stages of searchers and creators
- ``transferability``: scores of features that need no training
- ``chain``, ``growing``: a backbone as a chain of layers; networks whose layers grow by units
- ``blocks``: AlexNet variant and residual blocks
- ``masks``: binary masks of one bit
- ``contracts``: contract tests of searchers and creators; needs pytest
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .blocks import AlexNetShape, ResidualBlock, even_resnet_parts
    from .cells import ExtensionUnit, GenotypeNetwork, Mixture, ProxyNetwork, Sample, Stem, Unit, sample_of
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
    from .growing import GrowingLayer, GrowingMethod, GrowingNetwork
    from .guard import GuardedStage
    from .masks import pack_bits, packed_bytes, unpack_bits
    from .sampling import SampledStage, genotype_network, proxy_network, recalibrate, train_epoch
    from .search_space import (
        EDGES,
        GENOTYPES,
        OPERATIONS,
        Edge,
        Genotype,
        SearchSpace,
        named_genotype,
        uniform_genotype,
    )
    from .transferability import extract_features, h_score, knn_accuracy, log_evidence, ridge_accuracy

__all__ = [
    "EDGES",
    "GENOTYPES",
    "OPERATIONS",
    "AlexNetShape",
    "ChainLayer",
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
    "Mixture",
    "ProxyNetwork",
    "ResidualBlock",
    "Sample",
    "SampledStage",
    "SearchSpace",
    "SearchTask",
    "SearcherContract",
    "SearcherFactory",
    "Stem",
    "Unit",
    "chain_of",
    "component_passes",
    "creation_tasks",
    "even_resnet_parts",
    "extract_features",
    "genotype_network",
    "h_score",
    "knn_accuracy",
    "log_evidence",
    "named_genotype",
    "pack_bits",
    "packed_bytes",
    "proxy_network",
    "recalibrate",
    "recalibration_passes",
    "ridge_accuracy",
    "run_chain",
    "sample_of",
    "schedule_passes",
    "search_task",
    "train_epoch",
    "uniform_genotype",
    "unpack_bits",
]

__getattr__, __dir__ = attach(__name__)
