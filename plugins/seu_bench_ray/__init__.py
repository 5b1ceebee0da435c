"""Jobs of a sweep as tasks of Ray (``--executor ray``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench import hookimpl
from seu_bench.config import Options
from seu_bench.plugin.executors import Executor, ExecutorFactory
from seu_bench.plugin.registration import offer
from seu_bench_ray.options import RayOptions

if TYPE_CHECKING:
    from seu_bench.plugin.registration import Register


class RayFactory:
    """Tasks of Ray, on this machine or on a cluster."""

    summary = "tasks of Ray: fractions of GPUs, several machines, jobs of lost workers start again"
    options: type[Options] = RayOptions
    detaches = False

    def build(self, options: RayOptions, device: str, threads: int) -> Executor:
        """Connect to Ray, or start one."""
        from seu_bench_ray.executor import RayExecutor

        return RayExecutor(options, device, threads)


@hookimpl
def register_executors(register: Register[ExecutorFactory]) -> None:
    """Offer ``ray``."""
    register("ray", offer(RayFactory(), "ray", "ray"))
