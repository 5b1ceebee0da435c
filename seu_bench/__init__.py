"""seu-bench: a benchmark harness for lifelong learning that counts what a model costs as well as what it remembers.

From a notebook::

    import seu_bench
    record = seu_bench.run(strategy="seu", benchmark="split_digits", seed=0)
    record.metrics["acc"]
    seu_bench.load_records("results")
    seu_bench.load_model(record.run_id)(images, task=0)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seu_bench._version import __version__

if TYPE_CHECKING:
    from seu_bench.api import run, sweep
    from seu_bench.engine.saved_model.load import load_model
    from seu_bench.results.leaderboard import load_records

__all__ = ["__version__", "load_model", "load_records", "run", "sweep"]


def __getattr__(name: str) -> Any:
    """Import these functions when they are asked for: ``import seu_bench`` stays cheap."""
    if name == "run":
        from seu_bench.api import run

        return run
    if name == "sweep":
        from seu_bench.api import sweep

        return sweep
    if name == "load_records":
        from seu_bench.results.leaderboard import load_records

        return load_records
    if name == "load_model":
        from seu_bench.engine.saved_model.load import load_model

        return load_model
    raise AttributeError(f"module 'seu_bench' has no attribute {name!r}")
