"""The documentation as a site: notebooks run, every public name there, and no link that leads nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from sphinx.util.inventory import InventoryFile
from support import browsing

from scripts import public_api
from scripts.website.__main__ import write_versions
from scripts.website.links import broken_links
from scripts.website.registered import published_results, read_families
from scripts.website.staging import Site
from seu_bench import __version__
from seu_bench.plugin.registry import Registry

ROOT = public_api.ROOT
PAGES = {"strategies": "methods", "benchmarks": "benchmarks"}
SEARCHED = {
    "predict": "guides/saved_models",
    "lr": "reference/benchmarks",
    "GPU": "explanation/performance",
    "my own data": "guides/own_data",
    "forgetting": "reference/metrics",
    "resume": "guides/resuming",
    "add a class": "guides/extending",
    "custom dataset": "guides/own_data",
    "confidence interval": "reference/leaderboards",
    "out of memory": "explanation/performance",
}
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
    kinds = Registry().kinds
    pages = [f"docs/{plural}/{name}" for kind, plural in PAGES.items() for name in kinds[kind]]
    for page in ("index", *pages, "docs/evidence/reproduction", "docs/reference/api/seu_bench.training", "CHANGELOG"):
        assert (site / __version__ / f"{page}.html").exists(), page


@pytest.mark.long
@browsing.MARKS[0]
@browsing.MARKS[1]
def test_pages_fit_and_search_finds(site: Path, tmp_path: Path) -> None:
    """No page scrolls sideways on a telephone, no code is clipped on a screen, and words lead to their page first."""
    pages = sorted((site / __version__ / "docs").rglob("*.html"))
    sideways = "const e = document.documentElement; return e.scrollWidth > e.clientWidth"
    clipped = "return [...document.querySelectorAll('pre')].some((e) => e.scrollWidth > e.clientWidth + 1)"
    with browsing.browser(tmp_path) as driver:
        for width, script in ((390, sideways), (1400, clipped)):
            browsing.screen(driver, width)
            for page in (site / __version__ / "index.html", *pages):
                driver.get(page.as_uri())
                assert not driver.execute_script(script), (width, page)
        for words, wanted in SEARCHED.items():
            driver.get(f"{(site / __version__ / 'search.html').as_uri()}?q={quote(words)}")
            browsing.wait(driver, lambda: driver.find_elements("css selector", "#search-results li a"))
            found = driver.find_element("css selector", "#search-results li a").get_attribute("href")
            assert f"/docs/{wanted}.html" in found, words


def test_results_of_pages_are_those_of_records() -> None:
    """Each ranked row is there once; every strategy is in a family of the README."""
    rows = published_results()
    assert len({(row.board.title, *row.row.run_ids.values()) for row in rows}) == len(rows) > 300
    families = read_families(Registry().strategies)
    assert sorted(name for family in families for name in family.strategies) == sorted(Registry().strategies)


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
    """A file and a folder of the source are pages; code stays as it is."""
    Site(tmp_path).stage()
    contents = (tmp_path / "docs" / "README.md").read_text("utf-8")
    assert "[README](../README.md)" in contents and (tmp_path / "README.md").exists()
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
