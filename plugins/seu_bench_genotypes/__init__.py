"""Pictures of the genotypes that a run found, of any search space: ``seu-bench genotypes``."""

from __future__ import annotations

from seu_bench import Register, hookimpl
from seu_bench.plugin.registration import CommandFactory, LazyCommand


@hookimpl
def register_commands(register: Register[CommandFactory]) -> None:
    """Offer ``genotypes``."""
    register("genotypes", LazyCommand("seu_bench_genotypes.pictures:genotypes", "draw the genotypes that a run found"))
