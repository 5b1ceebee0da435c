"""Contract tests that any plugin can run on itself, and tiny streams to run them on.

- ``contract``: :class:`StrategyContract`, and :class:`FrozenGrowthContract` for strategies that never forget
- ``kinds``: contracts of backbones, encoders, data sets, benchmarks, metrics and loggers
- ``trial``: :class:`Trial` and :class:`Learner`, a strategy trained and evaluated as a run does it
- ``streams``: synthetic textures and tiny streams
- ``pretended_card``: tensors on the wrong device, and waits of a training step, without an accelerator
- ``checking``: contracts on installed plugins without a test file (``seu-bench check-plugin NAME``)

Example:
    A test file of a plugin, to be run with pytest::

        from seu_bench.testing import StrategyContract

        class TestMine(StrategyContract):
            strategy = "mine"
            options = {"epochs": 20}
"""

from __future__ import annotations

from seu_bench.testing.contract import FrozenGrowthContract, StrategyContract
from seu_bench.testing.kinds import (
    BackboneContract,
    BenchmarkContract,
    DatasetContract,
    EncoderContract,
    LoggerContract,
    MetricContract,
)
from seu_bench.testing.pretended_card import PretendedCard, pretended_card
from seu_bench.testing.streams import stream_of
from seu_bench.testing.trial import Learner, Trial

__all__ = [
    "BackboneContract",
    "BenchmarkContract",
    "DatasetContract",
    "EncoderContract",
    "FrozenGrowthContract",
    "Learner",
    "LoggerContract",
    "MetricContract",
    "PretendedCard",
    "StrategyContract",
    "Trial",
    "pretended_card",
    "stream_of",
]
