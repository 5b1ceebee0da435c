"""Start-up time of seu-bench."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from scripts.perf.comparison import Result, Table

COMMANDS: dict[str, list[str]] = {"help": ["--help"], "list": ["list"], "list_json": ["list", "--format", "json"]}
TORCH = [sys.executable, "-c", "import torch"]
RUN = ["run", "--strategy", "naive", "--benchmark", "split_digits", "--protocol", "smoke", "--device", "cpu"]


def measure(_: str) -> Result:
    """Processes of each command, one that is not counted before.

    Raises:
        FileNotFoundError: seu-bench is not installed beside this interpreter.
    """
    program = Path(sysconfig.get_path("scripts")) / "seu-bench"
    if not program.is_file():
        raise FileNotFoundError(f"{program} is not there; install seu-bench into {sys.prefix} first")
    runs = 10
    asked = COMMANDS | {"run": RUN}
    commands = {name: [str(program), *arguments] for name, arguments in asked.items()} | {"torch": TORCH}
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(runs + 1):
        for name, command in commands.items():
            spent = (_until_begun if name == "run" else _whole)(command)
            if number:
                taken[name].append(spent)
    least = {name: min(spent) for name, spent in taken.items()}
    rows = [
        [
            " ".join([Path(command[0]).name, *command[1:]]),
            least[name],
            statistics.median(taken[name]),
            least[name] / least["torch"],
        ]
        for name, command in commands.items()
    ]
    return Result(
        {"processes of each": runs},
        least | {"run_over_torch": least["run"] / least["torch"]},
        (Table("Seconds", ("command", "least", "median", "least / importing torch"), rows),),
    )


def _environment() -> dict[str, str]:
    """Without the variable that forbids Python to keep what it has compiled, as nobody but machines of tests has it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _whole(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=_environment())
    return time.perf_counter() - began


def _until_begun(command: list[str]) -> float:
    """Wait for the record, which is written when training is about to begin, then let the run end."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        whole = [*command, "--results", folder]
        with subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=_environment()) as run:
            while not list(Path(folder).glob("runs/*/record.json")) and run.poll() is None:
                time.sleep(0.002)
            spent = time.perf_counter() - began
            _, errors = run.communicate()
        if run.returncode:
            raise RuntimeError(f"{' '.join(command)} failed: {errors.decode(errors='replace')}")
    return spent
