"""Transfer to the last task, by hand."""

from __future__ import annotations

import pytest

from seu_bench.metrics import AccuracyMatrix, transfer


def test_transfer_by_hand() -> None:
    own = ((0.5,), (0.5, 0.4))
    assert transfer(((0.9, None), (0.1, 0.7)), own) == pytest.approx(0.3)
    assert transfer(((0.9,), (0.1, 0.25)), own) == pytest.approx(-0.15)


@pytest.mark.parametrize("matrix", [(), ((0.9,),), ((0.9,), (0.9, None)), ((0.9,), (0.9,), (0.9, 0.9, 0.9))])
def test_transfer_needs_the_last_task_of_both(matrix: AccuracyMatrix) -> None:
    own = ((0.5,), (0.5, 0.4))
    assert transfer(matrix, own) is None and transfer(own, matrix) is None
