"""Networks: models with a head per task, layers, sizes, and outputs of frozen layers.

- ``multihead``: base of models with a head per task; ``backbone``: one that tasks share, under heads of the scenario
- ``layers``: convolution and dropout with channels innermost in memory; ``modes``: training, evaluation, freezing
- ``pretrained``: weights from a file; ``feature_cache``: outputs of frozen layers, cached for a task's images
- ``sizes``: parameters, bytes and multiply-accumulates; ``flops``: operations of what is computed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .backbone import BackboneModel, GrowingHead
    from .flops import FlopCounter, RepeatedBatches, counted_as
    from .layers import ChannelsLastConv2d, Dropout, channels_last, dropout
    from .modes import freeze, is_frozen, modes_kept
    from .multihead import MultiHeadModel
    from .sizes import count_bytes, count_macs, count_parameters, state_bytes

__all__ = [
    "BackboneModel",
    "ChannelsLastConv2d",
    "Dropout",
    "FlopCounter",
    "GrowingHead",
    "MultiHeadModel",
    "RepeatedBatches",
    "channels_last",
    "count_bytes",
    "count_macs",
    "count_parameters",
    "counted_as",
    "dropout",
    "freeze",
    "is_frozen",
    "modes_kept",
    "state_bytes",
]

__getattr__, __dir__ = attach(__name__)
