"""Whether a process that is known by its number still lives, as far as the operating system tells."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path


def here() -> str:
    """The host since it was started and its namespace of processes: within it, a process's number means one process."""
    parts = [socket.gethostname()]
    try:
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
        parts += [str(Path(f"/proc/self/ns/{kind}").stat().st_ino) for kind in ("pid", "time")]
    except (OSError, ValueError):
        pass  # not Linux, or hidden: the host's name is what there is
    return " ".join(parts)


def started(pid: int) -> int | None:
    """When a process was started, in the system's own ticks; ``None``: the system does not tell."""
    fields = _fields(pid)
    return int(fields[19]) if len(fields) > 19 and fields[19].isdigit() else None


def lives(pid: int, start: int | None) -> bool | None:
    """Whether the process ``pid`` that was started at ``start`` lives; ``None``: that cannot be found out.

    Args:
        pid: its number on this host (:func:`here`).
        start: what :func:`started` said of it; ``None``: any process of that number is taken for it.
    """
    if sys.platform == "win32":  # there the signal 0 is one that ends processes
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it is somebody else's
    except (OSError, OverflowError):
        return None
    fields = _fields(pid)
    if fields[:1] in (["Z"], ["X"]):
        return False  # it has ended, and nobody asked how
    now = started(pid)
    return start is None or now is None or now == start


def _fields(pid: int) -> list[str]:
    """What Linux says of a process, from its state on: ``/proc/<pid>/stat`` after the name in parentheses."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes().decode("ascii", "replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
