"""Whether an installed package is in development here decides what its reader is told to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from seu_bench.utils.packages import remedy_for, source_folder


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages."""
    monkeypatch.syspath_prepend(tmp_path / "site")
    return tmp_path / "site"


def install(site: Path, name: str, **files: str) -> None:
    """Metadata of a package, and further files of it."""
    folder = site / f"{name.replace('-', '_')}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    for file, text in files.items():
        (folder / file.replace("_json", ".json")).write_text(text)


def origin(**document: object) -> str:
    return json.dumps(document)


def test_in_development(site: Path, tmp_path: Path) -> None:
    """Installed in place, from a folder, or by no installer at all: its folder is named."""
    place = tmp_path / "my plugin"
    install(
        site, "in-place", INSTALLER="pip\n", direct_url_json=origin(url=place.as_uri(), dir_info={"editable": True})
    )
    install(site, "from-folder", INSTALLER="uv\n", direct_url_json=origin(url=place.as_uri(), dir_info={}))
    install(site, "beside")
    assert source_folder("in-place") == source_folder("from-folder") == place
    assert source_folder("beside") == site
    assert remedy_for("in-place") == f"repair it in {place}"


def test_of_somebody_else(site: Path) -> None:
    """From an index or a repository, and what is not installed or not readable: its author is named."""
    install(site, "from-index", INSTALLER="pip\n")
    install(
        site, "from-git", INSTALLER="pip\n", direct_url_json=origin(url="https://a.b/c.git", vcs_info={"vcs": "git"})
    )
    install(site, "corrupt", INSTALLER="pip\n", direct_url_json="{")
    for name in ("from-index", "from-git", "corrupt", "no-such-package"):
        assert source_folder(name) is None
        assert remedy_for(name) == f"report it to the author of {name}"
