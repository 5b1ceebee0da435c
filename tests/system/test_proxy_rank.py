"""Kendall's tau of what searches score by: the script measures, and the page's table is made of its file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from support.tiny import all_threads, one_thread

from scripts import proxy_rank

setup_module, teardown_module = one_thread, all_threads

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "results" / "published" / "proxy_rank.json"
PAGE = ROOT / "docs" / "reference" / "searchers.md"


def test_the_page_has_the_table_of_the_file() -> None:
    """No number of it was typed."""
    page = PAGE.read_text(encoding="utf-8")
    document = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    assert proxy_rank.inserted(page, proxy_rank.table(document)) == page


def test_published_file() -> None:
    """Twenty genotypes in each part, all different, each scored and trained, and accuracies of withheld images."""
    for parts in json.loads(PUBLISHED.read_text(encoding="utf-8"))["benchmarks"].values():
        for part in parts.values():
            assert len({json.dumps(genotype) for genotype in part["genotypes"]}) == 20
            assert set(part["scores"]) == set(proxy_rank.SCORES)
            assert {len(values) for values in [*part["scores"].values(), *part["accuracies"]]} == {20}
            withheld = part["images"][1]
            for accuracy in (value for values in part["accuracies"] for value in values):
                assert accuracy * withheld == pytest.approx(round(accuracy * withheld), abs=1e-6)


@pytest.mark.parametrize(
    ("scores", "accuracies", "tau"),
    [
        ([1.0, 2.0, 3.0, 4.0], [0.1, 0.2, 0.3, 0.4], 1.0),
        ([1.0, 2.0, 3.0, 4.0], [0.4, 0.3, 0.2, 0.1], -1.0),
        # Of six pairs five agree and one does not.
        ([1.0, 2.0, 4.0, 3.0], [0.1, 0.2, 0.3, 0.4], 4 / 6),
        ([None, 2.0, 3.0, 4.0], [0.1, 0.2, 0.3, 0.4], 1.0),
        # Tau-b of a tie among the scores: five pairs agree, of sqrt(5 * 6).
        ([1.0, 1.0, 3.0, 4.0], [0.1, 0.2, 0.3, 0.4], 5 / math.sqrt(30)),
        ([0.5] * 4, [0.1, 0.2, 0.3, 0.4], 0.0),
    ],
)
def test_tau(scores: list[float | None], accuracies: list[float], tau: float) -> None:
    """By hand; what has no score is the worst, and equal scores rank nothing."""
    found, p = proxy_rank.tau_of(scores, accuracies)
    assert found == pytest.approx(tau) and 0 <= p <= 1
    assert tau or p == 1


@pytest.mark.long
def test_measures_and_keeps_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two genotypes on made-up images: a part for each benchmark and seed, the same again from the same seed; a second
    call measures nothing."""
    setting = proxy_rank.setting
    monkeypatch.setattr(proxy_rank, "setting", lambda *given: setting(*given, synthetic=True))
    file = tmp_path / "found.json"
    given = [
        "--benchmarks",
        "split_digits",
        "--protocol",
        "smoke",
        "--genotypes",
        "2",
        "--seeds",
        "1",
        "--repeats",
        "1",
    ]
    proxy_rank.main(["measure", *given, "--output", str(file)])
    document = json.loads(file.read_text(encoding="utf-8"))
    (part,) = document["benchmarks"]["split_digits"].values()
    assert set(part["scores"]) == set(proxy_rank.SCORES) and len(part["accuracies"]) == 1
    found: dict[str, Any] = proxy_rank.measure(setting("split_digits", "smoke", 0, None, synthetic=True), 2, 1)
    assert {**found, "cpu_seconds": 0} == {**part, "cpu_seconds": 0}
    monkeypatch.setattr(proxy_rank, "measure", lambda *_: pytest.fail("it is there already"))
    proxy_rank.main(["measure", *given, "--output", str(file)])
    page = tmp_path / "page.md"
    page.write_text(f"before\n{proxy_rank.BEGIN}\nold\n{proxy_rank.END}\nafter\n", encoding="utf-8")
    proxy_rank.main(["table", str(file), "--write", str(page)])
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "old" not in text
    assert all(label in text for label in proxy_rank.SCORES.values())
