"""Slurm's own commands: partitions, jobs that wait or run, cancelling."""

from __future__ import annotations

import subprocess
from typing import Final

from seu_bench.config.options import did_you_mean
from seu_bench.errors import RequestError
from seu_bench.utils.text import printable

#: Seconds that a command of Slurm's may take; a busy controller answers late.
_ANSWER: Final = 60.0
#: Of all jobs that submissions of ours make.
JOB_NAME: Final = "seu-bench"


def check_partition(name: str | None) -> None:
    """Check that jobs can be submitted to a partition.

    Raises:
        RequestError: Slurm is not here, does not answer, or has no such partition.
    """
    known = ask("sinfo", "--noheader", "--format=%R").split()
    if name is not None and name not in known:
        raise RequestError(
            f"Slurm has no partition {name!r}{did_you_mean(name, known)}",
            where="executor 'slurm'",
            remedy="give one of " + ", ".join(sorted(set(known))),
        )


def living_jobs() -> set[str]:
    """Return the ids of our jobs that wait or run, an element of an array as ``12_3``.

    Raises:
        RequestError: Slurm does not answer.
    """
    return set(ask("squeue", "--noheader", "--array", "--me", f"--name={JOB_NAME}", "--format=%i").split())


def cancel(jobs: list[str]) -> None:
    """Cancel jobs; those that have ended already are ignored.

    Raises:
        RequestError: Slurm does not answer.
    """
    for first in range(0, len(jobs), 500):
        ask("scancel", "--quiet", *jobs[first : first + 500])


def ask(*command: str) -> str:
    """Return the output of a command of Slurm's.

    Raises:
        RequestError: it is not installed, fails, or does not answer.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER, check=True)
    except FileNotFoundError:
        problem = f"there is no command {command[0]}"
    except subprocess.TimeoutExpired:
        problem = f"{command[0]} did not answer within {_ANSWER:g} seconds"
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if line.strip()]
        problem = f"{command[0]} says: {printable(lines[-1]) if lines else f'exit status {error.returncode}'}"
    else:
        return done.stdout
    raise RequestError(
        f"Slurm cannot be used: {problem}",
        where="executor 'slurm'",
        remedy="run this where jobs can be submitted from (sinfo must work there), or use another executor",
    )
