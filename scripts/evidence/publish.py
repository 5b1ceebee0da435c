"""From sweeps' results folders to published sets: the finished records, and nothing else of the runs."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from scripts.evidence import canon, contest, inheritance, months, pretrained, scenarios, transfer, units
from scripts.evidence.evidence import COMPONENTS, PARAMETERS, PROTOCOLS, SCHEDULE
from scripts.evidence.months_runs import PROCESSES
from scripts.evidence.reference_runs import SET
from scripts.evidence.relatives import PERCEPTRON
from scripts.evidence.runs import EVIDENCE, records, short_name
from scripts.evidence.transfer_long import LONG_SET
from scripts.pack_records import pack_records
from seu_bench.results.record import record_path
from seu_bench.results.record_files import PACKED_NAME

#: Results folders of the sweeps.
FOLDERS = (
    *PROTOCOLS, COMPONENTS, PERCEPTRON, "probes", SET, scenarios.SET, transfer.SET, LONG_SET,
    inheritance.SET, inheritance.ABLATION, units.SET, months.SET, pretrained.SET, canon.SET, contest.SET, SCHEDULE,
)  # fmt: skip


def publish(source: Path, target: Path = EVIDENCE) -> dict[str, int]:
    """Replace published sets by the finished records of the results folders below ``source``.

    Runs that go on are left out, so that it can be done while sweeps run, and so are runs that were extended, of which
    the longer one's record tells. Sets without a finished record stay.

    Returns:
        How many records each set has that was replaced.
    """
    sets: dict[str, dict[tuple[str, ...], Path]] = {}
    for folder in FOLDERS:
        found = records(source / folder)
        extended = {record.parent.run_id for record in found if record.parent is not None}
        for record in sorted((it for it in found if it.run_id not in extended), key=lambda record: record.started):
            # Strategies of SEU's size lie beside the runs that their size is taken from. Where that changed as more of
            # them finished, the latest counts.
            matched = record.matched is not None
            place = (record.benchmark, short_name(record), str(record.seed)) if matched else (record.run_id,)
            sets.setdefault(PARAMETERS if matched else folder, {})[place] = record_path(source / folder, record.run_id)
    for name, paths in sets.items():
        with tempfile.TemporaryDirectory() as scratch:
            for path in paths.values():
                copied = record_path(Path(scratch), path.parent.name)
                copied.parent.mkdir(parents=True)
                shutil.copy(path, copied)
            (target / name).mkdir(parents=True, exist_ok=True)
            shutil.copy(pack_records(Path(scratch)), target / name / PACKED_NAME)
        if (measured := source / name / PROCESSES).exists():
            shutil.copy(measured, target / name)
    return {name: len(paths) for name, paths in sets.items()}
