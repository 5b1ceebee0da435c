"""Leaderboards: aggregated as a direct computation says, never mixed, and safe with whatever a record holds."""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.board_records import COLUMNS, DATA, ODD, OTHER_DATA, excluded, frame, leaderboards, writer

from seu_bench.errors import ResultsError
from seu_bench.results.building import load_records, make_leaderboards
from seu_bench.results.formats import intervals, to_csv, to_markdown
from seu_bench.results.record import Record
from seu_bench.utils.text import printable


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Record]:
    """Write a record with plausible metrics; keywords change fields."""
    return writer(tmp_path)


def table_rows(markdown: str, part: str = "") -> list[list[str]]:
    """Cells of the table of a page's part, by default the first, cut at unescaped pipes."""
    parts = f"## \n{markdown}".split("## ")
    (text,) = [text for text in parts if text.startswith(f"{part}\n")]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.findall(r"(?:\\.|[^|\\])+", line)] for line in lines]


class TestAggregation:
    def test_numbers_are_those_of_a_direct_computation(self, tmp_path: Path, put: Callable[..., Record]) -> None:
        records = [put(seed, acc, parameters=1_000_000 + 10 * seed) for seed, acc in enumerate((0.5, 0.7, 0.55))]
        (board,) = leaderboards(tmp_path)
        (row,) = frame(board).to_dict("records")
        assert (row["seeds"], board.records, row["configuration"]) == (3, 3, "naive")
        measured = [key for key, metric in COLUMNS.items() if not metric.relative]
        assert len(measured) == len(COLUMNS) - 2
        for key in measured:
            values = [float(record.metrics[key] or 0) for record in records]
            assert row[f"{key}_mean"] == pytest.approx(sum(values) / 3)
            mean = sum(values) / 3
            assert row[f"{key}_std"] == pytest.approx((sum((value - mean) ** 2 for value in values) / 2) ** 0.5)
        shown = table_rows(to_markdown(board))[2]
        accs = [50.0, 70.0, 55.0]
        assert f"\\* {statistics.fmean(accs):.2f} ± {statistics.stdev(accs):.2f}" in shown

    def test_masks_are_a_column_where_there_are_any(self, tmp_path: Path, put: Callable[..., Record]) -> None:
        """0 of those that have none says something beside those that do."""
        put(strategy="naive", metrics={"acc": 0.5, "mask_bits": 0})
        (board,) = leaderboards(tmp_path)
        assert "mask_bits" not in board.columns
        put(strategy="packnet", metrics={"acc": 0.6, "mask_bits": 3_000_000})
        (board,) = leaderboards(tmp_path)
        assert board.heading("mask_bits") == "masks (Mbit)"
        assert [row.mean("mask_bits") for row in board.rows] == [3_000_000, 0]

    def test_one_seed_has_no_deviation(self, tmp_path: Path, put: Callable[..., Record]) -> None:
        put(acc=0.5)
        (board,) = leaderboards(tmp_path)
        assert frame(board)[[f"{key}_std" for key in COLUMNS]].isna().all(axis=None)
        assert frame(board)[[f"{key}_{end}" for key in COLUMNS for end in ("low", "high")]].isna().all(axis=None)
        assert "±" not in "".join(board.cells()[0])
        assert intervals(board)[0][2:] == ["-"] * len(COLUMNS)
        (row,) = csv.DictReader(io.StringIO(to_csv([board])))
        assert (row["acc_mean"], row["acc_std"], row["searcher"]) == ("0.5", "", "")

    @pytest.mark.parametrize("metrics", [{}, {"acc": None}, {"acc": 0.5, "forgetting": None}])
    def test_what_a_seed_lacks_is_blank_and_not_zero(
        self, tmp_path: Path, put: Callable[..., Record], metrics: dict[str, Any]
    ) -> None:
        put(0)
        put(1, metrics=metrics)
        put(0, acc=0.01, strategy="worst")
        put(1, acc=0.01, strategy="worst")
        (board,) = leaderboards(tmp_path)
        rows = {row["configuration"]: row for row in frame(board).to_dict("records")}
        assert rows["naive"]["forgetting_mean"] != rows["naive"]["forgetting_mean"]  # NaN
        is_measured = metrics.get("acc") == 0.5  # without a mean it comes last
        assert list(rows) == (["naive", "worst"] if is_measured else ["worst", "naive"])
        assert [row.rank for row in board.rows] == ([1, 2] if is_measured else [1, None])
        assert board.cells()[1][3:] == ["-"] * len(COLUMNS) or is_measured
        assert {row["mixed_score_mean"] for row in csv.DictReader(io.StringIO(to_csv([board])))} >= {""}

    def test_numbers_that_are_none_in_a_foreign_record(self, tmp_path: Path, put: Callable[..., Record]) -> None:
        record = put(0)
        path = tmp_path / "runs" / record.run_id / "record.json"
        document = json.loads(path.read_text(encoding="utf-8"))
        document["metrics"]["acc"] = float("nan")
        path.write_text(json.dumps(document), encoding="utf-8")
        put(0, strategy="other")
        (board,) = leaderboards(tmp_path)
        assert list(frame(board)["configuration"]) == ["other", "naive"]

    def test_repeated_seed_counts_the_latest(self, tmp_path: Path, put: Callable[..., Record]) -> None:
        put(0, 0.9, started="2026-01-02T00:00:00")
        put(0, 0.1, started="2026-01-01T00:00:00")
        (board,) = leaderboards(tmp_path)
        assert frame(board)["acc_mean"].tolist() == [0.9]
        assert (board.records, frame(board)["seeds"].tolist()) == (1, [1])
        assert board.excluded == ("1 record not counted: a later record has the same configuration and seed (run-002)",)

    def test_copied_run_counts_once(self, tmp_path: Path, put: Callable[..., Record]) -> None:
        record = put(0)
        path = tmp_path / "runs" / record.run_id / "record.json"
        (tmp_path / "runs" / "copy").mkdir()
        (tmp_path / "runs" / "copy" / "record.json").write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
        (board,) = leaderboards(tmp_path)
        assert board.records == 1
        assert "1 record not counted" in board.excluded[0]


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
    def test_each_choice_is_a_row_of_its_own_with_a_label_of_its_own(
        self, tmp_path: Path, put: Callable[..., Record], change: dict[str, Any]
    ) -> None:
        put(0)
        put(1, **change)
        (board,) = leaderboards(tmp_path)
        assert len(set(frame(board)["configuration"])) == 2
        assert frame(board)["seeds"].tolist() == [1, 1]

    def test_options_of_other_strategies_in_a_protocol_make_no_difference(
        self, tmp_path: Path, put: Callable[..., Record]
    ) -> None:
        put(0)
        put(1, protocol_settings={"strategies": {"ewc": {"strength": 3}}})
        assert frame(leaderboards(tmp_path)[0])["seeds"].tolist() == [2]

    def test_label_names_only_what_differs_within_a_strategy(self, tmp_path: Path, put: Callable[..., Record]) -> None:
        seu = {"strategy": "seu", "searcher": "mdl", "creator": "mdl", "searcher_options": {"alpha": 0.01, "edges": 14}}
        put(0, 0.9, **seu, options={"decay": 0.1, "same": "x"}, creator_options={"old": 10})
        put(0, 0.8, **seu, options={"decay": "none", "same": "x"}, creator_options={"old": 10})
        put(0, 0.7, **seu, options={"decay": "1", "same": "x"}, creator_options={"old": 0})
        put(0, 0.6, **seu | {"searcher": "random"}, options={"decay": "1", "same": "x"}, creator_options={"old": 0})
        put(0, 0.5, options={"decay": 0.5}, benchmark_overrides={"stream.validation": 0.3})
        (board,) = leaderboards(tmp_path)
        assert frame(board)["configuration"].tolist() == [
            "seu + mdl + mdl (decay=0.1, creator.old=10)",
            "seu + mdl + mdl (decay=none, creator.old=10)",
            'seu + mdl + mdl (decay="1", creator.old=0)',
            'seu + random + mdl (decay="1", creator.old=0)',
            "naive (benchmark.stream.validation=0.3)",
        ]


class TestNeverMixed:
    def test_each_benchmark_version_protocol_and_data(self, tmp_path: Path, put: Callable[..., Record]) -> None:
        put()
        put(benchmark="pmnist")
        put(benchmark_version=2)
        put(protocol="paper")
        put(data_fingerprint=OTHER_DATA)
        boards = leaderboards(tmp_path)
        assert [(board.records, frame(board)["seeds"].tolist()) for board in boards] == [(1, [1])] * 5
        assert len({board.name for board in boards}) == 5
        assert {board.benchmark for board in leaderboards(tmp_path, "pmnist")} == {"pmnist"}
        assert leaderboards(tmp_path, "unknown") == []

    def test_data_with_most_records_has_the_plain_name(self, tmp_path: Path, put: Callable[..., Record]) -> None:
        put(0, data_fingerprint=DATA)
        for seed in range(2):
            put(seed, data_fingerprint=OTHER_DATA)
        boards = leaderboards(tmp_path)
        assert [(board.name, board.data_fingerprint) for board in boards] == [
            ("cifar10-v1-quick", OTHER_DATA),
            ("cifar10-v1-quick-a1a1a1a1", DATA),
        ]
        for board in boards:
            assert board.data_fingerprint in to_markdown(board)

    def test_equal_beginnings_of_fingerprints_do_not_overwrite(
        self, tmp_path: Path, put: Callable[..., Record]
    ) -> None:
        for end in "123":
            put(data_fingerprint="a" * 10 + end)
        names = [board.name for board in leaderboards(tmp_path)]
        assert names == ["cifar10-v1-quick", "cifar10-v1-quick-aaaaaaaa", "cifar10-v1-quick-aaaaaaaa-2"]

    def test_unknown_data_is_excluded(self, tmp_path: Path, put: Callable[..., Record]) -> None:
        put(data_fingerprint=None)
        assert leaderboards(tmp_path) == []
        assert excluded(tmp_path) == ["1 record not ranked: no data fingerprint (run-001)"]


class TestLeftOut:
    def test_unranked_are_excluded_and_told(self, tmp_path: Path, put: Callable[..., Record]) -> None:
        put(0, 0.5)
        for seed in range(7):
            put(seed, 1.0, synthetic=True)
        put(1, 1.0, limit=10)
        put(1, 1.0, status="failed", synthetic=True, data_fingerprint=None)
        put(1, 1.0, benchmark="other", synthetic=True)
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
        page = to_markdown(board)
        assert all(f"- {line}" in page for line in board.excluded)
        everything = excluded(tmp_path)
        assert "1 record not ranked: protocol 'smoke' is never ranked (run-012)" in everything
        assert everything[-1] == board.excluded[-1]
        assert excluded(tmp_path, "other")[0] == "1 record not ranked: synthetic data (run-011)"

    def test_nothing(self, tmp_path: Path, put: Callable[..., Record]) -> None:
        put()
        page = to_markdown(leaderboards(tmp_path)[0])
        assert page.endswith("## Excluded\n\n- nothing\n")


class TestFiles:
    def test_written_where_they_are_looked_for(self, tmp_path: Path, put: Callable[..., Record]) -> None:
        put(0)
        put(0, benchmark="pmnist", benchmark_version=3, protocol="paper")
        folder = tmp_path / "leaderboards"
        assert list(make_leaderboards(tmp_path).paths) == [
            folder / "cifar10-v1-quick.md",
            folder / "cifar10-v1-quick.csv",
            folder / "pmnist-v3-paper.md",
            folder / "pmnist-v3-paper.csv",
        ]
        page = (folder / "pmnist-v3-paper.md").read_text(encoding="utf-8")
        assert page.startswith(f"# pmnist, version 3, protocol paper\n\n- data fingerprint: {DATA}\n- 1 record, ")
        before = {path: path.read_bytes() for path in folder.iterdir()}
        make_leaderboards(tmp_path)
        assert {path: path.read_bytes() for path in folder.iterdir()} == before

    def test_csv_columns(self, tmp_path: Path, put: Callable[..., Record]) -> None:
        put(0, options={"a": [1, "x|y"]})
        reader = csv.DictReader(io.StringIO(to_csv([leaderboards(tmp_path)[0]])))
        (row,) = reader
        numbers = [f"{key}_{what}" for key in COLUMNS for what in ("mean", "std", "low", "high")]
        marks = ["acc_against_best", "mixed_score_against_best"]
        choices = ["options", "searcher_options", "creator_options", "benchmark_overrides"]
        place = ["benchmark", "benchmark_version", "protocol", "data_fingerprint"]
        names = ["rank", "row", "on_front", "configuration", "strategy", "searcher", "creator", "seeds"]
        names += ["reference", "tuned"]
        assert reader.fieldnames == [*place, *names, *numbers, *marks, *choices, "run_ids"]
        assert [row[key] for key in place] == ["cifar10", "1", "quick", DATA]
        assert json.loads(row["options"]) == {"a": [1, "x|y"]}
        assert row["run_ids"] == "run-001"

    def test_odd_names_break_neither_table_nor_folder(self, tmp_path: Path, put: Callable[..., Record]) -> None:
        put(0, strategy=ODD, benchmark="a+b..c", protocol="d")
        put(1, strategy="plain", benchmark="a+b..c", protocol="d", options={ODD: ODD})
        put(1, 0.4, strategy="plain", benchmark="a+b..c", protocol="d", synthetic=True)
        page_path, csv_path = make_leaderboards(tmp_path).paths
        assert page_path.parent == csv_path.parent == tmp_path / "leaderboards"
        assert re.fullmatch(r"[A-Za-z0-9._-]+", page_path.name)
        page = page_path.read_text(encoding="utf-8")
        assert {len(row) for row in table_rows(page)} == {3 + len(COLUMNS)}
        assert len(table_rows(page)) == 2 + 2
        assert [len(row) for row in table_rows(page, "Confidence intervals")] == [2 + len(COLUMNS)] * 4
        assert "<script>" not in page
        assert "\x1b" not in page
        rows = list(csv.DictReader(io.StringIO(csv_path.read_text(encoding="utf-8"))))
        assert [row["strategy"] for row in rows] == [printable(ODD), "plain"]

    def test_csv_is_no_program(self, tmp_path: Path, put: Callable[..., Record]) -> None:
        """A spreadsheet would calculate what begins like a formula, and a terminal obey what is no text."""
        put(strategy='=HYPERLINK("http://x", "click")', searcher="+1", creator="@SUM(A1)", options={"a": "\x00\x1b[2J"})
        text = to_csv(leaderboards(tmp_path))
        (row,) = csv.DictReader(io.StringIO(text))
        assert [row[name][0] for name in ("strategy", "searcher", "creator")] == ["'", "'", "'"]
        assert all(letter.isprintable() or letter == "\n" for letter in text)

    def test_names_that_differ_in_odd_letters_only_do_not_overwrite(
        self, tmp_path: Path, put: Callable[..., Record]
    ) -> None:
        put(benchmark="a+b")
        put(benchmark="a_b")
        assert len({board.name for board in leaderboards(tmp_path)}) == 2
        # Asking for one of them does not change what its file is called.
        named = {board.benchmark: board.name for board in leaderboards(tmp_path)}
        assert [board.name for board in leaderboards(tmp_path, "a_b")] == [named["a_b"]]

    def test_folder_that_cannot_be_written(self, tmp_path: Path, put: Callable[..., Record]) -> None:
        put()
        (tmp_path / "leaderboards").write_text("a file", encoding="utf-8")
        with pytest.raises(ResultsError, match="cannot write results"):
            make_leaderboards(tmp_path)

    @pytest.mark.parametrize("function", [load_records, leaderboards, make_leaderboards, excluded])
    def test_folder_that_is_not_there(self, tmp_path: Path, function: Callable[[Path], object]) -> None:
        with pytest.raises(ResultsError, match="no such results folder"):
            function(tmp_path / "nowhere")

    def test_empty_folder(self, tmp_path: Path) -> None:
        assert leaderboards(tmp_path) == []
        assert list(make_leaderboards(tmp_path).paths) == []
        assert excluded(tmp_path) == []


class TestLoadRecords:
    def test_one_row_per_readable_record(self, tmp_path: Path, put: Callable[..., Record]) -> None:
        put(0, 0.5, options={"decay": 0.1}, searcher="mdl", searcher_options={"alpha": 0.01})
        put(1, 0.7, synthetic=True, seconds=1.5, accuracy_matrix=((0.5,), (0.5, 0.9)))
        put(2, metrics={"acc": None, "seed": 7, "of_a_plugin": 3})
        (tmp_path / "runs" / "broken").mkdir()
        (tmp_path / "runs" / "broken" / "record.json").write_text("{", encoding="utf-8")
        frame = load_records(str(tmp_path))
        assert frame["run_id"].tolist() == ["run-001", "run-002", "run-003"]
        assert frame["seed"].tolist() == [0, 1, 2]
        assert frame["acc"].isna().tolist() == [False, False, True]
        assert frame["acc"].mean() == pytest.approx(0.6)
        assert frame["may_be_ranked"].tolist() == [True, False, True]
        assert frame["options.decay"].isna().tolist() == [False, True, True]
        assert frame["searcher_options.alpha"][0] == 0.01
        assert frame["environment.device"].tolist() == ["cpu"] * 3
        assert (frame["seconds"].dtype, frame["limit"].dtype) == ("float64", "Int64")
        assert frame["params_total"].tolist()[:2] == [1_000_000, 1_000_000]
        assert frame["params_total_per_task"][0] == (10, 1_000_000)
        assert frame["metrics.seed"].tolist()[2] == 7
        assert frame["of_a_plugin"].tolist()[2] == 3
        assert frame["accuracy_matrix"][1] == ((0.5,), (0.5, 0.9))
        assert frame.attrs["unreadable"] == ["broken"]

    def test_metric_that_nobody_measured_is_a_column_of_numbers(
        self, tmp_path: Path, put: Callable[..., Record]
    ) -> None:
        put(metrics={"fwt": None})
        assert load_records(tmp_path)["fwt"].dtype == "float64"

    def test_no_records(self, tmp_path: Path) -> None:
        frame = load_records(tmp_path)
        assert len(frame) == 0
        assert {"run_id", "benchmark", "seed", "data_fingerprint"} <= set(frame.columns)
