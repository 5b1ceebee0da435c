"""Accuracies drawn in the terminal: every number where it belongs, with and without colours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.commands import Command

from seu_bench.cli.plots import HEIGHT, WIDTH, accuracy_plots, heat_map, line_plot
from seu_bench.results.record_files import find_record
from tests.cli.test_tables import ODD, a_record, rendered

BASELINES = Path(__file__).resolve().parents[2] / "results" / "published" / "baselines"

MATRIX = ((1.0, None, None), (0.5, 0.8, None), (0.4, 0.7, 0.6))


def points(text: str, letter: str) -> dict[int, float]:
    """Column -> accuracy in percent of a letter's points, read off the axis as a reader would."""
    lines = [line for line in text.splitlines() if "|" in line]
    labels = {row: float(line.split("|")[0]) for row, line in enumerate(lines) if line.split("|")[0].strip()}
    top, bottom = labels[0], labels[len(lines) - 1]
    found = {}
    for row, line in enumerate(lines):
        for column, character in enumerate(line.partition("|")[2]):
            if character == letter:
                found[column] = top + (bottom - top) * row / (len(lines) - 1)
    return found


class TestHeatMap:
    def test_every_number_in_its_place(self) -> None:
        lines = rendered(heat_map(a_record(3, accuracy_matrix=MATRIX))).splitlines()
        assert [line.split() for line in lines[1:]] == [
            ["0", "1", "2"],
            ["0", "name-0", "100", "-", "-"],
            ["1", "name-1", "50", "80", "-"],
            ["2", "name-2", "40", "70", "60"],
        ]
        # Numbers stand below those of their columns.
        ends = [[match.end() for match in re.finditer(r"\S+", line)][-3:] for line in lines[1:]]
        assert len({tuple(column) for column in ends[1:]}) == 1

    def test_colours_say_the_same(self) -> None:
        """The lighter the better, and letters that can be read on it; none where nothing was measured."""
        values = tuple(task / 10 for task in range(11))
        text = rendered(
            heat_map(a_record(11, accuracy_matrix=((),) * 10 + (values,))),
            force_terminal=True,
            color_system="truecolor",
        )
        cells = re.findall(r"\x1b\[38;2;(\d+);\d+;\d+;48;2;(\d+);(\d+);(\d+)m +(\d+) \x1b", text)
        assert [int(cell[4]) for cell in cells] == [10 * task for task in range(11)]
        light = [0.2126 * int(red) + 0.7152 * int(green) + 0.0722 * int(blue) for _, red, green, blue, _ in cells]
        assert light == sorted(light)
        letters = [int(cell[0]) for cell in cells]
        assert all(abs(letter - background) > 90 for letter, background in zip(letters, light, strict=True))
        plain = rendered(heat_map(a_record(11, accuracy_matrix=((),) * 10 + (values,))))
        assert re.sub(r"\x1b\[[\d;]*m", "", text) == plain

    @pytest.mark.parametrize("tasks", [1, 12, 13, 30])
    def test_holds_in_the_width(self, tasks: int) -> None:
        full = tuple((1.0,) * tasks for _ in range(tasks))
        names = ("a rather long name of a task",) * tasks
        text = rendered(heat_map(a_record(tasks, accuracy_matrix=full, task_names=names)))
        assert len(re.findall(r" 100\b", text)) == tasks * tasks
        assert max(map(len, text.splitlines())) <= WIDTH + 2

    @pytest.mark.parametrize("matrix", [(), ((None,), (None, None))])
    def test_nothing_measured(self, matrix: Any) -> None:
        assert rendered(heat_map(a_record(2, accuracy_matrix=matrix))) == "no accuracy was measured\n"

    def test_what_is_no_accuracy(self) -> None:
        odd = ((float("nan"), 2.0), (-1.0, float("inf")))
        lines = rendered(heat_map(a_record(2, accuracy_matrix=odd, metrics={}))).splitlines()
        assert [line.split()[-2:] for line in lines[2:]] == [["-", "?"], ["?", "?"]]


class TestLinePlot:
    def test_points_are_where_the_axis_says(self) -> None:
        text = rendered(line_plot(a_record(3, accuracy_matrix=MATRIX)))
        step = 6
        half = (100 - 50) / (HEIGHT - 1) / 2
        averages = {0: 100.0, step: 65.0, 2 * step: 100 * (0.4 + 0.7 + 0.6) / 3}
        learned = {step: 80.0, 2 * step: 60.0}
        found = points(text, "*")
        assert found == {column: pytest.approx(value, abs=half) for column, value in averages.items() if column}
        assert points(text, "@") == {0: pytest.approx(100.0)}
        assert points(text, "o") == {column: pytest.approx(value, abs=half) for column, value in learned.items()}
        between = points(text, ".")
        assert set(between) == set(range(1, step)) | set(range(step + 1, 2 * step))
        assert all(between[column] >= between[column + 1] for column in range(1, step - 1))
        labels = text.splitlines()[-1]
        axis = next(line.index("|") + 1 for line in text.splitlines() if "|" in line)
        assert {int(match[0]): match.start() - axis for match in re.finditer(r"\d+", labels)} == {0: 0, 1: 6, 2: 12}

    @pytest.mark.parametrize("value", [0.0, 0.5, 1.0, 0.123])
    def test_equal_accuracies(self, value: float) -> None:
        text = rendered(line_plot(a_record(2, accuracy_matrix=((value, None), (value, value)))))
        assert list(points(text, "@").values()) == [pytest.approx(100 * value, abs=1)] * 2

    @pytest.mark.parametrize("tasks", [1, 20, 70, 150])
    def test_holds_in_the_width(self, tasks: int) -> None:
        full = tuple((0.5,) * tasks for _ in range(tasks))
        text = rendered(line_plot(a_record(tasks, accuracy_matrix=full)))
        assert text.count("@") == tasks + 1  # the legend has one
        assert max(map(len, text.splitlines())) <= WIDTH

    def test_stopped_run_and_joint(self) -> None:
        stopped = rendered(line_plot(a_record(3, accuracy_matrix=MATRIX[:2])))
        assert set(points(stopped, "*")) == {6} and set(points(stopped, "o")) == {6}
        joint = rendered(line_plot(a_record(3, accuracy_matrix=((), (), (0.5, 0.6, 0.7)))))
        assert (list(points(joint, "*")), list(points(joint, "o"))) == ([12], [12])
        assert "no accuracy of learned tasks" in rendered(line_plot(a_record(3, accuracy_matrix=())))


class TestCommand:
    def test_published_run(self, command: Command) -> None:
        name = "split_digits-quick-naive-seed0"
        answer = command("show", name, "--plot", "--results", BASELINES)
        assert (answer.status, answer.err) == (0, "")
        assert "\x1b" not in answer.out and max(map(len, answer.out.splitlines())) <= 80
        record = find_record(BASELINES, name)
        last = [f"{100 * value:.0f}" for value in record.accuracy_matrix[-1] if value is not None]
        assert [line.split()[3:] for line in answer.out.splitlines() if line.startswith("4 classes")] == [last]
        assert record.run_id in answer.out and "naive, seed 0, finished" in answer.out

    def test_whatever_a_record_holds(self) -> None:
        odd = a_record(3, accuracy_matrix=MATRIX, strategy="c\x1b[2J", task_names=(ODD, "a\x1b[31mb", "日本語" * 9))
        text = rendered(accuracy_plots(odd))
        assert "\x1b" not in text and "<script>" in text
        assert [line.split()[-3:] for line in text.splitlines() if line.startswith("2 ")] == [["40", "70", "60"]]
