"""Options of jobs of Ray."""

from __future__ import annotations

from pydantic import Field

from seu_bench.config import Options


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
