"""Ten months of ten classes of CIFAR-100 each, as folders, learned one after another by the command line.

    python -m scripts.evidence.months_runs FOLDER [--seeds 0 1 2]

One process at a time, on one core; what each takes goes to FOLDER/processes.csv, and what is there is not run again.
CIFAR-100 is read below the data root, which :func:`seu_bench.data.dataset.default_data_root` finds.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt
from safetensors.numpy import load_file

from seu_bench.config.options import Frozen
from seu_bench.data.dataset import default_data_root
from seu_bench.results.record import read_record, runs_folder
from seu_bench.results.record_files import LEARNER_NAME, MODEL_NAME

MONTHS: Final = 10
#: Images of each class that are written: the first ones of the data set.
PER_CLASS: Final = {"train": 80, "test": 50}
MEMORY: Final = 500
#: Months that are learned again by an allocator that gives back.
AGAIN: Final = (2, MONTHS)
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
GIVING: Final = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
Kind: TypeAlias = Literal["month", "from nothing", "giving back"]


class Process(Frozen):
    """What a process took, and what it left.

    Attributes:
        months: that it ended with.
        kind: it learned the last month; all of them; or the last one by an allocator that gives back at once what is
            freed (:data:`GIVING`), and so holds what is in use.
        run_id: of the run.
        weights: SHA-256 of names, shapes and numbers of its weights, without what the file says beside them.
        seconds, cpu_seconds: from its start to its end, and of the processor.
        peak_bytes: most memory that was resident.
        model_bytes, learner_bytes: of the files that it left.
    """

    strategy: str
    seed: NonNegativeInt
    months: PositiveInt
    kind: Kind
    run_id: str
    weights: str
    seconds: PositiveFloat
    cpu_seconds: PositiveFloat
    peak_bytes: PositiveInt
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


def weights_digest(file: Path) -> str:
    """SHA-256 of the tensors of a file."""
    digest = hashlib.sha256()
    for name, array in sorted(load_file(file).items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
    return digest.hexdigest()


def learn(folder: Path, strategy: str, seed: int) -> None:
    """Learn the first month, then extend it month by month; of the first seed also all of them from nothing, and two
    months again by an allocator that gives back."""
    known = [it for it in read_processes(folder / PROCESSES) if (it.strategy, it.seed) == (strategy, seed)]
    runs: dict[tuple[int, Kind], str] = {(it.months, it.kind): it.run_id for it in known}

    def make(months: int, kind: Kind, *words: str) -> None:
        if (months, kind) not in runs:
            command = *words, *own, "--results", str(folder if kind != "from nothing" else folder / "from_nothing")
            runs[months, kind] = _measure(folder, command, strategy=strategy, seed=seed, months=months, kind=kind)

    own = ("--device", "cpu", "--data-root", str(folder / "data"), "--quiet")
    begin = ("run", "--strategy", strategy, *STRATEGIES[strategy], "--seed", str(seed))
    for months in range(1, MONTHS + 1):
        data = str(month_folder(folder, months))
        words = (*begin, "--benchmark", f"{data}/", "--classes-per-task", "10")
        make(months, "month", *(words if months == 1 else ("extend", runs[months - 1, "month"], "--data", data)))
    if not seed:
        record = read_record(runs_folder(folder) / runs[MONTHS, "month"])
        make(MONTHS, "from nothing", *begin, "--benchmark", str(folder / str(record.benchmark_file)))
        for months in AGAIN:
            data = str(month_folder(folder, months))
            make(months, "giving back", "extend", runs[months - 1, "month"], "--data", data, "--name", "again")
            shutil.rmtree(runs_folder(folder) / runs[months, "giving back"], ignore_errors=True)


def _measure(folder: Path, words: Sequence[str], **row: Any) -> str:
    """Run a command, write down what its process took, and return the id of its run."""
    command = [sys.executable, "-m", "seu_bench", *words]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **(GIVING if row["kind"] == "giving back" else {})}
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True) as it:
        output = it.stdout.read() if it.stdout else ""
        _, status, usage = os.wait4(it.pid, 0)
        seconds, it.returncode = time.perf_counter() - began, os.waitstatus_to_exitcode(status)
    if it.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {it.returncode}")
    run = runs_folder(Path(words[-1])) / output.split()[-1]
    row |= {"run_id": run.name, "weights": weights_digest(run / MODEL_NAME)}
    row |= {"seconds": round(seconds, 2), "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 2)}
    row |= {"peak_bytes": 1024 * usage.ru_maxrss}
    row |= {"model_bytes": (run / MODEL_NAME).stat().st_size, "learner_bytes": (run / LEARNER_NAME).stat().st_size}
    row = Process.model_validate(row).model_dump()
    path = folder / PROCESSES
    is_new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, list(row), lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)
    print(*row.values(), flush=True)
    return run.name


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
