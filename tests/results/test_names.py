"""Display names and citations: stated by plugins, of built-ins in one file, plain names for what is not installed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support.shown import a_record

from seu_bench.plugin.methods import MethodFactory
from seu_bench.plugin.registry import Registry
from seu_bench.results.formats import to_bibtex
from seu_bench.results.names import bibtex_entries, display_benchmark, display_label, display_name, resolve_citation

KINDS = Registry().kinds
REFERENCES = Path(__file__).resolve().parents[2] / "plugins" / "seu_bench_kit" / "references.bib"

METHOD = '''
from typing import ClassVar

from seu_bench_methods.er_ace import ErAce


class Mine(ErAce):
    """Mine."""

    name = "mine"
    title: ClassVar[str] = "Mine++"
    citation = """@misc{me2026mine,
      title = {{Mine}}, year = {2026}
    }"""


class Heir(Mine):
    name = "heir"
'''


def test_every_built_in_has_a_display_name_and_every_reference_is_cited() -> None:
    """A key that is misspelled, or that nobody cites, is seen."""
    titles = [entry.title for entry in KINDS["strategies"].values() if entry.package == "seu-bench"]
    assert len(set(titles)) == len(titles) > 40 and not {"er_ace", "seu"} & {*titles}
    entries = [*KINDS["strategies"].values(), *KINDS["benchmarks"].values()]
    stated = {entry.name: str(getattr(entry.factory, "citation", "")) for entry in entries}
    cited = {entry.name: bibtex_entries(entry.citation) for entry in entries if stated[entry.name]}
    assert all(len(cited[name]) == len(stated[name].split()) for name in cited)
    assert KINDS["benchmarks"].keys() <= {*cited}
    every = bibtex_entries(REFERENCES.read_text("utf-8"))
    assert {key for found in cited.values() for key in found} == set(every)
    for entry in every.values():
        assert {"title", "author", "year"} <= {*re.findall(r"^  (\w+) += \{", entry, re.MULTILINE)}, entry
    assert all(entry.title != name for name, entry in KINDS["benchmarks"].items())
    title = yaml.safe_load((REFERENCES.parents[2] / "CITATION.cff").read_text("utf-8"))["title"]
    assert f"title  = {{{title}}}" in to_bibtex([])


def test_names_are_read_without_importing_a_method() -> None:
    """Of ``list`` and tables; a class passes neither on."""
    code = (
        "import sys; from seu_bench.plugin import Registry; entry = Registry().strategies['er_ace'];"
        "print(entry.title, len(entry.citation) > 99, {'torch', 'avalanche'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "ER-ACE True set()\n"


def test_a_method_states_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read from the source and from the class alike; one that inherits from it has another name."""
    (tmp_path / "mine_h3.py").write_text(METHOD)
    monkeypatch.syspath_prepend(tmp_path)
    factories = [MethodFactory("mine_h3:Mine"), MethodFactory("mine_h3:Heir")]
    for _ in range(2):
        assert [it.title for it in factories] == ["Mine++", ""]
        assert [[*bibtex_entries(it.citation)] for it in factories] == [["me2026mine"], []]
        factories = [MethodFactory(it.method) for it in factories]


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("er_ace (memory=500)", "ER-ACE (memory=500)"),
        ("seu + random + all_new", "SEU, random, all_new"),
        ("seu-random-all_new", "SEU, random, all_new"),
        ("derpp by Jane (x)", "DER++ by Jane (x)"),
        ("no_such - er_ace", "no_such - er_ace"),
        ("avalanche.training:Replay", "avalanche.training:Replay"),
        ("er_ace\n\x1b[31m", "er_ace [31m"),
    ],
)
def test_labels(label: str, shown: str) -> None:
    assert display_label(label, KINDS) == shown
    assert display_label(label, {}) == " ".join(label.replace("\x1b", " ").split())
    assert display_name("benchmarks", label, KINDS) == display_label(label, {})


def test_benchmarks() -> None:
    """With the scenario, and as many tasks as were learned."""
    record = a_record(2, benchmark="split_cifar100_class", scenario="class", task_names=("a", "b"))
    assert display_benchmark(record, KINDS) == "CIFAR-100, 2 tasks, class-incremental"
    own = record.model_copy(update={"benchmark_file": "mine.toml"})
    assert display_benchmark(record, {}) == display_benchmark(own, KINDS) == "split_cifar100_class, class-incremental"


def test_citations_of_strangers() -> None:
    """A text becomes a note, in which nothing is a command; an entry whose braces do not match is none."""
    entry = resolve_citation(r"A. Author, 100 % \input{x} {", "mine", "My_Data")
    assert (
        [*bibtex_entries(entry)] == ["mine"]
        and r"\input" not in entry
        and r"My\_Data" in entry
        and entry.count("{") == entry.count("}")
    )
    assert resolve_citation("seu_bench_kit:nobody no_such_package:key", "a", "A").strip() == ""
    assert bibtex_entries("@misc{a, title = {x}\n@misc{b,\n title={y}}\n@misc{c d, title={z}}") == {
        "b": "@misc{b,\n title={y}}"
    }
