"""Records of other code: not the same configuration, and in no mean with it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from support.board_records import Put, leaderboards, writer

from seu_bench.errors import ResultsError
from seu_bench.results.comparison import compare_over_seeds
from seu_bench.results.record import CodeRecord, differing_code, refuse_other_code

OLD, NEW, UNKNOWN = (
    CodeRecord(kind="strategy", name="mine", package="my-plugin", version=version, sha256=sha256)
    for version, sha256 in (("1.0", "a" * 64), ("1.1", "b" * 64), ("1.0", None))
)
#: The label of a row of each.
LABELS = ["mine (code=my-plugin 1.0 [aaaaaaaaaa])", "mine (code=my-plugin 1.1 [bbbbbbbbbb])"]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Write a record with plausible metrics; keywords change fields."""
    return partial(writer(tmp_path), strategy="mine")


def as_kind(code: CodeRecord, kind: str) -> CodeRecord:
    return code.model_copy(update={"kind": kind})


def test_same_or_other() -> None:
    """By the digest; by package and version where there is none; a record that names nothing is taken as it is."""
    assert differing_code([OLD], [OLD.model_copy(update={"version": "2.0"})]) == []
    assert differing_code([OLD], [NEW]) == [(OLD, NEW)]
    assert differing_code([UNKNOWN], [UNKNOWN]) == []
    assert differing_code([UNKNOWN], [OLD]) == [(UNKNOWN, OLD)]
    assert differing_code([], [NEW]) == []
    assert differing_code([OLD], []) == [(OLD, None)]  # it is part of seu-bench by now
    for kind in ("benchmark", "benchmark file"):  # whatever of these decides is in the run id
        assert differing_code([as_kind(OLD, kind)], [as_kind(NEW, kind)]) == []
    old, new = as_kind(OLD, "metric"), as_kind(NEW, "metric")
    assert (differing_code([old], []), differing_code([old], [new])) == ([], [(old, new)])
    with pytest.raises(ResultsError, match=r"1.0 \[aaaaaaaaaa\], here my-plugin 1.1 \[bbbbbbbbbb\]") as refused:
        refuse_other_code([OLD], [NEW], "here")
    assert "--restart" in (refused.value.remedy or "") and "--accept-code" in (refused.value.remedy or "")


def test_rows(tmp_path: Path, put: Put) -> None:
    """Two versions are two rows, and never seeds of one; a resumed run is another, and older records are."""
    put(0, 0.973, code=(OLD,))
    put(1, 0.612, code=(NEW,))
    put(2, 0.616, code=(NEW,))
    put(3, 0.8, code=(NEW,), earlier_code=(OLD,))
    put(4, 0.7)
    put(5, 0.7)
    (board,) = leaderboards(tmp_path)
    rows = {row.configuration: (list(row.runs), row.mean("acc")) for row in board.rows}
    both = "mine (code=my-plugin 1.1 [bbbbbbbbbb] after my-plugin 1.0 [aaaaaaaaaa])"
    seeds = {LABELS[0]: [0], LABELS[1]: [1, 2], both: [3], "mine": [4, 5]}
    assert {label: seeds for label, (seeds, _) in rows.items()} == seeds
    assert rows[LABELS[1]][1] == pytest.approx(0.614)
    found = compare_over_seeds([board], ["run-001", "run-002"])
    assert found is not None and [row.configuration for row in found.others] == LABELS[1:]


def test_metric_of_two_versions(tmp_path: Path, put: Put) -> None:
    """It has no mean over the seeds, and costs nothing else."""
    for seed, code in enumerate((OLD, OLD, NEW)):
        metric = as_kind(code, "metric").model_copy(update={"name": "theirs"})
        put(seed, 0.9, code=(metric,), metrics={"acc": 0.9, "theirs": 0.5, "other": 0.5})
    ((row,),) = (board.rows for board in leaderboards(tmp_path))
    assert [row.mean(name) for name in ("acc", "theirs", "other")] == [0.9, None, 0.5]
