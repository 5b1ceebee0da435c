"""Cost of the executors of sweeps: seconds per job, and memory over many jobs.

    python scripts/engines.py measure local ray [--jobs 12]   # seconds; slurm too, where sinfo answers
    python scripts/engines.py endure local ray [--jobs 1000]  # memory
    python scripts/engines.py page

Jobs are as small as they can be, and run one at a time for seconds. What was measured is merged into
``results/published/engines.json``, and the page is made beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psutil

from seu_bench.engine.environment import describe_environment
from seu_bench.results.record import Record
from seu_bench.results.record_files import read_records
from seu_bench.utils.files import write_atomic

PUBLISHED: Final = Path(__file__).resolve().parent.parent / "results" / "published" / "engines.json"
#: A run of a fraction of a second.
JOB: Final = (
    "--strategy", "naive", "--benchmark", "split_digits", "--protocol", "smoke", "--limit", "4", "-o", "epochs=1",
    "-o", "backbone=mlp", "--device", "cpu", "--no-weights",
)  # fmt: skip
#: Jobs of the shorter sweep; the time of a longer one beyond it is that of the further jobs.
FEW: Final = 2
#: Seconds between two looks at memory.
LOOK: Final = 2.0


def measure(engine: str, jobs: int) -> dict[str, Any]:
    """Measure the seconds of sweeps with few and with many jobs, one at a time."""
    few, _ = swept(engine, FEW, ("--jobs", "1"))
    many, records = swept(engine, FEW + jobs, ("--jobs", "1"))
    each = (many - few) / jobs
    run = statistics.mean([record.seconds or 0.0 for record in records])
    return {
        "jobs": jobs,
        "seconds_per_job": each,
        "seconds_of_run": run,
        "seconds_besides": each - run,
        "seconds_to_start": few - FEW * each,
    }


def endure(engine: str, jobs: int) -> dict[str, Any]:
    """Measure the memory of a sweep's own process, and of all that it started, early and late."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        began = time.perf_counter()
        with subprocess.Popen(command(engine, jobs, results), stdout=subprocess.DEVNULL) as process:
            seen: list[tuple[int, int, int]] = []
            while process.poll() is None:
                done = len(list((results / "runs").glob("*/record.json"))) if results.exists() else 0
                seen.append((done, *memory(process.pid)))
                time.sleep(LOOK)
        seconds = time.perf_counter() - began
        finished = [record for record in read_records(results) if isinstance(record, Record)]
    if process.returncode or len(finished) != jobs:
        sys.exit(f"{engine}: status {process.returncode}, {len(finished)} of {jobs} records")
    early = [look for look in seen if 0.1 * jobs <= look[0] < 0.2 * jobs]
    late = [look for look in seen if look[0] >= 0.9 * jobs]
    return {
        "jobs": jobs,
        "seconds": seconds,
        "driver_bytes_early": statistics.median(look[1] for look in early),
        "driver_bytes_late": statistics.median(look[1] for look in late),
        "all_bytes_early": statistics.median(look[2] for look in early),
        "all_bytes_late": statistics.median(look[2] for look in late),
    }


def memory(pid: int) -> tuple[int, int]:
    """Bytes that a process has to itself, and those of it and all below it."""
    own = everything = 0
    try:
        process = psutil.Process(pid)  # type: ignore[no-untyped-call]
        own = everything = process.memory_full_info().uss  # type: ignore[no-untyped-call]
        for below in process.children(recursive=True):  # type: ignore[no-untyped-call]
            try:
                everything += below.memory_full_info().uss
            except psutil.Error:
                continue
    except psutil.Error:
        pass
    return own, everything


def swept(engine: str, jobs: int, more: Sequence[str] = ()) -> tuple[float, list[Record]]:
    """Run a sweep; its seconds and its records."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        began = time.perf_counter()
        subprocess.run([*command(engine, jobs, results), *more], check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - began
        return seconds, [record for record in read_records(results) if isinstance(record, Record)]


def command(engine: str, jobs: int, results: Path) -> list[str]:
    """Build the command of a sweep of so many jobs."""
    program = [sys.executable, "-m", "seu_bench.cli.main", "sweep", *JOB, "--seeds", f"0-{jobs - 1}"]
    return [*program, "--executor", engine, "--results", str(results)]


def merge(part: str, engine: str, found: dict[str, Any]) -> None:
    """Merge measurements into those published."""
    known = json.loads(PUBLISHED.read_text(encoding="utf-8")) if PUBLISHED.is_file() else {}
    environment = describe_environment("cpu")
    made = {"date": datetime.now(UTC).date().isoformat(), "revision": environment.git_revision, "cores": os.cpu_count()}
    known.setdefault(part, {})[engine] = found | made
    write_atomic(PUBLISHED, json.dumps(known, indent=1, sort_keys=True) + "\n")
    write_atomic(PUBLISHED.with_suffix(".md"), page(known))


def page(known: dict[str, Any]) -> str:
    """Format the tables of the measurements."""
    seconds = [
        [engine, str(row["jobs"]), *[f"{row[key]:.2f}" for key in _SECONDS], *_where(row)]
        for engine, row in sorted(known.get("seconds", {}).items())
    ]
    memories = [
        [engine, f"{row['jobs']:,}", f"{row['seconds'] / 60:.1f}", *_mebibytes(row), *_where(row)]
        for engine, row in sorted(known.get("memory", {}).items())
    ]
    lines = [
        "# Executors",
        "",
        "Made by `scripts/engines.py` from [engines.json](engines.json). Jobs are as small as they can be. Other",
        "machines give other figures. *To start* is what a sweep of two jobs took beyond them; where jobs wait for",
        "their turn longer than that, it is lost in the noise, and may come out below zero.",
        "",
        "## Seconds of a job, one at a time",
        "",
        _table(["executor", "jobs", "each", "of which the run", "besides", "to start", *_WHERE], seconds),
        "",
        "## Memory over many jobs",
        "",
        "Memory that processes have to themselves, when 10 to 20 % of the jobs were done and when 90 % were: of the",
        "sweep's own process, and of it and all that it started.",
        "",
        _table([*_MEMORY_HEADS, *_WHERE], memories),
    ]
    return "\n".join(lines) + "\n"


_MEMORY_HEADS: Final = (
    "executor",
    "jobs",
    "minutes",
    "own, early MiB",
    "own, late MiB",
    "all, early MiB",
    "all, late MiB",
)
_SECONDS: Final = ("seconds_per_job", "seconds_of_run", "seconds_besides", "seconds_to_start")
_BYTES: Final = ("driver_bytes_early", "driver_bytes_late", "all_bytes_early", "all_bytes_late")
_WHERE: Final = ("date", "revision", "cores")


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _mebibytes(row: dict[str, Any]) -> list[str]:
    return [f"{row[key] / 2**20:,.0f}" for key in _BYTES]


def _where(row: dict[str, Any]) -> list[str]:
    return [str(row["date"]), str(row["revision"])[:10], str(row["cores"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, jobs in (("measure", 12), ("endure", 1000)):
        own = verbs.add_parser(verb)
        own.add_argument("engines", nargs="+")
        own.add_argument("--jobs", type=int, default=jobs)
    verbs.add_parser("page", help="make the page from the JSON file")
    given = parser.parse_args()
    if given.verb == "page":
        write_atomic(PUBLISHED.with_suffix(".md"), page(json.loads(PUBLISHED.read_text(encoding="utf-8"))))
        return
    for engine in given.engines:
        if given.verb == "measure":
            merge("seconds", engine, measure(engine, given.jobs))
        else:
            merge("memory", engine, endure(engine, given.jobs))


if __name__ == "__main__":
    main()
