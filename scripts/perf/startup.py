"""Start-up time of seu-bench."""

from __future__ import annotations

import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from scripts.perf.catalogue import Result, Size, Table

COMMANDS: dict[str, list[str]] = {"help": ["--help"], "list": ["list"], "list_json": ["list", "--format", "json"]}
RUN = ["run", "--strategy", "naive", "--benchmark", "split_digits", "--protocol", "smoke", "--device", "cpu"]

#: Between two looks for the record, in seconds.
_LOOK_EVERY = 0.002


def measure(_: str, size: Size) -> Result:
    """Processes of each command, one that is not counted before.

    Raises:
        FileNotFoundError: seu-bench is not installed beside this interpreter.
    """
    program = Path(sysconfig.get_path("scripts")) / "seu-bench"
    if not program.is_file():
        raise FileNotFoundError(f"{program} is not there; install seu-bench into {sys.prefix} first")
    runs = size.count(10, 1)
    ways: dict[str, tuple[list[str], Callable[[list[str]], float]]] = {
        name: (arguments, _whole) for name, arguments in COMMANDS.items()
    }
    ways["run"] = (RUN, _until_begun)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(runs + 1):
        for name, (arguments, clock) in ways.items():
            spent = clock([str(program), *arguments])
            if number:
                taken[name].append(spent)
    rows = [
        [" ".join(["seu-bench", *ways[name][0]]), min(spent), statistics.median(spent)] for name, spent in taken.items()
    ]
    return Result(
        {"processes of each": runs},
        {name: min(spent) for name, spent in taken.items()},
        (Table("Seconds", ("command", "least", "median"), rows),),
    )


def _whole(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def _until_begun(command: list[str]) -> float:
    """Wait for the record, which is written when training is about to begin, then let the run end."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        with subprocess.Popen([*command, "--results", folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
            while not list(Path(folder).glob("runs/*/record.json")) and run.poll() is None:
                time.sleep(_LOOK_EVERY)
            spent = time.perf_counter() - began
            _, errors = run.communicate()
        if run.returncode:
            raise RuntimeError(f"{' '.join(command)} failed: {errors.decode(errors='replace')}")
    return spent
