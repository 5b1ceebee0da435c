"""The data root, the digits and held-out test sets: what needs no files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from seu_bench.data.sources import DigitsSource
from seu_bench.data.sources import digits as digits_module
from seu_bench.data.sources.common import default_data_root, hold_out
from seu_bench.errors import DataError
from seu_bench_benchmarks.datasets import DATASETS


def test_default_data_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SEU_BENCH_DATA", raising=False)
    assert default_data_root(None) == tmp_path / ".cache" / "seu-bench" / "data"
    monkeypatch.setenv("SEU_BENCH_DATA", "~/mine")
    assert default_data_root(None) == tmp_path / "mine"
    assert default_data_root(Path("given")) == Path("given")


def test_digits() -> None:
    digits = DATASETS["digits"]
    assert digits.state(None).status == "embedded"
    data = digits.load(None)
    assert data.info == digits.info(None)
    assert data.train.images.shape == (1352, 1, 8, 8)
    assert (int(data.train.images.min()), int(data.train.images.max())) == (0, 255)
    assert data.checksum() == DigitsSource().load(None).checksum()
    digits.fetch(Path("nowhere"))
    assert not Path("nowhere").exists()


def test_digits_are_scikit_learns_wherever_it_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read from the file, and as scikit-learn reads it where the file is not found."""
    from sklearn.datasets import load_digits

    expected = np.column_stack([load_digits().data, load_digits().target])
    np.testing.assert_array_equal(digits_module._values(), expected)
    assert digits_module._values().dtype == expected.dtype
    monkeypatch.setattr(digits_module, "find_spec", lambda _: None)
    np.testing.assert_array_equal(digits_module._values(), expected)


def test_hold_out_takes_the_fraction_of_each_class() -> None:
    labels = np.repeat(np.arange(3), (100, 10, 2)).astype(np.int64)
    train, test = hold_out(labels, 0.25, "x")
    assert sorted([*train, *test]) == list(range(112))
    assert np.bincount(labels[test]).tolist() == [25, 2, 1]
    np.testing.assert_array_equal(test, hold_out(labels, 0.25, "x")[1])
    with pytest.raises(DataError, match="single image of class 1"):
        hold_out(np.asarray([0, 0, 1]), 0.25, "x")
