"""From sweeps' results folders to published sets: the finished records, and nothing else of the runs."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from scripts.evidence.evidence import BEFORE, SETS
from scripts.evidence.runs import EVIDENCE
from seu_bench.results.record import Record, record_path
from seu_bench.results.record_files import PACKED_NAME, pack_records, read_records

#: Sets that sweeps make.
MADE = (*(name for name in SETS if name != BEFORE), "probes")


def publish(source: Path, target: Path = EVIDENCE) -> dict[str, int]:
    """Replace published sets by the finished records of the results folders below ``source`` of their names.

    Runs that go on are left out, so that it can be done while sweeps run. Sets without a finished record stay.

    Returns:
        How many records each set has that was replaced.
    """
    written = {}
    for name in MADE:
        runs = source / name
        if not runs.is_dir():
            continue
        finished = [item for item in read_records(runs) if isinstance(item, Record) and item.status == "finished"]
        with tempfile.TemporaryDirectory() as scratch:
            for record in finished:
                path = record_path(Path(scratch), record.run_id)
                path.parent.mkdir(parents=True)
                shutil.copy(record_path(runs, record.run_id), path)
            if finished:
                (target / name).mkdir(parents=True, exist_ok=True)
                shutil.copy(pack_records(Path(scratch)), target / name / PACKED_NAME)
                written[name] = len(finished)
    return written
