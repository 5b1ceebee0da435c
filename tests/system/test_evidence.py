"""docs/evidence/reproduction.md is what the published records say, and the parts that say it can be trusted."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pandas
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the scripts are no installed package

from scripts.evidence import answers, beside_paper, elsewhere, formatting
from scripts.evidence.page import PAGE, rendered
from scripts.evidence.runs import EVIDENCE, ROOT, STRATEGIES, by_seed, chosen, finished, reused_share

QUICK = ("split_cifar100", "split_fashion", "pmnist")


@pytest.fixture(scope="module")
def quick() -> pandas.DataFrame:
    """The runs of the quick part."""
    return finished(EVIDENCE / "quick")


def frame(metric: str, values: dict[int, float], **columns: Any) -> pandas.DataFrame:
    """Runs of one configuration."""
    return pandas.DataFrame([{"run_id": f"r{seed}", "seed": seed, metric: v, **columns} for seed, v in values.items()])


# --- what is published --------------------------------------------------------------------------------------------


def test_page_comes_from_the_records() -> None:
    """To the letter: no number of it is typed."""
    assert PAGE.read_text(encoding="utf-8") == rendered()


def test_pictures_and_files_of_the_page_are_there() -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", PAGE.read_text(encoding="utf-8"))
    absent = [link for link in links if "://" not in link and not (PAGE.parent / link).exists()]
    assert links and absent == []


@pytest.mark.parametrize("benchmark", QUICK)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_three_times_on_whole_data(quick: pandas.DataFrame, benchmark: str, strategy: str) -> None:
    """Seeds 0 to 2, ranked, of one protocol, and all of one benchmark on the same images."""
    runs = chosen(quick, benchmark=benchmark, strategy=strategy)
    assert sorted(runs["seed"]) == [0, 1, 2]
    assert runs["may_be_ranked"].all() and set(runs["protocol"]) == {"quick"}
    assert chosen(quick, benchmark=benchmark)["data_fingerprint"].nunique() == 1


def test_seu_forgets_exactly_nothing(quick: pandas.DataFrame) -> None:
    """In no run of the evidence: each entry of a column of the accuracy matrix is the same number."""
    others = (finished(EVIDENCE / name) for name in ("half_day", "quick_elsewhere", "questions"))
    ours = pandas.concat([quick, *others], ignore_index=True)
    ours = chosen(ours, strategy="seu")
    assert len(ours) >= 9
    for matrix in ours["accuracy_matrix"]:
        for task in range(len(matrix)):
            assert len({row[task] for row in matrix[task:]}) == 1
    assert (ours["forgetting"] == 0).all()


# --- what makes it ------------------------------------------------------------------------------------------------


def test_difference_in_words() -> None:
    """Mean and interval are those of the differences by seed; three seeds may be significant, two never."""
    base = frame("acc", {0: 0.5, 1: 0.6, 2: 0.7, 9: 0.1})
    better = frame("acc", {0: 0.6, 1: 0.7, 2: 0.81})
    # Differences 10, 10, 11 points: mean 10.33, t(0.975, 2) = 4.3027, deviation 0.5774: +- 1.434.
    assert formatting.difference(better, base, "acc") == "+10.3 points (3 seeds, +8.9 to +11.8; significant)"
    assert formatting.difference(base, better, "acc") == "-10.3 points (3 seeds, -11.8 to -8.9; significant)"
    unclear = frame("acc", {0: 0.4, 1: 0.7, 2: 0.71})
    assert formatting.difference(unclear, base, "acc").endswith("; not significant)")
    assert formatting.difference(better.iloc[:2], base, "acc").endswith("; too few seeds)")
    assert formatting.difference(better, base.iloc[3:], "acc") == "-"


def test_comparisons_are_counted() -> None:
    """Which way the seeds tell, over several pairs; and nothing of pairs with too few seeds."""
    base, up = frame("acc", {0: 0.5, 1: 0.6, 2: 0.7}), frame("acc", {0: 0.6, 1: 0.7, 2: 0.81})
    unclear = frame("acc", {0: 0.4, 1: 0.7, 2: 0.71})
    pairs = [(up, base), (base, up), (up, base), (unclear, base), (up.iloc[:2], base)]
    assert formatting.counted(pairs, "acc") == "above in 2, below in 1, not significant in 1"


def test_values_in_words() -> None:
    assert formatting.mean([0.5, 0.6, 0.7], "acc") == "60.0 ± 10.0 %"
    assert formatting.mean([1234567], "params_total") == "1,234,567"
    assert formatting.mean([], "acc") == formatting.mean([float("nan"), 1.0], "acc") == "-"


def test_two_configurations_are_not_mixed() -> None:
    """Two runs of one seed are of two configurations: nothing is averaged over them."""
    runs = pandas.concat([frame("acc", {0: 0.5}), frame("acc", {0: 0.6})])
    with pytest.raises(ValueError, match="more than one run of a seed"):
        by_seed(runs, "acc")


def test_share_that_is_reused() -> None:
    """Of the places of later tasks: task 1 reuses 1 of 2, task 2 reuses 2 of 2, one of them made by task 1."""
    run = {"paths": ((0, 0), (0, 1), (0, 1)), "unit_tasks": ((0,), (0, 1))}
    assert reused_share(pandas.DataFrame([run])).tolist() == [0.75]


@pytest.mark.parametrize("benchmark", QUICK)
def test_what_differs_is_said(quick: pandas.DataFrame, benchmark: str) -> None:
    """Images, epochs and sizes that differ from the published protocol, those of the strategy and no others."""
    said = {
        strategy: "; ".join(beside_paper.differences(chosen(quick, benchmark=benchmark, strategy=strategy).iloc[0]))
        for strategy in STRATEGIES
    }
    images = {"split_cifar100": "400 of 9,000", "split_fashion": "200 of 10,800", "pmnist": "400 of 54,000"}
    assert all(
        text.startswith(f"{images[benchmark]} training images per task; 8 of 50 epochs") for text in said.values()
    )
    assert "0.25 of the width" in said["pnn"] and "cells" not in said["pnn"] and "search" not in said["pnn"]
    assert "6 of 100 epochs of creation" in said["seu"] and "width" not in said["seu"]
    assert "8 of 36 channels" in said["seu"]


def test_equal_runs() -> None:
    """Those of one seed, to the last bit; what was not measured equals what was not measured."""
    ours = pandas.DataFrame({"seed": [0, 1, 2], "accuracy_matrix": [((0.5, None),), ((0.6, None),), ((0.7, None),)]})
    theirs = pandas.DataFrame(
        {"seed": [1, 0, 3], "accuracy_matrix": [((0.6, None),), ((0.5 + 1e-9, None),), ((0.7, None),)]}
    )
    assert elsewhere.equal_runs(ours, theirs) == 1


def test_rule_by_itself() -> None:
    """The sum lets a good candidate become likely; the softmax keeps it where it was, at one in eight."""
    (by_sum, found), (by_softmax, found_as_well) = (answers.without_training(rule) for rule in ("sum", "softmax"))
    assert by_sum > 1.5 / 8 and abs(by_softmax - 1 / 8) < 0.01
    assert found > 0.9 and found_as_well > 0.9


def test_readme_claims_are_linked() -> None:
    """Every file named by the README's table of claims exists."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text[text.index("## What is measured") :].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ") and "](" in line]
    assert len(rows) >= 5
    for row in rows:
        for link in re.findall(r"\]\(([^)#]+)", row):
            assert (ROOT / link).exists(), link
