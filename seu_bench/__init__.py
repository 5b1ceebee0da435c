"""seu-bench: a benchmark harness for continual (lifelong) learning that counts what models cost and remember.

Example::

    record = seu_bench.run(strategy="seu", benchmark="split_digits", seed=0)
    seu_bench.leaderboard("results")
    seu_bench.load_model(record.run_id).predict("pictures/", task=0).labels
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench._version import __version__
from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .api import extend, leaderboard, run, sweep, tune
    from .avalanche import make_strategy
    from .data.arrays import stream
    from .engine.learner import Learner, load_learner
    from .engine.prediction import Predictions
    from .engine.saved_model import load_model
    from .hookspecs import hookimpl
    from .plugin.registration import LazyFactory, Register
    from .results.building import load_records
    from .training.memories import Balanced, Herded, Reservoir, Ring
    from .training.method import Method

__all__ = [
    "Balanced", "Herded", "LazyFactory", "Learner", "Method", "Predictions", "Register", "Reservoir", "Ring",
    "__version__", "extend", "hookimpl", "leaderboard", "load_learner", "load_model", "load_records", "make_strategy",
    "run", "stream", "sweep", "tune",
]  # fmt: skip

__getattr__, __dir__ = attach(__name__)
