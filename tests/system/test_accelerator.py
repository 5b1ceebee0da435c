"""The script for an accelerator, on a processor and with a schedule of seconds."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from scripts import accelerator

COMMON = ("--benchmark", "split_digits", "--protocol", "smoke", "--device", "cpu")


def test_data_come_back_byte_by_byte(tmp_path: Path) -> None:
    """In parts of the size that can be carried."""
    source, made = tmp_path / "cifar-100-python", np.random.default_rng(0)
    source.mkdir()
    for name, count in (("train", 1200), ("test", 700)):
        document = {
            "fine_labels": [0] * count,
            "data": made.integers(0, 256, (count, 3072), dtype=np.uint8),
            "z": "end",
        }
        (source / name).write_bytes(pickle.dumps(document, protocol=4))
    (source / "meta").write_bytes(pickle.dumps({"fine_label_names": ["apple"]}, protocol=4))
    parts = accelerator.split(source, tmp_path / "lend", most=2 * 2**20)
    files = [part / f"part{number}.zip" for number, part in enumerate(parts, 1)]
    assert len(files) > 2 and all(file.stat().st_size < 2.1 * 2**20 for file in files)
    accelerator.join(files, tmp_path / "back")
    for name in ("meta", "test", "train"):
        assert (tmp_path / "back" / name).read_bytes() == (source / name).read_bytes()


@pytest.mark.long
def test_rows_resume_until_none_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails is a row, and the others are made all the same."""
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    rows = {"naive": "--strategy naive", "wrong": "--strategy naive -o learning_rate=1e9", "ewc": "--strategy ewc"}
    home = tmp_path / "home"
    assert not accelerator.run(home, 0, COMMON, rows, least=1)
    assert accelerator.collect(home, rows).count("not begun") == 3
    assert not accelerator.run(home, 12, COMMON, rows, least=0), "a second is too short for a run"
    assert accelerator.run(home, 100_000, COMMON, rows)
    assert accelerator.run(home, 0, COMMON, rows)
    told = (tmp_path / "out" / "table.md").read_text().splitlines()
    assert [line.split(" | ")[1] for line in told[2:]] == ["finished", "failed", "finished"]
    assert (home / "wrong.ended").read_text() != "0"
    assert (tmp_path / "out" / "records.tgz").stat().st_size > 1000


def test_probe() -> None:
    told = accelerator.probe("cpu")
    assert told["product of 512 x 512 matrices"] > 0
    assert sum("depthwise" in name for name in told) == 4
