"""The documentation as a site: notebooks run, every public name there, and no link that leads nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sphinx.util.inventory import InventoryFile

from scripts import public_api
from scripts.website.__main__ import write_versions
from scripts.website.links import broken_links
from scripts.website.staging import Site
from seu_bench import __version__

ROOT = public_api.ROOT
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this version, with what the notebooks print."""
    output = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "scripts.website", "--output", output, "--notebooks"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return output


@pytest.mark.long
def test_it_is_whole(site: Path) -> None:
    """Broken links have ended the build; public names are documented below the room that offers them, or another."""
    with (site / __version__ / "objects.inv").open("rb") as stream:
        inventory = InventoryFile.load(stream, "", lambda uri, name: name)
    documented = {name for kind, names in inventory.items() if kind.startswith("py:") for name in names}
    offered: dict[str, set[str]] = {}
    for room, modules in public_api.rooms():
        for module, names in modules.items():
            for name in names:
                offered.setdefault(f"{module}.{name}", set()).add(f"{room}.{name}")
    missing = [name for name, public in offered.items() if not public & documented]
    assert missing == []
    assert (site / "index.html").read_text("utf-8").count(f"{__version__}/index.html") == 2
    for page in ("index", "docs/evidence/reproduction", "docs/reference/api/seu_bench.training", "CHANGELOG"):
        assert (site / __version__ / f"{page}.html").exists(), page


@pytest.mark.long
def test_notebooks_were_run(site: Path) -> None:
    """Each shows what its last cell returns."""
    assert len(NOTEBOOKS) >= 3
    for notebook in NOTEBOOKS:
        page = (site / __version__ / "docs" / "notebooks" / f"{notebook.stem}.html").read_text("utf-8")
        assert page.count("cell_output") >= 3 and "Traceback" not in page, notebook.name


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(notebook: Path) -> None:
    """Differences of a commit are those of the text; each is in the table of contents."""
    import nbformat

    cells = nbformat.read(notebook, as_version=4).cells  # type: ignore[no-untyped-call]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells if cell.cell_type == "code")
    assert f"notebooks/{notebook.name}" in (ROOT / "docs" / "README.md").read_text("utf-8")


def test_links_lead_to_pages_of_the_site(tmp_path: Path) -> None:
    """The README is the home page; a file and a folder of the source are pages; code stays as it is."""
    Site(tmp_path).stage()
    contents = (tmp_path / "docs" / "README.md").read_text("utf-8")
    assert "[README](../index.md)" in contents and not (tmp_path / "README.md").exists()
    plugins = (tmp_path / "docs" / "guides" / "plugins.md").read_text("utf-8")
    assert "(../../source/examples/in_turn.py.md)" in plugins and "<!-- include" not in plugins
    shown = (tmp_path / "source" / "plugins" / "seu_bench_random.md").read_text("utf-8")
    assert "## `searcher.py`" in shown and "class RandomSearch" in shown


def test_broken_links_are_found(tmp_path: Path) -> None:
    """A page, a place and a way out of the site that are not there; not what is, and nothing of other hosts."""
    (tmp_path / "b.html").write_text('<p id="here"></p>', "utf-8")
    links = ("b.html", "b.html#here", "b.html#gone", "c.html", "../x.html", "https://example.org/c", "#top")
    text = "".join(f'<a href="{link}"></a>' for link in links)
    (tmp_path / "a.html").write_text(f'<h1 id="top"></h1>{text}', "utf-8")
    assert [fault.split(": ")[1] for fault in broken_links(tmp_path)] == ["b.html#gone", "c.html", "../x.html"]


def test_newest_version_leads(tmp_path: Path) -> None:
    """Ten comes after nine; folders without a site are no versions."""
    for version in ("0.9.0", "0.10.0", "0.10.0rc1"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "index.html").touch()
    (tmp_path / "notes").mkdir()
    write_versions(tmp_path)
    assert "url=0.10.0/index.html" in (tmp_path / "index.html").read_text("utf-8")
    assert (tmp_path / "versions.js").read_text("utf-8") == 'window.VERSIONS = ["0.10.0", "0.10.0rc1", "0.9.0"];\n'
