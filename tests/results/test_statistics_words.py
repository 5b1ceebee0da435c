"""Differences as text: units, signs, and what there is no number for."""

from __future__ import annotations

from seu_bench.results import METRICS, compare_paired
from seu_bench.results.statistics.words import HEADINGS, difference_cells


def test_in_the_unit_of_the_column() -> None:
    """Accuracies in points with their sign; t(0.975, 2) = 4.303, deviation 1 point: 2.48 points about the mean."""
    (found,) = compare_paired([({0: 0.51, 1: 0.52, 2: 0.53}, dict.fromkeys(range(3), 0.5))])
    cells = difference_cells(found, METRICS["acc"])
    assert cells[:4] == ("+2.00", "-0.48 to +4.48", "+1.00 to +3.00", "not significant")
    assert (cells.effect, cells.detectable) == ("+1.13", "3.26")
    assert cells.p_value == cells.corrected == "0.0742"
    assert len(HEADINGS) == len(cells)


def test_lower_and_clear() -> None:
    (found,) = compare_paired([({seed: 1e6 + seed for seed in range(3)}, {seed: 5e6 + 2 * seed for seed in range(3)})])
    cells = difference_cells(found, METRICS["params_total"])
    assert (cells.difference, cells.verdict, cells.corrected) == ("-4.000", "significant", "<0.0001")


def test_nothing_to_say() -> None:
    """No common seed, one, and two."""
    family = [({0: 0.5}, {1: 0.5}), ({0: 0.5}, {0: 0.4}), ({0: 0.5, 1: 0.6}, {0: 0.4, 1: 0.45})]
    none, one, two = (difference_cells(found, METRICS["acc"]) for found in compare_paired(family))
    assert set(none) == {"-", "too few seeds"}
    assert one[:4] == ("+10.00", "-", "-", "too few seeds")
    assert two.interval != "-" and two[3:6] == ("too few seeds", "-", "-") and two.corrected == "-"
