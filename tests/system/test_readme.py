"""The README's first screen: its counts are the registry's, and its pictures are there."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from seu_bench import __version__
from seu_bench.plugin.registry import Registry

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
KINDS = ("strategies", "benchmarks", "searchers", "creators", "spaces", "backbones")


def test_citation_is_of_this_version_and_paper() -> None:
    """The file, the README's entries and the package name one version and one paper."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    (paper,) = citation["references"]
    assert citation["version"] == __version__ and "](CITATION.cff)" in README
    assert f"title   = {{{paper['title']}}}" in README


def test_counts_are_those_of_the_registry() -> None:
    """What comes with seu-bench and can be used; plugins of others do not count."""
    kinds = Registry().kinds
    counted = {kind: sum(entry.package == "seu-bench" for entry in kinds[kind].values()) for kind in KINDS}
    told = {kind: int(number) for number, kind in re.findall(rf"(\d+) (?:search )?({'|'.join(KINDS)})", README)}
    assert told == counted


def test_first_screen() -> None:
    """Setting, counts, a snippet and a picture come before the commands, each once."""
    first = README.partition("\n## ")[0]
    assert "task-incremental" in first and first.count("```python") == 1 and first.count("](docs/pictures/") == 1
    assert len(first.partition("```")[0].splitlines()) <= 13


def test_tables_of_what_is_there_are_complete() -> None:
    """Every strategy, searcher, creator, search space, backbone and benchmark is named, here or in the catalogue."""
    table = README.partition("## Methods")[2].partition("\n## ")[0]
    table += (ROOT / "docs" / "reference" / "catalogue.md").read_text(encoding="utf-8")
    kinds = Registry().kinds
    names = {name for kind in KINDS for name, entry in kinds[kind].items() if entry.package == "seu-bench"}
    assert names - set(re.findall(r"`(\w+)`", table)) == set()
