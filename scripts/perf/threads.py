"""Steps of training with one thread and with as many as there are cores, on an idle machine and on a busy one."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import torch

from scripts.perf.comparison import Result, Size, Table, Value
from scripts.perf.flops import step_flops
from scripts.perf.plain import plain
from scripts.perf.steps import STEPS, Scale, Step
from scripts.perf.timing import interleaved, median, ratio
from seu_bench.utils.hardware import computing_with, usable_cores

#: Networks by what they are like: those of the protocol smoke, of quick, between, and of paper.
_SCALES = {
    "small": Scale(0.125, 3, 4, 64, 16),
    "middle": Scale(0.25, 3, 8, 64, 32),
    "of half width": Scale(0.5, 4, 12, 128, 32),
    "large": Scale(1.0, 5, 16, 128, 32),
}
_STEPS = ("naive, training", "seu, training")


def measure(_: str, size: Size) -> Result:
    """Each step with one thread and with many in each round, idle and beside a process per core that only computes."""
    cores = usable_cores()
    many, rounds = max(2, cores), size.count(7, 1)
    scales = {"small": _SCALES["small"]} if size.quick else _SCALES
    rows = []
    worst = float("inf")
    for scale_name, scale in scales.items():
        for name in _STEPS:
            torch.manual_seed(0)
            step = STEPS[name](scale)
            ways = {str(threads): _with(threads, step) for threads in (1, many)}
            calls = 1 if scale.batch == 128 or size.quick else 10
            idle = interleaved(ways, rounds, calls)
            with _busy(cores):
                busy = interleaved(ways, rounds, calls)
            gains = [ratio(taken, "1", str(many)) for taken in (idle, busy)]
            torch.manual_seed(0)
            with plain():
                flops = step_flops(STEPS[name](scale))
            times = [1000 * median(taken, "1") for taken in (idle, busy)]
            rows.append([f"{name}, {scale_name}", flops / 1e9, *times, *gains])
            worst = min(worst, gains[1])
    columns = (
        "step",
        "GFLOP",
        "1 thread, ms",
        "1 thread, busy, ms",
        f"{many} threads: times faster",
        "busy: times faster",
    )
    values: dict[str, Value] = {"many_on_busy": worst}
    return Result({"rounds": rounds, "threads": many}, values, (Table("Steps", columns, rows, columns[-1]),))


def _with(threads: int, step: Step) -> Step:
    def computed() -> None:
        with computing_with(threads):
            step()

    return computed


@contextlib.contextmanager
def _busy(processes: int) -> Iterator[None]:
    """Have so many processes compute without end."""
    command = [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(command) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()
