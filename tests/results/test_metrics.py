"""Metrics against hand-made matrices, the paper's table of mixed scores and properties of random matrices."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seu_bench.metrics import (
    AccuracyMatrix,
    acc,
    avg_acc_curve,
    avg_incremental_acc,
    avg_incremental_image_acc,
    balanced_acc,
    bwt,
    chance_acc,
    cross_task_errors,
    forgetting,
    fwt,
    image_acc,
    intransigence,
    learning_acc,
    mixed_score,
    mixed_score_above_chance,
    task_accuracy,
)
from seu_bench.results.record import Record, StageRecord
from seu_bench.results.record_metrics import METRICS, compute_metrics

METRICS_PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"

# Three tasks; the entries above the diagonal are what the model answers for tasks that it has not learned.
MATRIX = ((0.9, 0.3, 0.2), (0.8, 0.7, 0.4), (0.6, 0.75, 0.5))

# The paper's table "Mixed Score": accuracy in percent, parameters in millions, score; in the order of BENCHMARKS.
BENCHMARKS = ("split CIFAR10", "split CIFAR100", "PMNIST", "Mixture")
PAPER = {
    "SGD": ((54.00, 12.98, 0.357), (47.62, 13.16, 0.335), (22.09, 9.49, 0.233), (39.54, 13.10, 0.305)),
    "EWC": ((67.49, 12.98, 0.399), (60.98, 13.16, 0.379), (88.20, 9.49, 0.466), (82.61, 13.10, 0.441)),
    "LTG": ((91.86, 31.00, 0.438), (65.53, 14.18, 0.391), (97.73, 40.66, 0.444), (95.33, 60.00, 0.426)),
    "PN": ((93.32, 368.55, 0.370), (66.76, 368.88, 0.313), (98.16, 794.18, 0.358), (96.12, 368.73, 0.375)),
    "SEU": ((94.13, 3.75, 0.513), (74.05, 3.84, 0.454), (97.91, 6.87, 0.502), (94.65, 3.44, 0.517)),
}
CELLS = [
    pytest.param(*cell, id=f"{method} {benchmark}")
    for method, row in PAPER.items()
    for benchmark, cell in zip(BENCHMARKS, row, strict=True)
]


def a_record(matrix: AccuracyMatrix, **fields: object) -> Record:
    given = {
        "run_id": "a",
        "status": "finished",
        "strategy": "naive",
        "benchmark": "b",
        "benchmark_version": 1,
        "protocol": "p",
        "seed": 0,
        "accuracy_matrix": matrix,
    }
    return Record.model_validate(given | fields)


class TestMixedScore:
    @pytest.mark.parametrize(("accuracy", "millions", "score"), CELLS)
    def test_reproduces_the_paper(self, accuracy: float, millions: float, score: float) -> None:
        assert f"{mixed_score(accuracy, round(millions * 1e6)):.3f}" == f"{score:.3f}"

    def test_table_of_the_documentation(self) -> None:
        """Each number of it is the formula's."""
        lines = METRICS_PAGE.read_text(encoding="utf-8").splitlines()
        start = next(place for place, line in enumerate(lines) if line.startswith("| parameters | score at 100 %"))
        rows = [line.strip("| ").split(" | ") for line in lines[start + 2 : start + 7]]
        for size, *told in rows:
            number = int(size.replace(",", ""))
            more = (mixed_score(100, number) / mixed_score(100, 10 * number)) ** 2  # accurate of ten times the size
            points = [f"+{accuracy * (more - 1):.1f} points" for accuracy in (50, 80)]
            assert told == [f"{mixed_score(100, number):.3f}", f"{more:.2f}", *points]
        assert len(rows) == 5 and mixed_score(61, 10**4) > mixed_score(78, 10**5)

    @pytest.mark.parametrize(("accuracy", "parameters"), [(-0.1, 1), (100.1, 1), (math.nan, 1), (50, -1)])
    def test_refuses_what_is_no_accuracy_or_size(self, accuracy: float, parameters: int) -> None:
        with pytest.raises(ValueError, match=r"between 0 and 100|not negative"):
            mixed_score(accuracy, parameters)


class TestAboveChance:
    @pytest.mark.parametrize(
        ("classes", "scenario", "chance"),
        [((2, 4), "task", 0.375), ((2, 4), "class", 1 / 6), ((5, 5), "domain", 0.2), ((2, 0), "task", None)],
    )
    def test_a_guess_has_nothing_at_any_size(self, classes: tuple[int, ...], scenario: Any, chance: float) -> None:
        assert chance_acc(classes, scenario) == (None if chance is None else pytest.approx(chance))
        scores = {mixed_score_above_chance(each, chance, 10**6) for each in (0.0, chance)}
        assert scores == ({None} if chance is None else {0.0})

    def test_grows_with_accuracy_and_falls_with_size(self) -> None:
        def score(accuracy: float, parameters: int) -> float:
            return mixed_score_above_chance(accuracy, 0.5, parameters) or 0.0

        assert score(1.0, 0) == 1 and score(0.75, 0) == 0.5
        assert score(0.9, 10**5) > score(0.8, 10**5) > score(0.8, 10**6) > 0

    @pytest.mark.parametrize("given", [(1.1, 0.5, 1), (0.5, 1.0, 1), (0.5, 0.1, -1), (math.nan, 0.1, 1)])
    def test_nothing_is_said_of_what_cannot_be(self, given: tuple[float, float, float]) -> None:
        assert mixed_score_above_chance(*given) is None


class TestMatrix:
    def test_by_hand(self) -> None:
        assert acc(MATRIX) == pytest.approx((0.6 + 0.75 + 0.5) / 3)
        assert avg_acc_curve(MATRIX) == pytest.approx([0.9, 0.75, (0.6 + 0.75 + 0.5) / 3])
        assert learning_acc(MATRIX) == pytest.approx((0.9 + 0.7 + 0.5) / 3)
        assert bwt(MATRIX) == pytest.approx(((0.6 - 0.9) + (0.75 - 0.7)) / 2)
        assert forgetting(MATRIX) == pytest.approx(((0.9 - 0.6) + (0.7 - 0.75)) / 2)
        rising = ((0.5,), (0.9, 0.8), (0.6, 0.8, 0.7))  # the best ever measured, not the one when learned
        assert (forgetting(rising), bwt(rising)) == pytest.approx((0.3 / 2, 0.1 / 2))

    def test_average_incremental_accuracy(self) -> None:
        """The mean of the curve, its first step included; nothing where a step was not measured."""
        final = (0.6 + 0.75 + 0.5) / 3
        assert avg_incremental_acc(MATRIX) == pytest.approx((0.9 + 0.75 + final) / 3)
        assert avg_incremental_acc(((0.5,),)) == 0.5
        for matrix in ((), ((), (0.5, 0.5)), ((0.9,), (0.8, None)), ((0.9,), ())):
            assert avg_incremental_acc(matrix) is None

    @pytest.mark.parametrize("missing", [None, math.nan])
    def test_what_needs_a_missing_entry_is_none(self, missing: float | None) -> None:
        last = ((0.9,), (0.8, 0.7), (0.6, missing, 0.5))
        assert (acc(last), bwt(last), forgetting(last)) == (None, None, None)
        assert learning_acc(last) is not None
        assert avg_acc_curve(last)[2] is None
        diagonal = ((0.9,), (0.8, missing), (0.6, 0.7, 0.5))
        assert (learning_acc(diagonal), bwt(diagonal), forgetting(diagonal)) == (None, None, None)
        assert acc(diagonal) == pytest.approx(0.6)
        assert avg_acc_curve(diagonal) == [pytest.approx(0.9), None, pytest.approx(0.6)]

    def test_rows_may_be_ragged(self) -> None:
        ragged = tuple(row[: index + 1] for index, row in enumerate(MATRIX))
        for function in (acc, learning_acc, bwt, avg_acc_curve, forgetting):
            assert function(ragged) == function(MATRIX)

    def test_only_the_last_row_is_filled_as_by_joint(self) -> None:
        joint = ((None, None, None), (), (0.6, 0.75, 0.5))
        assert acc(joint) == pytest.approx((0.6 + 0.75 + 0.5) / 3)
        assert (learning_acc(joint), bwt(joint), forgetting(joint)) == (None, None, None)
        assert avg_acc_curve(joint) == [None, None, acc(joint)]

    def test_intransigence_by_hand(self) -> None:
        """The diagonal is 0.9, 0.7, 0.5."""
        assert intransigence(MATRIX, (0.95, 0.9, 0.4)) == pytest.approx((0.05 + 0.2 - 0.1) / 3)
        assert intransigence(MATRIX, (0.9, 0.7, 0.5)) == 0.0
        assert intransigence(((0.0,), (0.0, 0.0)), (1.0, 1.0)) == 1.0
        assert intransigence(((1.0,), (1.0, 1.0)), (0.0, 0.0)) == -1.0
        assert intransigence(((0.4,),), (0.5,)) == pytest.approx(0.1)

    def test_properties_of_random_matrices(self) -> None:
        random_numbers = random.Random(20200301)
        for _ in range(200):
            tasks = random_numbers.randint(2, 8)
            learned = [random_numbers.random() for _ in range(tasks)]
            constant = [learned[: row + 1] for row in range(tasks)]
            assert forgetting(constant) == 0.0
            assert bwt(constant) == 0.0
            assert acc(constant) == learning_acc(constant)
            matrix = [[random_numbers.random() for _ in range(row + 1)] for row in range(tasks)]
            worst, best = forgetting(matrix), bwt(matrix)
            final, learning = acc(matrix), learning_acc(matrix)
            assert worst is not None and best is not None and final is not None and learning is not None
            # The maximum is at least the diagonal, and the last task adds nothing to either.
            assert worst >= -best - 1e-12
            assert (final - learning) * tasks == pytest.approx(best * (tasks - 1))
            assert avg_acc_curve(matrix)[-1] == final
            assert -1 <= worst <= 1 and 0 <= final <= 1


class TestConfusion:
    #: Of 10, 20 and 5 images.
    COUNTS = ((6, 3, 1), (2, 18, 0), (5, 0, 0))
    ACCURACIES = (0.5, 0.75, 0.0)

    def test_by_hand(self) -> None:
        """11 of 5 + 5 + 5 errors are a class of another task; tasks count the same, whatever their images."""
        assert cross_task_errors(self.COUNTS, self.ACCURACIES) == pytest.approx(11 / 15)
        assert task_accuracy(self.COUNTS) == pytest.approx((0.6 + 0.9 + 0.0) / 3)

    @pytest.mark.parametrize("counts", [(), ((), (1, 3)), ((4, 0), ()), ((4,), (0, 4)), ((0, 0), (0, 4))])
    def test_what_was_not_counted_is_none(self, counts: tuple[tuple[int, ...], ...]) -> None:
        assert (cross_task_errors(counts, (0.5, 0.5)), task_accuracy(counts)) == (None, None)

    def test_of_a_record(self) -> None:
        """Of the last row, and in the class-incremental scenario alone."""
        matrix = ((0.9, None), (0.5, 0.75))
        fields: dict[str, Any] = {"task_confusion": ((6, 4), (2, 18))}
        values = compute_metrics(a_record(matrix, scenario="class", **fields))
        assert values["cross_task_errors"] == pytest.approx(6 / 10)
        assert values["task_accuracy"] == pytest.approx(0.75)
        for scenario in ("task", "domain"):
            found = compute_metrics(a_record(matrix, scenario=scenario, **fields))
            assert (found["cross_task_errors"], found["task_accuracy"]) == (None, None)
            assert found["avg_incremental_acc"] == values["avg_incremental_acc"] == pytest.approx((0.9 + 0.625) / 2)


class TestOverImagesAndClasses:
    """Tasks with different numbers of images, classes with different numbers of them."""

    def test_over_images(self) -> None:
        """The share of all test images that is answered right; with as many images for each task, ``acc``."""
        assert image_acc([[1.0], [0.25, 1.0]], [48, 6]) == (12 + 6) / 54
        assert image_acc(MATRIX, [7, 7, 7]) == pytest.approx(acc(MATRIX))

    def test_over_images_at_each_step(self) -> None:
        """Of all images seen so far; against sums of single answers."""
        draws, images = np.random.default_rng(0), [50, 10, 25, 1]
        right = [[draws.random(count) < 0.6 for count in images[: row + 1]] for row in range(4)]
        matrix = [[float(it.mean()) for it in row] for row in right]
        steps = [float(np.concatenate(row).mean()) for row in right]
        assert avg_incremental_image_acc(matrix, images) == pytest.approx(np.mean(steps))
        assert avg_incremental_image_acc(matrix, images) != pytest.approx(avg_incremental_acc(matrix))
        assert avg_incremental_image_acc(MATRIX, [7, 7, 7]) == pytest.approx(avg_incremental_acc(MATRIX))
        unmeasured: list[Any] = [([], []), (matrix, images[:3]), (matrix[:3], images), ([[None], matrix[1]], [1, 1])]
        for given, numbers in unmeasured:
            assert avg_incremental_image_acc(given, numbers) is None

    def test_forward_transfer(self) -> None:
        """Without the first task, of which there is none; what was not measured is not 0."""
        assert fwt([None, 0.75, 0.5], [None, 0.25, 0.6]) == pytest.approx((0.5 - 0.1) / 2)
        for ahead, before in (([], []), ([None], [0.5]), ([None, 0.5], [None, None]), ([None, 0.5], [None])):
            assert fwt(ahead, before) is None
        found = compute_metrics(a_record(MATRIX, forward_accuracies=((None, None), (0.3, 0.1), (0.4, 0.5))))
        assert found["fwt"] == pytest.approx((0.2 - 0.1) / 2)
        assert found["forgetting"] == compute_metrics(a_record(MATRIX))["forgetting"]

    def test_over_classes(self) -> None:
        """A class with one image counts as much as one with 87; one without images does not count."""
        assert balanced_acc([[(85, 87), (0, 1)], [(1, 2), (0, 0)]]) == pytest.approx((85 / 87 + 0 + 0.5) / 3)
        assert balanced_acc([[(1, 1)], []]) is balanced_acc([]) is None


class TestComputeMetrics:
    STAGES = (
        StageRecord(name="search", task=0, epochs=1, seconds=2.0, image_passes=20, cpu_seconds=3.0),
        StageRecord(name="training", task=0, epochs=1, seconds=3.5, image_passes=30, cpu_seconds=4.5),
        StageRecord(name="evaluation", task=0, epochs=1, seconds=100.0, image_passes=1000),
    )

    def test_complete_record(self) -> None:
        record = a_record(
            MATRIX,
            params_total=(10, 20, 3_750_000),
            mask_bits=(0, 8, 16),
            params_active=(10, 11, 12),
            macs=(5, 6, 7),
            memory_bytes=(40, None, 20_000_000),
            stages=self.STAGES,
            task_classes=(2, 2, 2),
            task_images=((9, 9, 60), (9, 9, 20), (9, 9, 20)),
            task_class_counts=(((54, 57), (0, 3)), ((10, 20), (0, 0)), ((10, 20),)),
        )
        metrics = compute_metrics(record)
        final = (0.6 + 0.75 + 0.5) / 3
        assert metrics == {
            "acc": pytest.approx(final),
            "image_acc": pytest.approx((60 * 0.6 + 20 * 0.75 + 20 * 0.5) / 100),
            "balanced_acc": pytest.approx((54 / 57 + 0 / 3 + 0.5 + 0.5) / 4),
            "avg_incremental_acc": pytest.approx((0.9 + 0.75 + final) / 3),
            "avg_incremental_image_acc": pytest.approx((0.9 + (60 * 0.8 + 20 * 0.7) / 80 + 0.61) / 3),
            "task_accuracy": None,
            "cross_task_errors": None,
            "memory_added_bytes": None,
            "tuning_passes": None,
            "learning_acc": pytest.approx(0.7),
            "bwt": pytest.approx(-0.125),
            "forgetting": pytest.approx(0.125),
            "intransigence": None,
            "transfer": None,
            "percent_of_joint": None,
            "fwt": None,
            "params_total": 3_750_000,
            "mask_bits": 16,
            "params_active": 12,
            "macs": 7,
            "memory_bytes": 20_000_000,
            "mixed_score": pytest.approx(mixed_score(100 * final, 3_750_000)),
            "mixed_score_above_chance": pytest.approx((final - 0.5) / 0.5 * mixed_score(100, 3_750_000)),
            "mixed_score_memory": pytest.approx(mixed_score(100 * final, 5_000_000)),
            "train_seconds": 5.5,
            "train_cpu_seconds": 7.5,
            "search_seconds": 2.0,
            "train_flops": None,
            "search_flops": None,
            "image_passes": 50,
            "peak_memory_bytes": None,
            "peak_feature_bytes": None,
        }
        assert set(metrics) == set(METRICS)

    def test_nothing_measured_is_none_and_never_zero(self) -> None:
        metrics = compute_metrics(a_record(()))
        assert all(value is None for value in metrics.values())

    @pytest.mark.parametrize("told_by", ["task_order", "task_names", "task_classes"])
    def test_run_that_stopped_early_has_no_final_accuracy(self, told_by: str) -> None:
        tasks: tuple[object, ...] = ("a", "b", "c") if told_by == "task_names" else (2, 2, 2)
        record = a_record(((0.9,), (0.8, 0.7)), params_total=(10, 20), **{told_by: tasks})
        metrics = compute_metrics(record)
        assert [metrics[key] for key in ("acc", "learning_acc", "bwt", "forgetting", "mixed_score")] == [None] * 5
        assert metrics["params_total"] == 20


def test_modules_that_the_command_line_needs_import_nothing_heavy() -> None:
    code = (
        "import sys, seu_bench.metrics, seu_bench.results.leaderboard; from seu_bench.cli.main import CORE;"
        "[command.build() for command in CORE.values()];"
        "print(*sorted({'torch', 'avalanche', 'pandas', 'numpy', 'tabulate'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
