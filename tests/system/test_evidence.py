"""docs/evidence/reproduction.md is what the published records say, and its sweeps can be run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the scripts are no installed package

from scripts.evidence import beside_paper, inheritance, scenarios, sweeps, transfer
from scripts.evidence.evidence import PARAMETERS, PROTOCOLS, SETS, Evidence, read_evidence
from scripts.evidence.page import PAGE, rendered
from scripts.evidence.runs import PAPER, ROOT, SEU
from seu_bench.config.tuned import TunedFile
from seu_bench.plugin.registry import Registry


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    """All published sets."""
    return read_evidence()


def test_page_comes_from_the_records() -> None:
    """To the letter: no number of it is typed, and no verdict."""
    assert PAGE.read_text(encoding="utf-8") == rendered()


def test_page_of_the_scenarios_comes_from_the_records() -> None:
    """So does that one."""
    assert scenarios.PAGE.read_text(encoding="utf-8") == scenarios.rendered()


def test_page_of_transfer_comes_from_the_records() -> None:
    """And that one."""
    assert transfer.PAGE.read_text(encoding="utf-8") == transfer.rendered()


def test_page_of_inheritance_comes_from_the_records() -> None:
    """And the one on what is our own."""
    assert inheritance.PAGE.read_text(encoding="utf-8") == inheritance.rendered()


def test_pictures_and_files_of_the_page_are_there() -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGE.read_text(encoding="utf-8"))
    absent = [link for link in links if "://" not in link and not (PAGE.parent / link).exists()]
    assert links and absent == []


def test_every_run_is_ranked_and_its_seeds_are_those_of_the_others(evidence: Evidence) -> None:
    """Of one benchmark and protocol all are on the same images; a set may be incomplete."""
    for name in SETS:
        for group in evidence.sets[name]:
            records = [record for row in group.rows.values() for record in row.runs.values()]
            assert all(record.may_be_ranked for record in records)
            assert len({record.data_fingerprint for record in records}) == 1
            assert {record.protocol for record in records} == {"half_day" if name == "half_day" else "quick"}


def test_seu_forgets_exactly_nothing(evidence: Evidence) -> None:
    """In no run of the evidence: each entry of a column of the accuracy matrix is the same number."""
    ours = [record for name in SETS for record in evidence.records(name) if record.strategy == SEU]
    assert len(ours) >= 9
    for record in ours:
        for task in range(len(record.accuracy_matrix)):
            assert len({row[task] for row in record.accuracy_matrix[task:]}) == 1
        assert record.metrics["forgetting"] == 0


@pytest.mark.parametrize(
    ("benchmark", "images"),
    [("split_cifar100", "1,000 of 9,000"), ("split_fashion", "400 of 10,800"), ("pmnist", "1,000 of 54,000")],
)
def test_what_differs_is_said(evidence: Evidence, benchmark: str, images: str) -> None:
    """Images, epochs and sizes that differ from the published protocol, those of the strategy and no others."""
    group = evidence.group("quick", benchmark)
    assert group is not None
    said = {name: "; ".join(beside_paper.differences(group.rows[name].record)) for name in (SEU, *PAPER)}
    assert all(text.startswith(f"{images} training images per task; 8 of 50 epochs") for text in said.values())
    assert "0.25 of the width" in said["pnn"] and "cells" not in said["pnn"] and "search" not in said["pnn"]
    assert "6 of 100 epochs of creation" in said["seu"] and "width" not in said["seu"]
    assert "8 of 36 channels" in said["seu"]


def test_sweeps_can_be_read() -> None:
    """Every file is one that the page knows, of strategies and components that there are, into its set."""
    others = {path.stem for path in (ROOT / sweeps.FOLDER).glob("reference_*.toml")}  # test_reference_numbers.py
    assert {path.stem for path in (ROOT / sweeps.FOLDER).glob("*.toml")} - others == {
        *sweeps.FILES,
        "hat_mlp",
        "hat_mlp_narrow",
        "probes",
        *scenarios.SWEEPS,
        *transfer.SWEEPS,
        *inheritance.SWEEPS,
        "compiled",
        "compiled_eager",
    }
    registry = Registry()
    kinds = {"strategy": registry.strategies, "searcher": registry.searchers, "creator": registry.creators}
    for file, (name, _) in sweeps.FILES.items():
        spec = sweeps.sweep(file)
        # Strategies are made as large as SEU from its runs, which must be in the same folder.
        assert spec.results.resolve() == ROOT / "results" / "evidence" / ("quick" if spec.match else name)
        assert (spec.match is not None) == (name == PARAMETERS)
        assert spec.protocol in PROTOCOLS and file.startswith(spec.protocol)
        for key, kind in kinds.items():
            assert [name for name in getattr(spec, key) if name not in kind] == [], file


def test_readme_claims_are_linked() -> None:
    """Every file named by the README's table of claims exists."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text[text.index("## What is measured") :].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "](" in line]
    assert len(rows) >= 5
    for row in rows:
        for link in re.findall(r"\]\(([^)#]+)", row):
            assert (ROOT / link).exists(), link


def test_components_are_trained_as_seu_is() -> None:
    """A tuned file holds for one searcher and creator; the others have its values by their sweeps."""
    tuned = TunedFile.read(ROOT / "benchmarks" / "tuned" / "split_fashion-quick-seu.toml")
    files = [file for file in sweeps.FILES if file.startswith(("quick_5", "quick_6", "quick_7"))]
    assert len(files) == 3
    for file in files:
        assert sweeps.sweep(file).options == {key: (value,) for key, value in tuned.options.items()}
