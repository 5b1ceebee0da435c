"""Scenarios in the report: sections of their own, said in words, and the figure of what is confused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.report_records import configuration, published, put, put_all

from seu_bench.config.streams import SCENARIOS
from seu_bench.results.building import read_leaderboards
from seu_bench.results.comparison import compare_over_benchmarks
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import METRICS, SCENARIO_METRICS
from seu_bench.results.report import Limits, write_report
from seu_bench.results.report.draw_confusion import task_confusions
from seu_bench.results.report.draw_ranks import rank_sections
from seu_bench.results.report.page.overview import overviews
from seu_bench.results.report.sections import read_sections
from seu_bench.results.report.summary import Configuration
from seu_bench.results.scenarios import definition

#: Of ten images of each of the five tasks of the sample records, as many of the next task as the number says.
SHIFTED = (1, 2, 0, 4, 3)
OVERRIDES = {"stream.scenario": "class"}


def confusion(shifted: Sequence[int] = SHIFTED) -> list[list[int]]:
    """Ten images of each task, some of them taken for the next one, of the last task for the first."""
    counts = [[0] * len(shifted) for _ in shifted]
    for task, moved in enumerate(shifted):
        counts[task][task] = 10 - moved
        counts[task][(task + 1) % len(shifted)] += moved
    return counts


def class_record(strategy: str, seed: int, **fields: Any) -> Record:
    """A sample record as if it were class-incremental."""
    given: dict[str, Any] = {"scenario": "class", "benchmark_overrides": OVERRIDES, "task_confusion": confusion()}
    return Record.model_validate(published(strategy, seed).model_dump() | given | fields)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample records, and some of them in another scenario."""
    folder = put_all(tmp_path_factory.mktemp("results"), ("naive", "seu", "joint"))
    metrics = {"avg_incremental_acc": 0.5, "task_accuracy": 0.8, "cross_task_errors": 0.9}
    for strategy in ("naive", "joint"):
        for seed in (0, 1, 2):
            record = class_record(strategy, seed)
            put(folder, record, run_id=f"class-{strategy}-{seed}", metrics=dict(record.metrics) | metrics)
    return folder


@pytest.fixture(scope="module")
def page(results: Path) -> str:
    written = write_report(results, limits=Limits(figures=30), is_interactive=False)
    assert written.groups == 2
    return unescape(written.page.read_text(encoding="utf-8"))


class TestPage:
    def test_a_section_for_each_scenario(self, page: str) -> None:
        """With the scenario in the heading, and in words where it is not the usual one."""
        (plain, by_class) = re.findall(r"<summary><h2>(split_digits[^<]*)</h2>", page)
        assert by_class == f"{plain}, class-incremental"
        assert page.count(f"<p>{definition('class').capitalize()}.</p>") == 1
        assert definition("task").capitalize() not in page

    def test_cards(self, page: str) -> None:
        shown = re.findall(r'<a href="#group-\d">split_digits</a> <span class="muted">version \d, ([^<]*)</span>', page)
        assert shown == ["protocol quick", "protocol quick, class-incremental"]

    def test_definitions_of_all_columns(self, page: str) -> None:
        """Also of those that the first section has not; each once."""
        for name in SCENARIO_METRICS:
            assert page.count(f"<dt>{METRICS[name].column}</dt><dd>{METRICS[name].summary}</dd>") == 1
        assert page.count(f"<dt>{METRICS['acc'].column}</dt>") == 1

    def test_the_figure_of_confusion(self, page: str, results: Path) -> None:
        """In the section of that scenario alone, with its numbers as a table."""
        assert page.count("<h4>Confusion between tasks</h4>") == 1
        names = [path.name for path in (results / "figures").glob("*task-confusion.pdf")]
        assert len(names) == 1 and names[0].startswith("split_digits-class-v")
        row = re.search(r'<th scope="row">1 naive[^<]*</th><td>1</td>(.*?)</tr>', page[page.index("images of task") :])
        assert row is not None
        assert re.findall("<td>(.*?)</td>", row[1]) == [
            "0.0 ± 0.0",
            "80.0 ± 0.0",
            "20.0 ± 0.0",
            "0.0 ± 0.0",
            "0.0 ± 0.0",
        ]

    def test_captions(self, results: Path) -> None:
        """They say the scenario where it is not the usual one."""
        sections, _, _ = read_sections(results, None, None, Limits())
        for section, said in zip(sections, (False, True), strict=True):
            for picture in section.comparing:
                assert ("protocol quick, class-incremental" in picture.caption) is said


def test_the_papers_numbers_are_task_incremental(tmp_path: Path) -> None:
    """Beside other scenarios there are none."""
    place = {"benchmark": "pmnist", "benchmark_version": 1, "protocol": "paper"}
    for scenario in SCENARIOS:
        put(tmp_path, published("naive", 0), run_id=scenario, scenario=scenario, **place)
    sections, _, _ = read_sections(tmp_path, None, None, Limits(figures=0))
    assert [section.place for section in sections] == [("pmnist", 1, "paper"), ("", 0, ""), ("", 0, "")]


def test_over_benchmarks(tmp_path: Path) -> None:
    """Tables and diagrams of one scenario each; their files have different names."""
    for benchmark in ("one", "two"):
        for strategy in ("naive", "seu"):
            put(tmp_path, published(strategy, 0), run_id=f"{benchmark}-{strategy}", benchmark=benchmark)
            record = class_record(strategy, 0)
            put(tmp_path, record, run_id=f"{benchmark}-{strategy}-class", benchmark=benchmark)
    boards = read_leaderboards(tmp_path).boards
    found = overviews(boards, compare_over_benchmarks(boards))
    assert [each.place for each in found] == ["protocol quick", "protocol quick, class-incremental"]
    assert [{board.scenario for board in each.boards} for each in found] == [{"task"}, {"class"}]
    assert all(each.ranks is not None and len(each.boards) == 2 for each in found)
    ranks = rank_sections(boards, 10)
    assert [each.name for each in ranks] == ["over-benchmarks-quick", "over-benchmarks-quick-class"]
    assert ["Protocol quick, class-incremental;" in each.picture.caption for each in ranks] == [False, True]


@pytest.mark.usefixtures("report_settings")
class TestFigure:
    def drawn(self, *confusions: Any) -> Configuration:
        return configuration(*(class_record("naive", seed, task_confusion=it) for seed, it in enumerate(confusions)))

    def test_shares_are_means_over_seeds(self) -> None:
        """Of a task's images, in percent."""
        picture = task_confusions([self.drawn(confusion(), confusion((3, 2, 2, 4, 5)))])
        assert picture is not None and picture.kind == "task-confusion"
        figure = picture.draw()
        axes = figure.axes[0]
        (mesh,) = axes.collections
        values = np.asarray(mesh.get_array())
        assert np.diag(values).tolist() == pytest.approx([80, 80, 90, 60, 60])
        assert values.sum(axis=1).tolist() == pytest.approx([100] * 5)
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("answered as task", "images of task")
        assert sorted(text.get_text() for text in axes.texts)[-3:] == ["80", "80", "90"]
        assert "images of task 3 with task 4, 40.0 ± 0.0 %" in picture.alt
        assert picture.numbers[1][1:3] == ("0", "80.0 ± 14.1")

    def test_rows_that_were_not_counted_are_blank(self) -> None:
        """As of a run that learned some of its tasks."""
        picture = task_confusions([self.drawn([*confusion()[:2], [], [], []])])
        assert picture is not None
        (mesh,) = picture.draw().axes[0].collections
        assert np.ma.getmaskarray(mesh.get_array()).any(axis=1).tolist() == [False, False, True, True, True]
        assert len(picture.numbers) == 1 + 2

    @pytest.mark.parametrize("counts", [[], [[]] * 5, [[0] * 5] * 5])
    def test_nothing_counted(self, counts: list[list[int]]) -> None:
        assert task_confusions([self.drawn(counts)]) is None

    def test_only_where_it_was_counted(self) -> None:
        picture = task_confusions([self.drawn(()), self.drawn(confusion())])
        assert picture is not None and len(picture.draw().axes) == 1 + 1

    def test_one_task_and_very_many(self) -> None:
        """What nothing can be confused with is drawn all the same; long tables are left out."""
        for tasks in (1, 30):
            one = {"task_names": ("a",) * tasks, "task_order": tuple(range(tasks)), "accuracy_matrix": ()}
            record = class_record("naive", 0, **one, task_confusion=confusion((0,) * tasks))
            picture = task_confusions([configuration(record)])
            assert picture is not None and picture.draw().axes
            assert bool(picture.numbers) == (tasks == 1)

    def test_ragged_counts_of_a_stranger(self) -> None:
        picture = task_confusions([self.drawn([[5], [1, 2, 3, 4, 5, 6, 7], [2, 2]])])
        assert picture is not None and picture.draw().axes
