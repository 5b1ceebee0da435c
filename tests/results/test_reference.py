"""References: which run is compared with which other one, by hand; rows that are never ranked, and missing ones."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.board_records import leaderboards
from support.tiny import registry
from support.tried import scenario_of

from seu_bench.config.common_options import BackboneOptions
from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.results.building import compare_with_reference, load_records
from seu_bench.results.formats import to_csv, to_markdown
from seu_bench.results.metric import Metric
from seu_bench.results.record import Matrix, Record, write_record
from seu_bench.results.record_metrics import compute_metrics
from seu_bench.results.reference_rows import REFERENCE_ROWS, REQUIRED, missing_references, reference_of

#: A strategy that trains on the whole stream at once.
JOINT = "joint"

MATRIX: Matrix = ((0.9, None), (0.5, 0.7))
LAST: Matrix = ((None, None), (0.8, 0.9))

# By hand: acc 0.6 of 0.85; the diagonal is 0.9 and 0.7, which joint exceeds by -0.1 and 0.2.
SHARE, LACK = 0.6 / 0.85, (-0.1 + 0.2) / 2

SETTINGS = {"training": {"epochs": 8}, "model": {"cells": 3, "width": 0.25}}


def a_record(run_id: str, strategy: str = "naive", matrix: Matrix = MATRIX, **fields: Any) -> Record:
    given: dict[str, Any] = {
        "run_id": run_id,
        "status": "finished",
        "strategy": strategy,
        "options": BackboneOptions().model_dump(mode="json") if strategy in ("naive", JOINT) else {},
        "benchmark": "cifar10",
        "benchmark_version": 1,
        "protocol": "quick",
        "protocol_settings": SETTINGS,
        "seed": 0,
        "task_order": (0, 1),
        "accuracy_matrix": matrix,
        "params_total": (10, 20),
        "data_fingerprint": "ab" * 32,
    }
    record = Record(**(given | fields))
    return record.model_copy(update={"metrics": compute_metrics(record) | fields.get("metrics", {})})


def joint(run_id: str = "j", matrix: Matrix = LAST, **fields: Any) -> Record:
    return a_record(run_id, JOINT, matrix, **fields)


def options(**given: Any) -> dict[str, Any]:
    """Options of a strategy on any backbone, as a record has them."""
    return BackboneOptions(**given).model_dump(mode="json")


def compared(*records: Record) -> dict[str, tuple[float | None, float | None]]:
    """Run id -> share of joint and intransigence."""
    return {
        record.run_id: (record.metrics["percent_of_joint"], record.metrics["intransigence"])
        for record in compare_with_reference(records)
    }


class TestValues:
    def test_by_hand(self) -> None:
        found = compared(a_record("a"), joint())
        assert found["a"] == (pytest.approx(SHARE), pytest.approx(LACK))
        assert found["j"] == (1.0, None)

    @pytest.mark.parametrize("missing", [None, math.nan])
    def test_what_was_not_measured(self, missing: float | None) -> None:
        diagonal = a_record("a", matrix=((0.9,), (0.8, missing), (0.5, 0.7, 0.6)), task_order=(0, 1, 2))
        three = joint(matrix=((), (), (0.8, 0.9, 0.85)), task_order=(0, 1, 2))
        assert compared(diagonal, three)["a"] == (pytest.approx(SHARE), None)
        last = a_record("a", matrix=((0.9, None), (0.5, missing)))
        assert compared(last, joint())["a"] == (None, None)
        assert compared(a_record("a"), joint(matrix=((None, None), (0.8, missing)))) == {
            "a": (None, None),
            "j": (None, None),
        }


class TestTransfer:
    """The reference is a network of its own for each task."""

    OWN: Matrix = ((0.6, None), (0.6, 0.55))

    def of(self, *records: Record) -> dict[str, Any]:
        return {record.run_id: record.metrics["transfer"] for record in compare_with_reference(records)}

    def own(self, run_id: str = "i", **fields: Any) -> Record:
        given = {"options": BackboneOptions().model_dump(mode="json"), **fields}
        return a_record(run_id, "independent", self.OWN, **given)

    def test_by_hand(self) -> None:
        found = self.of(a_record("a"), self.own(), joint())
        assert found == {"a": pytest.approx(0.7 - 0.55), "i": 0.0, "j": pytest.approx(0.9 - 0.55)}
        assert self.of(a_record("a"), joint()) == {"a": None, "j": None}


class TestWhichReference:
    def test_of_the_same_seed(self) -> None:
        found = compared(a_record("a0"), a_record("a1", seed=1), joint("j1", ((), (0.6, 0.6)), seed=1))
        assert found["a0"] == (None, None)
        assert found["a1"] == (pytest.approx(1.0), pytest.approx(-0.2))

    @pytest.mark.parametrize(
        "change",
        [
            {"benchmark": "pmnist"},
            {"benchmark_version": 2},
            {"protocol": "paper"},
            {"data_fingerprint": "cd" * 32},
            {"scenario": "domain"},
            {"benchmark_overrides": {"stream.validation": 0.3}},
            {"protocol_settings": SETTINGS | {"training": {"epochs": 9}}},
        ],
    )
    def test_of_the_same_benchmark_and_protocol(self, change: dict[str, Any]) -> None:
        assert compared(a_record("a", **change), joint())["a"] == (None, None)
        assert compared(a_record("a"), joint(**change))["a"] == (None, None)
        assert compared(a_record("a", **change), joint(**change))["a"][0] == pytest.approx(SHARE)

    @pytest.mark.parametrize(
        "change", [{"status": "interrupted"}, {"ranked": False}, {"synthetic": True}, {"limit": 9}]
    )
    def test_only_of_what_may_be_ranked(self, change: dict[str, Any]) -> None:
        assert compared(a_record("a"), joint(**change)) == {"a": (None, None), "j": (None, None)}
        assert compared(a_record("a", **change), joint()) == {"a": (None, None), "j": (1.0, None)}
        assert compared(a_record("a", data_fingerprint=None), joint(data_fingerprint=None))["a"] == (None, None)

    def test_of_the_same_network(self) -> None:
        small, large = options(backbone="mlp"), options(backbone="mlp", width=2.0)
        found = compared(
            a_record("a"),
            a_record("small", options=small | {"restore": "last"}),
            a_record("large", options=large | {"learning_rate": 0.5}),
            a_record("larger", options=options(backbone="mlp", width=4.0)),
            joint(),
            joint("j-small", ((), (0.6, 0.6)), options=small),
            joint("j-large", ((), (0.3, 0.9)), options=large),
        )
        assert found["a"] == (pytest.approx(SHARE), pytest.approx(LACK))
        assert found["small"] == (pytest.approx(1.0), pytest.approx(-0.2))
        assert found["large"] == (pytest.approx(1.0), pytest.approx((-0.6 + 0.2) / 2))
        assert found["larger"] == (None, None)
        assert {found[key] for key in ("j", "j-small", "j-large")} == {(1.0, None)}

    def test_width_is_the_protocol_s_unless_it_is_given(self) -> None:
        given = options(width=0.25)
        assert compared(a_record("a", options=given), joint())["a"][0] == pytest.approx(SHARE)
        assert compared(a_record("a"), joint(options=given))["a"][0] == pytest.approx(SHARE)
        assert compared(a_record("a"), joint(options=options(width=0.5)))["a"] == (None, None)

    def test_of_several_the_one_at_its_defaults(self) -> None:
        tuned = joint("tuned", ((), (1.0, 1.0)), options=options(learning_rate=0.5))
        constant = joint("constant", ((), (1.0, 1.0)), options=options(lr_schedule="constant"))
        found = compared(a_record("a"), tuned, joint(), constant)
        assert found["a"] == (pytest.approx(SHARE), pytest.approx(LACK))
        assert found["j"] == (1.0, None)
        assert found["tuned"] == (pytest.approx(1 / 0.85), None)
        # One alone is the reference whatever its options are; of two without defaults neither is.
        assert compared(a_record("a"), tuned)["a"][0] == pytest.approx(0.6)
        assert set(compared(a_record("a"), tuned, constant).values()) == {(None, None)}
        other = a_record("other", "joint_of_others", ((), (1.0, 1.0)), options=options())
        assert compared(a_record("a"), joint(), other)["a"] == (None, None)

    def test_the_reference_s_configuration_is_one_for_all_seeds(self) -> None:
        """A seed that only another configuration of joint has is not compared with that."""
        tuned = options(learning_rate=0.5)
        found = compared(a_record("a0"), a_record("a1", seed=1), joint(), joint("j1", seed=1, options=tuned))
        assert (found["a0"][0], found["a1"][0]) == (pytest.approx(SHARE), None)

    def test_an_older_version_says_less(self) -> None:
        """A key that is not set is one that an older record does not have."""
        later = {"protocol_settings": {**a_record("a").protocol_settings, "memory": None, "stream": {}}}
        assert compared(a_record("a", **later), joint())["a"][0] == pytest.approx(SHARE)
        later["protocol_settings"]["memory"] = 200
        assert compared(a_record("a", **later), joint())["a"] == (None, None)

    def test_odd_settings_and_options(self) -> None:
        odd = {"protocol_settings": {"model": [1], "strategies": {JOINT: None}}, "options": {"width": [1]}}
        found = compared(a_record("a", **odd), joint(**odd), joint("other", **odd | {"options": {"width": {}, "x": 1}}))
        assert found["a"][0] == pytest.approx(SHARE)


class TestOfPlugins:
    """A stranger's relative metric is found as core's are."""

    @staticmethod
    def found(relative: Callable[[Record, Record], Any]) -> Any:
        metrics = {"gap": Metric(lambda record: None, relative=relative)}
        (record, _) = compare_with_reference([a_record("a"), joint()], metrics)
        return record.metrics["gap"]

    def test_value(self) -> None:
        assert self.found(lambda record, other: other.accuracy_matrix[-1][0]) == 0.8
        assert self.found(lambda record, other: math.nan) is None

    @pytest.mark.parametrize("relative", [lambda record, other: 1 / 0, lambda record, other: "much"])
    def test_one_that_fails_costs_its_own_value(self, relative: Callable[[Record, Record], Any]) -> None:
        with pytest.warns(RuntimeWarning, match="metric 'gap' is excluded: (ZeroDivisionError|TypeError)"):
            assert self.found(relative) is None


class TestOnDisk:
    def test_leaderboard_and_frame(self, tmp_path: Path) -> None:
        for seed, last in enumerate(((0.5, 0.7), (0.6, 0.8))):
            write_record(tmp_path, a_record(f"a{seed}", matrix=((0.9, None), last), seed=seed))
            write_record(tmp_path, a_record(f"b{seed}", "seu", matrix=((1.0, None), (0.9, 0.9)), seed=seed))
            write_record(tmp_path, joint(f"j{seed}", ((None, None), (0.8, 0.8 + seed / 10)), seed=seed))
        write_record(tmp_path, a_record("b2", "seu", seed=2))
        (board,) = leaderboards(tmp_path)
        rows = {row["configuration"]: row for row in csv.DictReader(io.StringIO(to_csv([board])))}
        shares = [0.6 / 0.8, 0.7 / 0.85]
        assert float(rows["naive"]["percent_of_joint_mean"]) == pytest.approx(sum(shares) / 2)
        assert [rows["joint"][f"percent_of_joint_{what}"] for what in ("mean", "std")] == ["1.0", "0.0"]
        # No run of joint has the third seed.
        assert [rows["seu"][f"{key}_mean"] for key in ("percent_of_joint", "intransigence")] == ["", ""]
        assert "\n- % of joint: acc divided by" in to_markdown(board)
        frame = load_records(tmp_path).set_index("run_id")
        assert frame["percent_of_joint"][["a0", "a1"]].tolist() == pytest.approx(shares)


def row(strategy: str, seed: int = 0, **fields: Any) -> Record:
    given = {"run_id": "x", "status": "finished", "benchmark": "pmnist", "benchmark_version": 1, "protocol": "quick"}
    return Record(**given, strategy=strategy, seed=seed, **fields)


@pytest.mark.parametrize(
    ("fields", "known"),
    [
        ({"strategy": "mine"}, None),
        ({"strategy": "mine", "reference": "all answers known"}, "all answers known"),
        ({"strategy": "joint"}, REFERENCE_ROWS["joint"]),  # older records have no such key
        ({"strategy": "seu", "searcher": "random", "creator": "all_new"}, REFERENCE_ROWS["seu + random + all_new"]),
        ({"strategy": "seu", "searcher": "random", "creator": "mdl"}, None),
        ({"strategy": "naive", "options": {"backbone": "linear"}}, REFERENCE_ROWS["linear"]),
        ({"strategy": "naive", "options": {"backbone": "mlp"}}, None),
    ],
)
def test_what_a_record_says(fields: dict[str, Any], known: str | None) -> None:
    assert reference_of(row(**fields)) == known


def test_strategies_declare_themselves() -> None:
    """Those of the table, and nobody else."""
    declared = {}
    for name, entry in registry().strategies.items():
        if getattr(entry.factory, "uses_encoder", False):
            continue  # whose benchmark needs an encoder; none is a reference
        options = {"benchmark.stream.scenario": scenario_of(name)}
        declared[name] = resolve(registry(), Request(strategy=name, protocol="smoke", options=options)).reference
    found = {name: text for name, text in declared.items() if text}
    assert found == {name: REFERENCE_ROWS[name] for name in (*REQUIRED, "nearest_mean")}


def test_missing_ones_have_a_command() -> None:
    """On the benchmark, the protocol and the seeds of the others."""
    learners = [row("naive", seed) for seed in (0, 1, 2, 7)]
    assert missing_references([*learners, row("joint"), row("independent")]) == (
        ("linear", "cumulative"),
        "seu-bench sweep --strategy linear,cumulative --benchmark pmnist --protocol quick --seeds 0-2,7",
    )
    assert missing_references([row(name) for name in REQUIRED]) is None
    asked = {"scenario": "class", "benchmark_overrides": {"stream.scenario": "class"}}
    found = missing_references([row(name, **asked) for name in ("nearest_mean", "joint", "linear")])
    assert found is not None and found.names == ("cumulative",)
    assert "-o benchmark.stream.scenario=class --seeds 0" in found.command
