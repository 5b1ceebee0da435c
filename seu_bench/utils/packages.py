"""Installed packages: whether one is in development here, and what its user can do about a defect of it."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname


def source_folder(package: str) -> Path | None:
    """Return the folder of a package's source, where it is in development on this machine.

    Args:
        package: name of a distribution, as pip knows it.

    Returns:
        The folder that it was installed from, in place (``pip install -e FOLDER``) or not, or the folder that it lies
        in, where no installer put it there; a plugin of one file is its own. ``None``: it came from an index or is not
        installed.
    """
    if package.endswith(".py"):
        return Path(package)
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import, and needed for defects only

    try:
        found = distribution(package)
        origin = json.loads(found.read_text("direct_url.json") or "{}")
        installer = found.read_text("INSTALLER")
    except (PackageNotFoundError, OSError, ValueError):
        return None
    if "dir_info" in origin:
        return Path(url2pathname(urlsplit(origin["url"]).path))
    return None if installer or origin else Path(str(found.locate_file("")))


def remedy_for(package: str) -> str:
    """Say what to do about a defect of a package: repair it where it is in development, else tell its author."""
    folder = source_folder(package)
    return f"report it to the author of {package}" if folder is None else f"repair it in {folder}"
