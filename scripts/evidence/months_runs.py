"""Ten months of ten classes of CIFAR-100 each, as folders, learned one after another by the command line.

    python -m scripts.evidence.months_runs FOLDER [--seeds 0 1 2]

One process at a time, on one core; what each takes goes to FOLDER/processes.csv, and what is there is not run again.
CIFAR-100 is read below the data root, which :func:`seu_bench.data.dataset.default_data_root` finds.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt

from seu_bench.config.options import Frozen
from seu_bench.data.dataset import default_data_root
from seu_bench.results.record import read_record, runs_folder
from seu_bench.results.record_files import LEARNER_NAME, MODEL_NAME

MONTHS: Final = 10
#: Images of each class that are written: the first ones of the data set.
PER_CLASS: Final = {"train": 80, "test": 50}
MEMORY: Final = 500
_KEPT: Final = ("-o", f"memory={MEMORY}")
#: Strategies, with what the command line says of them.
STRATEGIES: Final[dict[str, tuple[str, ...]]] = {
    "naive": (),
    "replay": _KEPT,
    "icarl": _KEPT,
    "slda": (),
    "nearest_mean": (),
    "seu": ("--searcher", "random", "--creator", "all_new", "-o", "infer_task=entropy"),
    "er_ace": _KEPT,
    "cumulative": (),
}
PROCESSES: Final = "processes.csv"


class Process(Frozen):
    """What a process took, and what it left.

    Attributes:
        months: that it ended with.
        from_nothing: whether it learned all of them, and not the last one alone.
        run_id, weights: of the run, and SHA-256 of its weights.
        seconds, cpu_seconds: from its start to its end, and of the processor.
        peak_bytes, anonymous_bytes: most memory that was resident, and most that is no file's, looked at 20 times a
            second.
        model_bytes, learner_bytes: of the files that it left.
    """

    strategy: str
    seed: NonNegativeInt
    months: PositiveInt
    from_nothing: bool
    run_id: str
    weights: str
    seconds: PositiveFloat
    cpu_seconds: PositiveFloat
    peak_bytes: PositiveInt
    anonymous_bytes: PositiveInt
    model_bytes: PositiveInt
    learner_bytes: PositiveInt


def read_processes(path: Path) -> list[Process]:
    """Read ``processes.csv``; empty where there is none."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as opened:
        return [Process.model_validate(row) for row in csv.DictReader(opened)]


def month_folder(folder: Path, month: int) -> Path:
    """The images of a month, from 1."""
    return folder / "images" / f"month_{month:02}"


def write_images(folder: Path) -> None:
    """Write class folders of PNG files for each month, in the order of CIFAR-100's labels, which is that of names."""
    import numpy as np
    from PIL import Image
    from torchvision.datasets import CIFAR100

    for split, count in PER_CLASS.items():
        data = CIFAR100(str(default_data_root(None)), train=split == "train")
        for label, name in enumerate(data.classes):
            place = month_folder(folder, 1 + label // (len(data.classes) // MONTHS)) / split / name
            place.mkdir(parents=True, exist_ok=True)
            for row in np.flatnonzero(np.asarray(data.targets) == label)[:count]:
                Image.fromarray(data.data[row]).save(place / f"{row:05}.png")


def learn(folder: Path, strategy: str, seed: int) -> None:
    """Learn the first month, then extend it month by month; of the first seed also all of them from nothing."""
    path = folder / PROCESSES
    done = {
        (it.months, it.from_nothing): it for it in read_processes(path) if (it.strategy, it.seed) == (strategy, seed)
    }
    own = ("--device", "cpu", "--data-root", str(folder / "data"), "--quiet")
    begin = ("run", "--strategy", strategy, *STRATEGIES[strategy], "--seed", str(seed), *own)
    run = ""
    for months in range(1, MONTHS + 1):
        if (months, False) not in done:
            data = str(month_folder(folder, months))
            first = (*begin, "--benchmark", f"{data}/", "--classes-per-task", "10")
            words = first if months == 1 else ("extend", run, "--data", data, *own)
            done[months, False] = _measure(path, words, folder / "results", strategy, seed, months)
        run = done[months, False].run_id
    if not seed and (MONTHS, True) not in done:
        record = read_record(runs_folder(folder / "results") / run)
        words = (*begin, "--benchmark", str(folder / "results" / str(record.benchmark_file)))
        _measure(path, words, folder / "from_nothing", strategy, seed, MONTHS)


def _measure(path: Path, words: Sequence[str], results: Path, strategy: str, seed: int, months: int) -> Process:
    """Run a command and write down what its process took."""
    command = [sys.executable, "-m", "seu_bench", *words, "--results", str(results)]
    began, anonymous = time.perf_counter(), 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}, text=True) as it:
        status = Path(f"/proc/{it.pid}/status")
        while not (ended := os.wait4(it.pid, os.WNOHANG))[0]:
            told = [line.split()[1] for line in status.read_text().splitlines() if line.startswith("RssAnon")]
            anonymous = max([anonymous, *(1024 * int(value) for value in told)])
            time.sleep(0.05)
        seconds, usage = time.perf_counter() - began, ended[2]
        it.returncode = os.waitstatus_to_exitcode(ended[1])
        output = it.stdout.read() if it.stdout else ""
    if it.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {it.returncode}")
    run = runs_folder(results) / output.split()[-1]
    record = read_record(run)
    row: dict[str, Any] = {"strategy": strategy, "seed": seed, "months": months}
    row |= {"from_nothing": results.name == "from_nothing", "run_id": record.run_id, "weights": record.weights_sha256}
    row |= {"seconds": round(seconds, 2), "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2)}
    row |= {"peak_bytes": 1024 * usage.ru_maxrss, "anonymous_bytes": anonymous}
    row |= {"model_bytes": (run / MODEL_NAME).stat().st_size, "learner_bytes": (run / LEARNER_NAME).stat().st_size}
    found, is_new = Process.model_validate(row), not path.exists()
    with path.open("a", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, list(row), lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)
    print(*row.values(), flush=True)
    return found


def main() -> None:
    """Write the images, and make all runs that are missing, seed by seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of images, runs and measurements")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    folder = given.folder.absolute()
    if not month_folder(folder, MONTHS).exists():
        write_images(folder)
    for seed in given.seeds:
        for strategy in STRATEGIES:
            learn(folder, strategy, seed)


if __name__ == "__main__":
    main()
