"""Installed packages: whether one is in development here, and what its user can do about a defect of it."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname


def source_folder(package: str) -> Path | None:
    """Return the folder that a package was installed from, or lies in where no installer put it there.

    Args:
        package: name of a distribution; a plugin of one file is its own.

    Returns:
        ``None``: it came from an index or is not installed.
    """
    if package.endswith(".py"):
        return Path(package)
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import, and needed for defects only

    try:
        found = distribution(package)
        origin = json.loads(found.read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, OSError, ValueError):
        return None
    if "dir_info" in origin:
        return Path(url2pathname(urlsplit(origin["url"]).path))
    return None if origin or found.read_text("INSTALLER") else Path(str(found.locate_file("")))


def remedy_for(package: str) -> str:
    """Say what to do about a defect of a package: repair it where it is in development, else tell its author."""
    folder = source_folder(package)
    return f"report it to the author of {package}" if folder is None else f"repair it in {folder}"
