"""A real Slurm on this machine alone: started for tests, in a folder of their own, and stopped after them."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psutil

#: Programs that must be there (Debian: slurmctld, slurmd, slurm-client, munge).
PROGRAMS: Final = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol")
#: Where Debian has those of the system.
_PATH: Final = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
#: Seconds until the one node is ready.
_READY: Final = 60.0


def missing() -> list[str]:
    """Programs that are not there, and root, who alone may start them."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    return absent if os.geteuid() == 0 else [*absent, "the rights of root"]


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[dict[str, str]]:
    """A cluster of one node; the variables that lead to it.

    Args:
        folder: of its own, which everybody may enter.
    """
    for name in ("state", "spool", "log", "munge"):
        (folder / name).mkdir(parents=True, mode=0o755)
    pid_files = [folder / "munge" / "pid", folder / "slurmctld.pid", folder / "slurmd.pid"]
    environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(folder / "slurm.conf")}
    try:
        _start_munge(folder)
        (folder / "slurm.conf").write_text(_configuration(folder), encoding="utf-8")
        for program in (["slurmctld", "-i"], ["slurmd"]):
            subprocess.run(program, env=environment, check=True, capture_output=True)
        _wait_until_ready(environment, folder)
        yield {name: environment[name] for name in ("PATH", "SLURM_CONF")}
    finally:
        daemons = []
        for file in reversed(pid_files):
            with contextlib.suppress(OSError, ValueError, psutil.NoSuchProcess):
                daemons.append(psutil.Process(int(file.read_text())))
                daemons[-1].terminate()
        psutil.wait_procs(daemons, timeout=15)


def _start_munge(folder: Path) -> None:
    munge = folder / "munge"
    (munge / "key").write_bytes(os.urandom(1024))
    (munge / "key").chmod(0o400)
    for path in (munge, munge / "key"):
        shutil.chown(path, "munge", "munge")
    arguments = [f"--{name}-file={munge / place}" for name, place in (("key", "key"), ("pid", "pid"), ("log", "log"))]
    arguments += [f"--seed-file={munge / 'seed'}", f"--socket={munge / 'sock'}", "--force"]
    subprocess.run(["munged", *arguments], env={**os.environ, "PATH": _PATH}, check=True, user="munge", group="munge")


def _configuration(folder: Path) -> str:
    host = socket.gethostname().partition(".")[0]
    ports = [_free_port(), _free_port()]
    lines = [
        "ClusterName=test",
        f"SlurmctldHost={host}(127.0.0.1)",
        "AuthType=auth/munge",
        f"AuthInfo=socket={folder / 'munge' / 'sock'},cred_expire=15",  # what is queued again waits so long
        "CryptoType=crypto/munge",
        "SlurmUser=root",
        "SlurmdUser=root",
        f"StateSaveLocation={folder / 'state'}",
        f"SlurmdSpoolDir={folder / 'spool'}",
        f"SlurmctldPidFile={folder / 'slurmctld.pid'}",
        f"SlurmdPidFile={folder / 'slurmd.pid'}",
        f"SlurmctldLogFile={folder / 'log' / 'slurmctld'}",
        f"SlurmdLogFile={folder / 'log' / 'slurmd'}",
        f"SlurmctldPort={ports[0]}",
        f"SlurmdPort={ports[1]}",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "ReturnToService=2",
        "JobRequeue=1",
        "KillWait=5",
        f"NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=4000 State=UNKNOWN",
        f"PartitionName=debug Nodes={host} Default=YES MaxTime=INFINITE State=UP",
    ]
    return "\n".join(lines) + "\n"


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait_until_ready(environment: dict[str, str], folder: Path) -> None:
    deadline = time.monotonic() + _READY
    while time.monotonic() < deadline:
        done = subprocess.run(
            ["sinfo", "--noheader", "--format=%T"], env=environment, capture_output=True, text=True, check=False
        )
        if done.stdout.strip() == "idle":
            return
        time.sleep(0.5)
    logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in (folder / "log").iterdir())
    raise TimeoutError(f"Slurm is not ready after {_READY:g} seconds: {done.stdout}{done.stderr}\n{logs}")
