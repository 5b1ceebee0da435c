"""``python -m scripts.perf measure [NAME ...]`` and ``python -m scripts.perf page``."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.perf.catalogue import COMPARISONS
from scripts.perf.page import page

ROOT = Path(__file__).resolve().parent.parent.parent
PUBLISHED = ROOT / "results" / "published" / "performance.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or make the page; 1 if a comparison failed."""
    names = [comparison.name for comparison in COMPARISONS]
    parser = argparse.ArgumentParser(prog="python -m scripts.perf", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="measure, merge into the JSON file, and make the page")
    measuring.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(names)}; all by default")
    paging = commands.add_parser("page", help="make the page from the JSON file")
    for command in (measuring, paging):
        command.add_argument("--output", type=Path, default=None, help="the JSON file; the page lies beside it")
    given = parser.parse_args(arguments)
    if given.command == "page":
        write_page(given.output or PUBLISHED)
        return 0
    if unknown := set(given.names) - set(names):
        parser.error(f"no such comparison: {', '.join(sorted(unknown))}")
    output: Path = given.output or PUBLISHED
    failed = False
    for name in given.names or names:
        found = measure_in_process(name)
        failed |= "error" in found
        print(f"{name}: {found.get('error') or '{:.0f} s'.format(found['seconds'])}", flush=True)
        merge(output, {name: found})
        write_page(output)
    return int(failed)


def measure_in_process(name: str) -> dict[str, Any]:
    """Run a comparison in a process of its own; where that fails, its last line stands under ``error``."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        command = [sys.executable, "-m", "scripts.perf.worker", name, str(file)]
        load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
        # Threads wait as in the process of seu-bench (seu_bench/utils/startup.py); nothing is compiled beforehand.
        environment = {"OMP_WAIT_POLICY": "passive", **os.environ, "TORCHINDUCTOR_CACHE_DIR": folder}
        made = subprocess.run(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, check=False)
        if made.returncode:
            lines = made.stderr.strip().splitlines()
            return {"error": lines[-1] if lines else f"the process ended with {made.returncode}"}
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    found["machine"]["load"] = load
    return found


def merge(output: Path, found: Mapping[str, Any]) -> None:
    """Put comparisons into the JSON file beside those that are there, in the order of the catalogue."""
    document = json.loads(output.read_text(encoding="utf-8")) if output.is_file() else {"comparisons": {}}
    measured = {**document["comparisons"], **found}
    document["comparisons"] = {each.name: measured[each.name] for each in COMPARISONS if each.name in measured}
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def write_page(output: Path) -> None:
    """The page of a JSON file, beside it."""
    document = json.loads(output.read_text(encoding="utf-8"))
    output.with_suffix(".md").write_text("\n".join(page(document)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
