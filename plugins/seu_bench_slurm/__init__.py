"""Jobs of a sweep as jobs of Slurm (``--executor slurm``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench import hookimpl
from seu_bench.config import Options
from seu_bench.plugin.executors import Executor, ExecutorFactory
from seu_bench.plugin.registration import offer
from seu_bench_slurm.options import SlurmOptions

if TYPE_CHECKING:
    from seu_bench.plugin.registration import Register


class SlurmFactory:
    """Jobs of Slurm, in arrays."""

    summary = "job arrays of Slurm; they continue when the sweep's own process ends"
    options: type[Options] = SlurmOptions
    detaches = True

    def build(self, options: SlurmOptions, device: str, threads: int) -> Executor:
        """Return the executor, if Slurm answers."""
        from seu_bench_slurm.executor import SlurmExecutor

        return SlurmExecutor(options, device, threads)


@hookimpl
def register_executors(register: Register[ExecutorFactory]) -> None:
    """Offer ``slurm``."""
    register("slurm", offer(SlurmFactory(), "slurm", "submitit"))
