"""Files of an offline run of Weights & Biases, read back record by record."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.logged import EPOCHS, Log, Witness, due, logged_run

from seu_bench.errors import Interruption
from seu_bench.results.record_metrics import without_times

#: The file is a log in LevelDB's format behind a header of seven bytes: blocks of so many bytes, in them pieces of
#: records with a checksum, a length and a kind (1: a whole record; 2, 3, 4: its first, middle and last piece).
BLOCK = 32768
PIECE = struct.Struct("<IHB")


def records(file: Path) -> Iterator[Any]:
    """Every record of a file, in order."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, at, whole = file.read_bytes(), 7, b""
    while at + PIECE.size <= len(content):
        if BLOCK - at % BLOCK < PIECE.size:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = PIECE.unpack_from(content, at)
        whole += content[at + PIECE.size : at + PIECE.size + length]
        at += PIECE.size + length
        if kind in (1, 4):
            yield Record.FromString(whole)
            whole = b""


def items(found: Any) -> dict[str, Any]:
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in found}


def offline_runs(results: Path) -> list[Path]:
    return sorted((results / "logs" / "wandb").glob("*/*/wandb/offline-run-*/run-*.wandb"))


def history(file: Path, axes: set[str]) -> Log:
    """Steps of its own axis and values of each name."""
    found: Log = {}
    for record in records(file):
        if record.WhichOneof("record_type") == "history":
            row = {name: value for name, value in items(record.history.item).items() if not name.startswith("_")}
            (axis,) = set(row) & axes
            for name, value in row.items():
                if name != axis:
                    found.setdefault(name, []).append((row[axis], value))
    return found


def axes(file: Path) -> set[str]:
    metrics = [record.metric for record in records(file) if record.WhichOneof("record_type") == "metric"]
    return {metric.step_metric for metric in metrics if metric.step_metric}


@pytest.mark.long
def test_offline_run(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """History, configuration, labels and status, and nothing of the machine; one that goes on has the same id."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    results = tmp_path / "results"
    stopped = Witness(stop_after=8)
    with pytest.raises(Interruption):
        logged_run(results, ["wandb"], witness=stopped)
    assert stopped.notices == []
    assert os.environ["WANDB_ERROR_REPORTING"] == "false"
    (first,) = offline_runs(results)
    max(results.glob("runs/*/checkpoints/*.ckpt")).unlink()
    record, witness = logged_run(results, ["wandb"])
    assert witness.notices[1:] == []  # the first says that the run goes on
    files = offline_runs(results)
    (second,) = set(files) - {first}
    expected, _ = logged_run(tmp_path / "without")
    assert without_times(record) == without_times(expected)

    parts = [history(file, axes(file)) for file in (first, second)]
    found = {name: parts[0].get(name, []) + parts[1].get(name, []) for name in {**parts[0], **parts[1]}}
    assert found == due(record, stopped.curves, witness.curves)
    assert axes(first) | axes(second) == {"tasks", *(f"training/task-{task}/epoch" for task in range(5))}

    kinds = [{each.WhichOneof("record_type"): each for each in records(file)} for file in (first, second)]
    opened = [kind["run"].run for kind in kinds]
    assert opened[0].run_id == opened[1].run_id
    assert opened[0].run_id.startswith(f"{record.run_id}-")
    assert (opened[0].display_name, opened[0].project) == (record.run_id, "seu-bench")
    assert list(opened[0].tags) == ["tiny", "split_digits", "smoke"]
    config = items(opened[0].config.update)
    assert (config["options.epochs"], config["seed"], config["ranked"]) == (EPOCHS, 0, "no")
    statuses = [
        value
        for file in (first, second)
        for each in records(file)
        if each.WhichOneof("record_type") == "summary"
        for name, value in items(each.summary.update).items()
        if name == "status"
    ]
    assert (statuses[0], statuses[-1]) == ("interrupted", "finished")
    assert [kind["exit"].exit.exit_code for kind in kinds] == [1, 0]
    assert not {"stats", "environment", "output", "output_raw"} & (set(kinds[0]) | set(kinds[1]))
    assert list((tmp_path / "cwd").iterdir()) == []


def test_nobody_is_asked_to_log_in(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Online and not logged in: a notice, no question, and the run goes on."""
    for name in [name for name in os.environ if name.startswith("WANDB_") and name != "WANDB_ERROR_REPORTING"]:
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NETRC", str(tmp_path / "home" / "none"))
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    record, witness = logged_run(tmp_path / "results", ["wandb"], log_options={"wandb.mode": "online"})
    assert record.status == "finished"
    (notice,) = witness.notices
    assert notice.startswith(
        "plugin 'logger wandb' of package seu-bench failed in run_started and is not called again: "
    )


@pytest.mark.long
def test_silent_server_is_given_up(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes connections and never answers holds a run up for the limit of time and no longer."""
    monkeypatch.setattr("seu_bench_wandb.WITHIN", 2.0)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{listener.getsockname()[1]}")
        began = time.monotonic()
        record, witness = logged_run(tmp_path / "results", ["wandb"], log_options={"wandb.mode": "online"})
        assert time.monotonic() - began < 20
    assert record.status == "finished"
    (notice,) = witness.notices
    assert "the run continues" in notice
