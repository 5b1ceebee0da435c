"""Leaderboards: aggregated as a direct computation says, never mixed, and safe with whatever a record holds."""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.board_records import COLUMNS, DATA, ODD, OTHER_DATA, Put, excluded, frame, leaderboards
from support.commands import Command
from support.shown import rendered

from seu_bench.cli.tables import leaderboard_table
from seu_bench.errors import ResultsError
from seu_bench.results.building import load_records, make_leaderboards, read_leaderboards, unranked_leaderboards
from seu_bench.results.comparison import compare_over_benchmarks
from seu_bench.results.formats import intervals, notes, to_csv, to_latex, to_markdown
from seu_bench.results.leaderboard import Leaderboard, parse_view
from seu_bench.results.record import TuningRecord
from seu_bench.results.reference_rows import REFERENCE_ROWS
from seu_bench.utils.text import printable


def table_rows(markdown: str, part: str = "") -> list[list[str]]:
    """Cells of the table of a page's part, by default the first, cut at unescaped pipes."""
    (text,) = [text for text in f"## \n{markdown}".split("## ") if text.startswith(f"{part}\n")]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.findall(r"(?:\\.|[^|\\])+", line)] for line in lines]


def names(board: Leaderboard) -> list[str]:
    return [row.configuration for row in board.rows]


class TestAggregation:
    def test_numbers_are_those_of_a_direct_computation(self, tmp_path: Path, put: Put) -> None:
        records = [put(seed, acc, parameters=1_000_000 + 10 * seed) for seed, acc in enumerate((0.5, 0.7, 0.55))]
        (board,) = leaderboards(tmp_path)
        (row,) = frame(board).to_dict("records")
        assert (row["seeds"], board.records, row["configuration"]) == (3, 3, "naive")
        measured = [key for key, metric in COLUMNS.items() if not metric.relative]
        assert len(measured) == len(COLUMNS) - 2
        for key in measured:
            values = [float(record.metrics[key] or 0) for record in records]
            assert row[f"{key}_mean"] == pytest.approx(statistics.fmean(values))
            assert row[f"{key}_std"] == pytest.approx(statistics.stdev(values))
        assert intervals(board, ["acc", "intransigence"])[0][2:] == ["32.48 to 84.19", "-"]
        assert "\\* 58.33 ± 10.41" in table_rows(to_markdown(board))[2]

    @pytest.mark.parametrize("metrics", [{}, {"acc": None}])
    def test_what_a_seed_lacks_is_blank_and_not_zero(self, tmp_path: Path, put: Put, metrics: dict[str, Any]) -> None:
        put(0)
        put(1, metrics=metrics)
        put(0, acc=0.01, strategy="worst")
        put(1, acc=0.01, strategy="worst")
        (board,) = leaderboards(tmp_path)
        assert names(board) == ["worst", "naive"]
        assert [row.rank for row in board.rows] == [1, None]
        assert board.cells()[1][3:] == ["-"] * len(COLUMNS)
        assert "" in {row["mixed_score_mean"] for row in csv.DictReader(io.StringIO(to_csv([board])))}

    def test_repeated_seed_counts_the_latest(self, tmp_path: Path, put: Put) -> None:
        put(0, 0.9, started="2026-01-02T00:00:00")
        put(0, 0.1, started="2026-01-01T00:00:00")
        (board,) = leaderboards(tmp_path)
        assert (board.records, frame(board)["acc_mean"].tolist()) == (1, [0.9])
        assert board.excluded == ("1 record not counted: a later record has the same configuration and seed (run-002)",)


class TestConfigurations:
    @pytest.mark.parametrize(
        "change",
        [
            {"strategy": "ewc"},
            {"searcher": "darts"},
            {"creator": "random"},
            {"options": {"a": 1}},
            {"searcher_options": {"a": 1}},
            {"creator_options": {"a": 1}},
            {"benchmark_overrides": {"stream.validation": 0.3}},
            {"protocol_settings": {"training": {"epochs": 3}}},
        ],
    )
    def test_each_choice_is_a_row_and_label_of_its_own(self, tmp_path: Path, put: Put, change: dict[str, Any]) -> None:
        put(0)
        put(1, **change)
        (board,) = leaderboards(tmp_path)
        assert len(set(names(board))) == 2 and [row.seeds for row in board.rows] == [1, 1]

    def test_label_names_only_what_differs_within_a_strategy(self, tmp_path: Path, put: Put) -> None:
        seu = {"strategy": "seu", "searcher": "mdl", "creator": "mdl", "searcher_options": {"alpha": 0.01, "edges": 14}}
        put(0, 0.9, **seu, options={"decay": 0.1, "same": "x"}, creator_options={"old": 10})
        put(0, 0.8, **seu, options={"decay": "none", "same": "x"}, creator_options={"old": 10})
        put(0, 0.7, **seu, options={"decay": "1", "same": "x"}, creator_options={"old": 0})
        put(0, 0.6, **seu | {"searcher": "random"}, options={"decay": "1", "same": "x"}, creator_options={"old": 0})
        put(0, 0.5, options={"decay": 0.5}, benchmark_overrides={"stream.validation": 0.3})
        assert names(leaderboards(tmp_path)[0]) == [
            "seu + mdl + mdl (decay=0.1, creator.old=10)",
            "seu + mdl + mdl (decay=none, creator.old=10)",
            'seu + mdl + mdl (decay="1", creator.old=0)',
            'seu + random + mdl (decay="1", creator.old=0)',
            "naive (benchmark.stream.validation=0.3)",
        ]


PROTOCOL = {"training": {"epochs": 8}, "strategies": {"hat": {"epochs": 200}}}


def given(**options: Any) -> dict[str, Any]:
    """Fields of a record whose run was given these options; ``rate`` has a default."""
    fields = {"options": {"epochs": None, "rate": 0.5, **options}, "given_options": tuple(options)}
    return fields | {"protocol_settings": PROTOCOL}


class TestConditions:
    def test_what_all_share_is_in_every_table(self, tmp_path: Path, put: Put, command: Command) -> None:
        """Rows whose strategy has no such option do not matter."""
        put(**given(epochs=1), precision="bf16")
        put(strategy="ewc", **given(epochs=1, rate=0.7), precision="bf16")
        put(strategy="nearest_mean", precision="bf16", given_options=(), protocol_settings=PROTOCOL)
        (board,) = leaderboards(tmp_path)
        assert board.changed == {"epochs": 1, "precision": "bf16"}
        said = "options changed from the protocol, in every row that has them: epochs=1, precision=bf16"
        answer = " ".join(command("leaderboard", "--results", tmp_path).out.split())
        assert all(said in text for text in (answer, to_markdown(board), board._repr_html_()))
        assert said[1:] in to_latex(board).partition(r"\label")[0]
        assert "ewc (rate=0.7, precision=bf16)" in names(board)
        assert {"ewc (rate=0.7)", "nearest_mean"} <= {*names(board.with_display_names())}
        labels = ["ewc (epochs=1, precision=bf16)", "ewc (epochs=1, precision=bf16, x=2)", "ewc (x=2, epochs=1)"]
        rows = [replace(board.rows[0], configuration=label) for label in labels]
        assert names(replace(board, rows=rows).with_display_names()) == ["ewc", "ewc (x=2)", "ewc (x=2)"]

    def test_only_what_differs_from_the_protocol(self, tmp_path: Path, put: Put) -> None:
        """No changes: a default, what the protocol says, also for a strategy alone, and what its tuning chose."""
        tuned = {"id": "x", "sha256": "0" * 64, "method": "first-tasks:3", "runs": 1, "image_passes": 1}
        put(**given(epochs=8))
        put(strategy="hat", **given() | {"options": {"epochs": 200, "rate": 0.5}})
        put(strategy="ewc", **given() | {"options": {"rate": 0.9}}, tuned=tuned | {"options": {"rate": 0.9}})
        (board,) = leaderboards(tmp_path)
        assert board.changed == {} and set(names(board)) == {"naive", "hat", "ewc"}

    def test_older_and_foreign_records(self, tmp_path: Path, put: Put) -> None:
        """They do not say what was given: what the protocol decides is known. Settings may be anything."""
        put(options={"epochs": 1, "rate": 0.7}, protocol_settings=PROTOCOL)
        put(protocol="odd", options={"epochs": [1]}, given_options=("epochs",), protocol_settings={"training": 3})
        assert [board.changed for board in leaderboards(tmp_path)] == [{"epochs": [1]}, {"epochs": 1}]

    def test_unequal_memories_are_told(self, tmp_path: Path, put: Put) -> None:
        """By whatever name a method has the option; those without one are not."""
        put(strategy="icarl", options={"memory": 519})
        put(strategy="icarl", options={"memory": 100})
        put(strategy="replay", options={"mem_size": 200})
        put(strategy="gem", options={"patterns_per_experience": 40}, task_order=(0, 1, 2, 3, 4))
        put()
        (board,) = leaderboards(tmp_path)
        kept = {"icarl (519 images)", "icarl (100 images)", "replay (200 images)", "gem (200 images)"}
        assert set(names(board)) == {*kept, "naive"}
        said = "memories are not equal: rows keep 100 or 200 or 519 images"
        assert said in to_markdown(board) and said[1:] in to_latex(board).partition(r"\label")[0]
        put(strategy="icarl", options={"memory": 200}, protocol="equal")
        put(strategy="replay", options={"mem_size": 200}, protocol="equal")
        assert set(names(leaderboards(tmp_path)[0])) == {"icarl", "replay"}

    def test_tuned_rows_are_marked(self, tmp_path: Path, put: Put) -> None:
        known: dict[str, Any] = {"id": "x", "sha256": "ab" * 32, "seeds": (100,), "runs": 8, "image_passes": 6_000_000}
        for seed in range(3):
            put(seed, 0.7, strategy="a", tuned=TuningRecord(**known, method="whole-stream"))
        put(0, 0.5, strategy="b")
        (board,) = leaderboards(tmp_path)
        assert [row[1] for row in board.cells()] == ["a †", "b"]
        assert any("whole-stream, which uses validation images of all tasks" in line for line in notes(board))
        (tuning,) = board.document()["rows"][0]["tunings"]
        assert tuning["image_passes_per_run"] == 2_000_000
        assert [row["tuned"] for row in csv.DictReader(to_csv([board]).splitlines())] == ["whole-stream", ""]


class TestNeverMixed:
    def test_each_benchmark_version_protocol_and_data(self, tmp_path: Path, put: Put) -> None:
        put(
            1,
            protocol_settings={"strategies": {"ewc": {"strength": 3}}},
            benchmark_overrides={"stream.scenario": "task"},
        )
        for change in ({}, {"benchmark": "pmnist"}, {"benchmark_version": 2}, {"protocol": "paper"}):
            put(**change)
        put(data_fingerprint=OTHER_DATA)
        boards = leaderboards(tmp_path)
        assert [(board.records, len(board.rows)) for board in boards] == [(1, 1), (2, 1), *[(1, 1)] * 3]
        assert len({board.name for board in boards}) == 5

    def test_data_with_most_records_has_the_plain_name(self, tmp_path: Path, put: Put) -> None:
        put(0, data_fingerprint=DATA)
        put(0, data_fingerprint=f"{DATA[:10]}0")
        for seed in range(2):
            put(seed, data_fingerprint=OTHER_DATA)
        boards = leaderboards(tmp_path)
        assert (boards[0].name, boards[0].data_fingerprint) == ("cifar10-v1-quick", OTHER_DATA)
        assert [board.name for board in boards[1:]] == ["cifar10-v1-quick-a1a1a1a1", "cifar10-v1-quick-a1a1a1a1-2"]

    def test_unranked_are_excluded_and_told(self, tmp_path: Path, put: Put) -> None:
        put(0, 0.5)
        for seed in range(7):
            put(seed, 1.0, synthetic=True)
        put(1, 1.0, limit=10)
        put(1, 1.0, status="failed", synthetic=True, data_fingerprint=None)
        put(1, 1.0, benchmark="other", data_fingerprint=None)
        put(1, 1.0, protocol="smoke", ranked=False)
        (tmp_path / "runs" / "broken").mkdir()
        (tmp_path / "runs" / "broken" / "record.json").write_text("{", encoding="utf-8")
        (board,) = leaderboards(tmp_path)
        assert frame(board)["acc_mean"].tolist() == [0.5]
        assert board.excluded == (
            "1 record not ranked: images were limited with --limit (run-009)",
            "7 records not ranked: synthetic data (run-002, run-003, run-004, run-005, run-006 and 2 more)",
            "1 record not ranked: the run is failed, not finished; synthetic data; no data fingerprint (run-010)",
            "1 record not read: the record is unreadable (broken)",
        )
        assert all(f"- {line}" in to_markdown(board) for line in board.excluded)
        assert "1 record not ranked: protocol 'smoke' is never ranked (run-012)" in excluded(tmp_path)
        assert excluded(tmp_path, "other")[0] == "1 record not ranked: no data fingerprint (run-011)"


class TestFiles:
    def test_written_where_they_are_looked_for(self, tmp_path: Path, put: Put) -> None:
        put(0)
        put(0, benchmark="pmnist", benchmark_version=3, protocol="paper")
        folder = tmp_path / "leaderboards"
        assert [path.relative_to(folder).name for path in make_leaderboards(tmp_path).paths] == [
            "cifar10-v1-quick.md", "cifar10-v1-quick.csv", "pmnist-v3-paper.md", "pmnist-v3-paper.csv",
        ]  # fmt: skip
        page = (folder / "pmnist-v3-paper.md").read_text(encoding="utf-8")
        assert page.startswith(f"# pmnist, version 3, protocol paper\n\n- data fingerprint: {DATA}\n- 1 record, ")
        before = {path: path.read_bytes() for path in folder.iterdir()}
        make_leaderboards(tmp_path)
        assert {path: path.read_bytes() for path in folder.iterdir()} == before

    def test_csv_columns(self, tmp_path: Path, put: Put) -> None:
        put(0, options={"a": [1, "x|y"]})
        reader = csv.DictReader(io.StringIO(to_csv(leaderboards(tmp_path))))
        (row,) = reader
        known = (
            "benchmark benchmark_version protocol data_fingerprint rank row on_front configuration strategy searcher "
        )
        known += "creator seeds reference tuned"
        numbers = [f"{key}_{what}" for key in COLUMNS for what in ("mean", "std", "low", "high")]
        others = "acc_against_best mixed_score_against_best options searcher_options creator_options "
        others += "benchmark_overrides run_ids"
        assert reader.fieldnames == [*known.split(), *numbers, *others.split()]
        assert json.loads(row["options"]) == {"a": [1, "x|y"]} and row["run_ids"] == "run-001"

    def test_odd_names_break_neither_table_nor_folder(self, tmp_path: Path, put: Put) -> None:
        for seed, fields in enumerate(({"strategy": ODD}, {"strategy": "plain", "options": {ODD: ODD}})):
            put(seed, benchmark="a+b..c", protocol="d", **fields)
        put(0, benchmark="a_b..c", protocol="d")
        page_path, csv_path, *others = make_leaderboards(tmp_path).paths
        assert page_path.parent == tmp_path / "leaderboards" and len({page_path, csv_path, *others}) == 4
        assert re.fullmatch(r"[A-Za-z0-9._-]+", page_path.name)
        page = page_path.read_text(encoding="utf-8")
        assert [len(row) for row in table_rows(page)] == [3 + len(COLUMNS)] * 4
        assert [len(row) for row in table_rows(page, "Confidence intervals")] == [2 + len(COLUMNS)] * 4
        assert "<script>" not in page and "\x1b" not in page
        rows = list(csv.DictReader(io.StringIO(csv_path.read_text(encoding="utf-8"))))
        assert [row["strategy"] for row in rows] == [printable(ODD), "plain"]

    def test_csv_is_no_program(self, tmp_path: Path, put: Put) -> None:
        """A spreadsheet would calculate what begins like a formula, and a terminal obey what is no text."""
        put(strategy='=HYPERLINK("http://x", "click")', searcher="+1", creator="@SUM(A1)", options={"a": "\x00\x1b[2J"})
        text = to_csv(leaderboards(tmp_path))
        (row,) = csv.DictReader(io.StringIO(text))
        assert [row[name][0] for name in ("strategy", "searcher", "creator")] == ["'", "'", "'"]
        assert all(letter.isprintable() or letter == "\n" for letter in text)

    @pytest.mark.parametrize("function", [load_records, leaderboards, make_leaderboards, excluded])
    def test_folder_that_is_not_there(self, tmp_path: Path, function: Callable[[Path], object]) -> None:
        with pytest.raises(ResultsError, match="no such results folder"):
            function(tmp_path / "nowhere")


class TestReferences:
    @pytest.fixture
    def board(self, tmp_path: Path, put: Put) -> Leaderboard:
        """Two learners, and three references that are better and smaller than both."""
        for seed in range(3):
            put(seed, 0.7 + seed / 100, strategy="small", parameters=1_000)
            put(seed, 0.8 + seed / 100, strategy="large", parameters=9_000)
            put(seed, 0.9 + seed / 100, strategy="joint", parameters=100)
            put(seed, 0.6, strategy="linear", parameters=10, reference=REFERENCE_ROWS["linear"])
            put(seed, 0.95, strategy="oracle", parameters=1, reference="knows all answers")
        return leaderboards(tmp_path)[0]

    def test_they_come_last_and_take_nothing_away(self, board: Leaderboard) -> None:
        """Neither from the front nor the mark of the best, in any view; old records are known by name."""
        assert names(board) == ["large", "small", "oracle", "joint", "linear"]
        assert [row.on_front for row in board.rows] == [True, True, False, False, False]
        assert board.standings("acc") == ["best", "significant", None, None, None]
        assert names(parse_view(pareto="")(board)) == names(board)
        assert names(parse_view(sort="params")(board)) == ["small", "large", "oracle", "linear", "joint"]

    def test_in_every_form(self, board: Leaderboard) -> None:
        """Below the others, without ranks and marks, with what they are; no number of rows hides them."""
        main, _, rest = to_markdown(board).partition("## References")
        below = rest.partition("## Confidence")[0]
        assert "| joint" not in main and "| large" in main and "* " in main
        assert "| joint" in below and "| large" not in below and "\\*" not in below
        assert [(row[0], row[3][:2]) for row in board.cells(["acc"], 1)] == [
            ("● 1", "* "), ("○", "95"), ("○", "91"), ("○", "60"),
        ]  # fmt: skip
        said = " ".join(rendered(leaderboard_table(board, 1), width=200).split())
        assert "○ references, which come last and are not ranked: oracle: knows all answers" in said
        assert "1 of 2 learners; the leaderboard's files" in said


class TestUnranked:
    #: Fields of records that are never ranked, and never in one table.
    NEVER = (
        {"ranked": False, "protocol": "smoke"}, {"limit": 100}, {"limit": 200}, {"synthetic": True},
        {"first_tasks": 2}, {"first_tasks": 3}, {"evaluation": "validation"}, {"limit": 100, "synthetic": True},
    )  # fmt: skip

    def test_each_reason_by_itself(self, tmp_path: Path, put: Put) -> None:
        for fields in self.NEVER:
            for seed in range(2):
                put(seed, **fields)
        for status in ("running", "failed", "interrupted"):
            put(1, status=status, ranked=False)
        put(0)
        boards = unranked_leaderboards(read_leaderboards(tmp_path).records)
        assert len(boards) == len(self.NEVER) == len({board.name for board in boards})
        assert all(board.records == 2 and f"NOT RANKED ({board.unranked})" in board.title for board in boards)
        (ranked,) = leaderboards(tmp_path)
        assert (ranked.records, ranked.unranked) == (1, None)

    def test_nothing_is_the_best(self, tmp_path: Path, put: Put) -> None:
        for seed in range(3):
            put(seed, 0.4 + seed / 100, limit=50)
            put(seed, 0.9 + seed / 100, limit=50, strategy="ewc")
            put(seed, 0.95, limit=50, strategy="joint")
        (board,) = unranked_leaderboards(read_leaderboards(tmp_path).records)
        assert names(board) == ["ewc", "naive", "joint"] and board.missing is None
        assert board.standings("acc") == [None] * 3 and not any(row.on_front or row.rank for row in board.rows)
        assert not any(mark in text for row in board.cells() for text in row for mark in "*≈?●")
        assert "NOT RANKED" in to_latex(board) and r"\mathbf" not in to_latex(board)
        assert "highest mean" not in to_markdown(board) and "limit: 50" in to_csv([board])
        assert compare_over_benchmarks([board]) == []

    def test_command(self, tmp_path: Path, put: Put, command: Command) -> None:
        """The message names the option; files have ranked runs only."""
        put(0, ranked=False, protocol="smoke")
        answer = command("leaderboard", "--results", tmp_path)
        told = f"seu-bench leaderboard --unranked --results {tmp_path} shows 1 finished run of these, not ranked"
        assert "no record can be ranked" in answer.out and told in answer.out
        for form in ("latex", "md", "csv"):  # an empty file would say nothing
            nothing = command("leaderboard", "--results", tmp_path, "--format", form)
            assert (nothing.out, nothing.err) == ("", answer.out)
        shown = command("leaderboard", "--results", tmp_path, "--unranked")
        assert "NOT RANKED" in shown.out and "--unranked shows" not in shown.out
        assert not list(tmp_path.glob("leaderboards/*.md"))
        refused = command("leaderboard", "--results", tmp_path, "--unranked", "--ranks")
        assert refused.status == 2 and "ranked runs alone" in refused.err
