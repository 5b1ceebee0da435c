"""How long ``seu-bench --help`` and ``seu-bench list`` take, from the start of the process to its end.

A plain measurement, not a test: on a machine that does something else besides, the least time is the honest one.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

#: What a user does not notice, in seconds.
LIMIT = 0.6
COMMANDS = (["--help"], ["list"], ["list", "--format", "json"])


def measure(command: list[str], runs: int) -> list[float]:
    """Wall-clock seconds of each of ``runs`` processes, after one that is not counted."""
    seconds = []
    for number in range(runs + 1):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        if number:
            seconds.append(time.perf_counter() - began)
    return seconds


def main() -> int:
    """Measure and print; 0 if the least time of every command is within the limit, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="processes per command (default: %(default)s)")
    runs: int = parser.parse_args().runs
    if runs < 1:
        parser.error("--runs must be at least 1")
    program = Path(sysconfig.get_path("scripts")) / "seu-bench"
    if not program.is_file():
        parser.error(f"{program} is not there; install seu-bench into {sys.prefix} first")
    within = True
    for arguments in COMMANDS:
        seconds = measure([str(program), *arguments], runs)
        least = min(seconds)
        verdict = "within" if least <= LIMIT else "above"
        within &= least <= LIMIT
        name = " ".join(["seu-bench", *arguments])
        print(f"{name:<30} least {least:.3f} s, median {statistics.median(seconds):.3f} s: {verdict} {LIMIT} s")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
