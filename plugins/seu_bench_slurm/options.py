"""Options of jobs of Slurm."""

from __future__ import annotations

from pydantic import Field

from seu_bench.config import Options


class SlurmOptions(Options):
    """Resources of each job, and where it runs."""

    partition: str | None = Field(None, min_length=1, description="of the jobs; else the default one")
    time: int = Field(240, ge=1, description="minutes of a job; a run that is not finished by then is resumed")
    cpus: int | None = Field(None, ge=1, description="cores of each job; else as many as its threads")
    gpus: int | None = Field(None, ge=0, description="GPUs of each job; else 1 with --device cuda, or 0")
    memory: float | None = Field(None, gt=0, description="GiB of each job; else the partition's default")
    jobs: int | None = Field(None, ge=1, description="jobs at once at most; else as many as Slurm lets run")
    account: str | None = Field(None, min_length=1, description="whom the time is charged to")
    qos: str | None = Field(None, min_length=1, description="quality of service")
    constraint: str | None = Field(None, min_length=1, description="features that a node must have")
    spare: float = Field(60, ge=0, description="seconds before the time is over by which a job has queued itself again")
    retries: int = Field(3, ge=0, description="how often a job is submitted again that was lost")
