"""Memory that the process has freed: reused by the process rather than returned to the system after each step."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Final

#: Parameters of glibc's ``mallopt``, as its ``malloc.h`` numbers them.
_TRIM_THRESHOLD: Final = -1
_MMAP_MAX: Final = -4
#: Variables by which a user chooses how memory is allocated, or another allocator.
CHOICES: Final = (
    "LD_PRELOAD",
    "GLIBC_TUNABLES",
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
)


def keep_freed_memory() -> bool:
    """Have the process reuse the memory that it frees, rather than return it to the system.

    A training step allocates and frees the same large tensors each time. To reuse them is faster, and takes more memory
    at the most (results/published/performance_decisions.md has both); results are the same. Nothing is changed where
    the C library is not glibc, or one of :data:`CHOICES` is set. It is for programs, once, at their beginning.

    Returns:
        Whether freed memory is kept from now on.
    """
    library = _glibc()
    if library is None or any(os.environ.get(name) for name in CHOICES):
        return False
    return bool(library.mallopt(_MMAP_MAX, 0) and library.mallopt(_TRIM_THRESHOLD, -1))


def return_freed_memory() -> None:
    """Return what the process has freed to the system, as far as whole pages are free; a matter of milliseconds."""
    if (library := _glibc()) is not None:
        library.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None
