"""Jobs of a sweep as tasks of Ray (``--executor ray``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from seu_bench import hookimpl
from seu_bench.config import Options
from seu_bench.plugin.executors import Executor, ExecutorFactory
from seu_bench.plugin.registration import offered

if TYPE_CHECKING:
    from seu_bench.plugin.registration import Register


class RayOptions(Options):
    """Address of Ray, and resources of each job."""

    address: str | None = Field(
        None, min_length=1, description="of a cluster: auto, HOST:PORT or ray://HOST:PORT; else this machine's own Ray"
    )
    cpus: float | None = Field(None, gt=0, description="cores of each job, may be a fraction; else as its threads")
    gpus: float | None = Field(
        None, ge=0, description="GPUs of each job, may be a fraction such as 0.25; else 1 with --device cuda, or 0"
    )
    jobs: int | None = Field(None, ge=1, description="jobs at once at most; else as many as Ray has room for")
    retries: int = Field(3, ge=0, description="how often a job starts again whose worker was lost")


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
    register("ray", offered(RayFactory(), "ray", "ray"))
