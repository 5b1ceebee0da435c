"""Networks: models with a head per task, cells of a search space, and what makes them fast.

- ``multihead``: base of models with a head per task, units of it compiled
- ``backbone``: a backbone that tasks share, under one head per task, one that grows, or one for all
- ``alexnet``: the AlexNet variant
- ``cells``: stem, extension unit, proxy network, network of one genotype
- ``residual``: parts of residual networks
- ``operations``: the eight operations of the search space
- ``layers``: convolution and dropout with channels innermost in memory
- ``modes``: training and evaluation mode, restored afterwards; freezing
- ``pretrained``: weights of a network from a file
- ``kernels``: gradients that are fast on a CPU
- ``feature_cache``, ``feature_store``: outputs of frozen layers, cached for a task's images
- ``chain``: a backbone as a chain of layers
- ``growing``, ``growing_layer``: networks whose layers grow by units, with weights in blocks by task
- ``masks``: binary masks of one bit
- ``sizes``: parameters, bytes and multiply-accumulates
- ``flops``: operations of what is computed, backward passes included
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .alexnet import AlexNetShape
    from .backbone import BackboneModel, GrowingHead
    from .cells import ExtensionUnit, GenotypeNetwork, Mixture, ProxyNetwork, Sample, Stem, Unit, sample_of
    from .chain import ChainLayer, chain_of, run_chain
    from .flops import FlopCounter, RepeatedBatches, counted_as
    from .growing import GrowingNetwork
    from .growing_layer import GrowingLayer
    from .layers import ChannelsLastConv2d, Dropout, channels_last, dropout
    from .masks import pack_bits, packed_bytes, unpack_bits
    from .modes import freeze, is_frozen, modes_kept
    from .multihead import MultiHeadModel
    from .residual import ResidualBlock, even_resnet_parts
    from .sizes import count_bytes, count_macs, count_parameters, state_bytes
    from .untrained import UntrainedModel

__all__ = [
    "AlexNetShape",
    "BackboneModel",
    "ChainLayer",
    "ChannelsLastConv2d",
    "Dropout",
    "ExtensionUnit",
    "FlopCounter",
    "GenotypeNetwork",
    "GrowingHead",
    "GrowingLayer",
    "GrowingNetwork",
    "Mixture",
    "MultiHeadModel",
    "ProxyNetwork",
    "RepeatedBatches",
    "ResidualBlock",
    "Sample",
    "Stem",
    "Unit",
    "UntrainedModel",
    "chain_of",
    "channels_last",
    "count_bytes",
    "count_macs",
    "count_parameters",
    "counted_as",
    "dropout",
    "even_resnet_parts",
    "freeze",
    "is_frozen",
    "modes_kept",
    "pack_bits",
    "packed_bytes",
    "run_chain",
    "sample_of",
    "state_bytes",
    "unpack_bits",
]

__getattr__, __dir__ = attach(__name__)
