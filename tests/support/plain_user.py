"""Rights as a plain user has them, also where tests run as root."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

#: The user and group that own nothing.
NOBODY = 65534


@contextlib.contextmanager
def plain_user(folder: Path) -> Iterator[None]:
    """Inside, root has the rights of a plain user who owns ``folder`` and all that is in it.

    What is imported inside must have been imported before: the interpreter may lie where only root can read.
    """
    if os.geteuid() != 0:
        yield
        return
    for above in folder.parents:
        if "pytest-" in str(above):  # pytest lets only its own user in, here and into the working folder of commands
            for path in (above, *above.glob("working-folder*")):
                path.chmod(0o755)
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
