"""Published records can be read, and pages can be made again from what was measured."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the scripts are no installed package

import seu_bench
from seu_bench.engine.checkpoint import SHARE
from seu_bench.engine.resolve import resolve
from seu_bench.engine.verification import request_of
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record
from seu_bench.results.record_files import pack_records, read_records

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "results" / "published"


SETS = sorted(path.parent.relative_to(PUBLISHED).as_posix() for path in PUBLISHED.rglob("records.jsonl"))


@pytest.mark.parametrize("folder", SETS)
def test_sets_are_complete(tmp_path: Path, folder: str) -> None:
    """Every line can be read, and packing what is packed changes nothing."""
    assert seu_bench.load_records(PUBLISHED / folder).attrs["unreadable"] == []
    shutil.copy(PUBLISHED / folder / "records.jsonl", tmp_path)
    assert pack_records(tmp_path).read_bytes() == (PUBLISHED / folder / "records.jsonl").read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("folder", SETS)
def test_run_ids_stay(folder: str) -> None:
    """What was published is what a run would find: of each configuration the record of its first seed."""
    registry, seen = Registry(), set()
    for record in read_records(PUBLISHED / folder):
        assert isinstance(record, Record)
        configuration = (record.benchmark, record.protocol, record.strategy, record.searcher, record.creator)
        if configuration in seen or record.benchmark not in registry.benchmarks:
            continue
        seen.add(configuration)
        spec = resolve(registry, request_of(record)).spec
        if spec.benchmark.version == record.benchmark_version:
            assert (spec.run_id, record.threads) == (record.run_id, 1)


def test_reliability_comes_from_what_was_measured() -> None:
    """The page of checkpoints is what the script makes of the measurements, and by default they keep to their share."""
    page = ROOT / "results" / "published" / "reliability.md"
    document = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    runs = document["runs"]
    default = [run for run in runs if run["policy"] == "default"]
    assert len(default) == len(runs) / 2 >= 5
    for run in default:
        assert run["checkpoint_seconds"] <= SHARE * run["seconds"], run["strategy"]
