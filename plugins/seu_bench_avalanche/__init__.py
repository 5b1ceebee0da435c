"""Avalanche's own strategies by name, on the backbones, data path, protocols and records of every other strategy.

One table (:mod:`seu_bench_avalanche.catalogue`) says which there are; what Avalanche broke, or cannot do with a head
per task, is in it too, with the reason.
"""

from __future__ import annotations

from seu_bench import Register, hookimpl
from seu_bench.training import StrategyFactory
from seu_bench_avalanche.catalogue import METHODS, UNAVAILABLE


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer every method of the table."""
    for name, factory in METHODS.items():
        register(name, factory)
    for name, reason in UNAVAILABLE.items():
        register(name, reason)
