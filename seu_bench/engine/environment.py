"""Environment of a run: versions, device, revision, memory."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from seu_bench.errors import RequestError
from seu_bench.results.record import Environment
from seu_bench.utils.hardware import free_host_memory

#: A variable of the environment: the revision of the code, where the code's own folder does not have it, or no longer.
REVISION: Final = "SEU_BENCH_REVISION"


def describe_environment(device: str, *, compile: bool = False) -> Environment:
    """Return versions, device, platform and the git revision of the code where it runs from a checkout.

    Args:
        device: e.g. ``cpu`` or ``cuda:0``.
        compile: whether units are to be compiled.

    Returns:
        The environment, as records hold it.
    """
    import torch

    if device.startswith("cuda"):
        name = torch.cuda.get_device_name(device)
    else:  # with other instructions torch rounds floats in other places
        name = f"{processor_name() or platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    return Environment(
        versions=installed_versions(),
        device=f"{device} ({name})",
        git_revision=code_revision(),
        platform=platform.platform(),
        threads=torch.get_num_threads(),
        compile=compile,
    )


def processor_name() -> str | None:
    """Name of the processor on Linux; ``None`` elsewhere."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return None


def installed_versions() -> dict[str, str]:
    """Return versions of Python and of the packages that a run's results depend on, by name."""
    versions = {"python": platform.python_version()}
    for package in ("seu-bench", "torch", "torchvision", "avalanche-lib", "numpy"):
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def choose_device(name: str) -> str:
    """``auto`` becomes the accelerator where there is one; anything else is checked."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=torch.device(name))
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        what = f"device {name!r} cannot be used: {str(error).splitlines()[0]}"
        remedy = "use --device cpu, or --device auto to take an accelerator where there is one"
        raise RequestError(what, where="--device", remedy=remedy) from error
    return name


def require_memory(parameters: int, device: str) -> None:
    """Refuse a model whose float32 weights alone take more memory than the host has: the process might be killed."""
    needed, free = 4 * parameters, free_host_memory()
    if device == "cpu" and needed > free:
        what = f"the weights of the model take {needed:,} bytes, and {free:,} bytes of memory are free"
        remedy = "choose a smaller network, or a machine with more memory; seu-bench cost shows sizes"
        raise RequestError(what, remedy=remedy)


def code_revision() -> str | None:
    """The revision of this code: :data:`REVISION`, or the commit of its checkout, with ``-dirty`` if that changed."""
    if given := os.environ.get(REVISION, "").strip():
        return given
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
