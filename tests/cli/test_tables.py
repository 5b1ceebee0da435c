"""Tables for the terminal, rendered to text as on a plain output of 80 columns and on a colour terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.board_records import leaderboards
from support.shown import ODD, a_record, rendered

from seu_bench.cli.tables import leaderboard_table, matrix_table, metrics_table, record_summary
from seu_bench.results.record import StabilityRecord, StageRecord, write_record
from seu_bench.results.record_metrics import METRICS


class TestMatrix:
    def test_percent_and_gaps(self) -> None:
        lines = rendered(matrix_table(a_record())).splitlines()
        assert lines[0].strip() == "accuracy (%) on task ..."
        assert lines[3].split() == ["0", "name-0", "12.3", "-", "-"]
        assert lines[5].split() == ["2", "name-2", "14.3", "14.3", "14.3"]

    @pytest.mark.parametrize("tasks", [1, 10, 23])
    def test_no_number_is_cut_however_many_tasks_there_are(self, tasks: int) -> None:
        full = tuple((1.0,) * tasks for _ in range(tasks))
        names = tuple("a rather long name of a task, " * 2 for _ in range(tasks))
        text = rendered(matrix_table(a_record(tasks, accuracy_matrix=full, task_names=names)))
        assert text.count("100.0") == tasks * tasks
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= 80

    @pytest.mark.parametrize("tasks", [3, 12])
    def test_rows_without_measurements_are_left_out(self, tasks: int) -> None:
        """As those of joint, which is evaluated once, and of tasks that an interrupted run did not learn."""
        nothing = (None,) * tasks
        joint = (*(nothing,) * (tasks - 1), (0.5,) * tasks)
        rows = [line.split() for line in rendered(matrix_table(a_record(tasks, accuracy_matrix=joint))).splitlines()]
        last = [row for row in rows if row[1:2] == [f"name-{tasks - 1}"]]
        assert [row[0] for row in last] == [str(tasks - 1)] * (1 if tasks == 3 else 2)
        assert sum(row.count("50.0") for row in last) == tasks
        assert not any("name-0" in row for row in rows)
        stopped = ((0.25, *nothing[1:]), *(nothing,) * (tasks - 1))
        text = rendered(matrix_table(a_record(tasks, accuracy_matrix=stopped)))
        assert "name-0" in text and "25.0" in text and "name-1" not in text

    @pytest.mark.parametrize("matrix", [(), ((),), ((None, None), (None, None))])
    def test_nothing_measured(self, matrix: tuple[tuple[float | None, ...], ...]) -> None:
        text = rendered(matrix_table(a_record(accuracy_matrix=matrix, task_names=(), metrics={})))
        assert text == "no accuracy was measured\n"


class TestConfusion:
    def test_percent_of_each_tasks_images(self) -> None:
        """A row for each task that was evaluated; below the accuracy matrix of a class-incremental run."""
        record = a_record(scenario="class", task_confusion=((6, 3, 1), (0, 4, 0), ()))
        text = rendered(record_summary(record))
        lines = text[text.index("answered (%) as task ...") :].splitlines()
        assert lines[1].split() == ["images", "of", "0", "1", "2"]
        assert [line.split() for line in lines[3:5]] == [
            ["0", "name-0", "60.0", "30.0", "10.0"],
            ["1", "name-1", "0.0", "100.0", "0.0"],
        ]
        assert not lines[5].strip()
        assert "class-incremental: the task of a test image is not known" in " ".join(text.split())


class TestMetrics:
    def test_every_metric_with_value_and_definition(self) -> None:
        record = a_record(metrics={"acc": 0.5, "of_a_plugin": 12.5, "[bold]odd": None, "mixed_score": 0.123456})
        text = rendered(metrics_table(record), width=200)
        lines = [line.split(maxsplit=3) for line in text.splitlines()[3:]]
        assert [line[0] for line in lines] == ["acc", "mixed_score", "[bold]odd", "of_a_plugin"]
        assert lines[0][1:3] == ["50.00", "%"]
        assert lines[1][1] == "0.1235"
        assert lines[2][1:] == ["-"]
        assert METRICS["acc"].summary in text


class TestLeaderboard:
    def test_rows_and_what_was_excluded(self, tmp_path: Path) -> None:
        for seed in range(2):
            write_record(tmp_path, a_record(run_id=f"a{seed}", seed=seed))
        write_record(tmp_path, a_record(run_id="b", strategy=ODD, searcher=None, creator=None))
        write_record(tmp_path, a_record(run_id="c", synthetic=True))
        (board,) = leaderboards(tmp_path)
        text = rendered(leaderboard_table(board), width=200)
        assert "cifar10, version 1, protocol quick" in text
        assert f"data {'ab' * 32}" in text
        assert "1 record not ranked: synthetic data (c)" in text
        assert "seu + mdl + mdl" in text
        assert ODD in text
        assert "14.30 ± 0.00" in text
        narrow = rendered(leaderboard_table(board))
        assert max(map(len, narrow.splitlines())) <= 80
        assert "14.30 ± 0.00" in narrow
        assert "…" not in narrow
        assert "% of joint" not in text


class TestSummary:
    def test_tells_everything(self) -> None:
        text = rendered(record_summary(a_record()), width=200)
        for part in (
            "cifar10-quick-seu-s0-0123456789",
            "finished",
            "cifar10, version 1, protocol quick",
            "seu (decay=0.0003, rule=sum)",
            "mdl (alpha=0.01)",
            "2 1 0",
            "1 h 02 min",
            "cpu, 2 threads",
            "torch 2.15 Linux",
            "abc123",
            "name-2",
            METRICS["bwt"].summary,
            "1,234,567",
            "rewards at chance",
            "40%",
            "1,234,577",
            "1 min 01 s",
            'task 0: {"normal": [["sep_conv_3x3", 1]]}',
            "task 1: -",
            "task 1: 1 0 1",
            "layer 2: 0 1",
        ):
            assert part in text
        assert "ranked" in text and "yes" in text

    @pytest.mark.parametrize("console", [{}, {"force_terminal": True, "color_system": None}, {"legacy_windows": False}])
    def test_whatever_a_record_holds_is_shown_as_it_is(self, console: dict[str, Any]) -> None:
        record = a_record(
            strategy=ODD,
            searcher=ODD,
            options={ODD: ODD},
            task_names=(ODD, ODD, ODD),
            error=ODD,
            stages=(StageRecord(name=ODD, task=0, epochs=1, seconds=1.0, image_passes=1),),
            genotypes=({"[bold]": "[/bold]"},),
            metrics={ODD: 1.0},
        )
        text = rendered(record_summary(record), width=400, **console)
        assert text.count(ODD) >= 7
        assert '{"[bold]": "[/bold]"}' in text

    def test_clipped_steps_and_stability_are_shown_where_they_were_measured(self) -> None:
        def stage(share: float | None, value: float | None) -> StageRecord:
            stability = None if value is None else StabilityRecord(value=value, bound=3.8)
            return StageRecord(
                name="s", task=0, epochs=1, seconds=1.0, image_passes=1, clipped_share=share, stability=stability
            )

        text = rendered(record_summary(a_record(stages=(stage(0.925, 2.0), stage(None, 61.04), stage(0.0, None)))))
        assert "clipped steps" in text and " 92%" in text and " 0%" in text
        assert "61 at most, unstable (SGD is stable below 3.8)" in " ".join(text.split())
        text = rendered(record_summary(a_record(stages=(stage(None, None),))))
        assert "clipped" not in text and "stable" not in text
