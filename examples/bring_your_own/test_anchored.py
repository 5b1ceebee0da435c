"""The contract of every strategy, on this one: pytest test_anchored.py."""

from seu_bench.testing import StrategyContract


class TestAnchored(StrategyContract):
    strategy = "anchored"
    options = {"backbone": "mlp"}
