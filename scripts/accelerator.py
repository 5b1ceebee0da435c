"""The paper's schedule on an accelerator, in calls of limited time: runs, speed, memory, number formats.

    python -m scripts.accelerator --data-root DATA [--seconds 570]

Call it again until it says that all runs are finished: each call resumes where the last one stopped. The runs are those
of ``split_cifar100`` by ``paper``, seed 0: SEU with the paper's searcher and creator, and with ours, and the paper's
other strategies. Behind them come the first tasks of some in bfloat16 and compiled, which tell what that gains. A table
and a JSON file beside the records have images and operations per second, the share of what a product of matrices
reaches on the same device, and the most memory held on it. Exit status 75: runs are left.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

from scripts.evidence.formatting import table
from seu_bench.config.run import Request
from seu_bench.engine.launcher import launch
from seu_bench.engine.resolve import resolve
from seu_bench.engine.stopping import StopRequest
from seu_bench.errors import ExitStatus, Interruption
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, read_record, record_path

#: Seconds at which no further run is begun.
LEAST: Final = 10.0
_OURS: Final = {"strategy": "seu", "searcher": "inherit", "creator": "inherit", "options": {"width": 0.5}}
#: Fields of each run's request, in the order in which they are made. A compiled run has the id of the other one, and
#: thus a folder of its own.
RUNS: Final[dict[str, dict[str, Any]]] = {
    "seu, mdl/mdl": {"strategy": "seu"},
    "seu, inherit/inherit": _OURS,
    **{name: {"strategy": name} for name in ("naive", "ewc", "pnn", "ltg")},
    "naive, 2 tasks": {"strategy": "naive", "first_tasks": 2},
    "naive, 2 tasks, bf16": {"strategy": "naive", "first_tasks": 2, "precision": "bf16"},
    "seu, inherit/inherit, 2 tasks": {**_OURS, "first_tasks": 2},
    "seu, inherit/inherit, 2 tasks, bf16": {**_OURS, "first_tasks": 2, "precision": "bf16"},
    "seu, inherit/inherit, 2 tasks, compiled": {**_OURS, "first_tasks": 2, "compile": True},
}


@dataclass(frozen=True)
class Speed:
    """What a run reached.

    Attributes:
        state: of its record; ``None``: not begun.
        images: image passes per second of learning, all stages but evaluation.
        operations: floating-point operations per second of the same.
        share: of the operations per second of a product of matrices.
        peak: bytes held on the device at most.
    """

    run: str
    state: str | None = None
    tasks: int = 0
    seconds: float | None = None
    images: float | None = None
    operations: float | None = None
    share: float | None = None
    peak: float | None = None
    accuracy: float | None = None
    params: int | None = None
    run_id: str | None = None


def product_speed(device: str, side: int, repeats: int = 10) -> float:
    """Operations per second of a product of square float32 matrices, the best of some."""
    a, b = torch.randn(2, side, side, device=device)
    best = 0.0
    for _ in range(repeats):
        _settle(device)
        began = time.perf_counter()
        torch.mm(a, b)
        _settle(device)
        best = max(best, 2 * side**3 / (time.perf_counter() - began))
    return best


def _settle(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize(device)


def speed(name: str, record: Record | None, product: float) -> Speed:
    """What a run reached, as its record has it; ``None``: it was not begun."""
    if record is None:
        return Speed(name)
    learning = [stage for stage in record.stages if stage.name != "evaluation"]
    seconds = sum(stage.seconds for stage in learning)
    passes = sum(stage.image_passes for stage in learning)
    counted = [stage.flops for stage in learning]
    operations = None if None in counted or not seconds else sum(map(int, filter(None, counted))) / seconds
    return Speed(
        name,
        record.status,
        len(record.params_total),
        record.seconds,
        passes / seconds if seconds else None,
        operations,
        operations and operations / product,
        record.metrics.get("peak_memory_bytes"),
        record.metrics.get("acc"),
        record.params_total[-1] if record.params_total else None,
        record.run_id,
    )


def requests(common: Mapping[str, Any]) -> dict[str, Request]:
    """The runs' requests, with fields that all of them have."""
    folder = Path(common["results"])
    found = {}
    for name, fields in RUNS.items():
        options = {**common.get("options", {}), **fields.get("options", {})}
        results = folder / "compiled" if fields.get("compile") else folder
        found[name] = Request(**{**common, **fields, "options": options, "results": results})
    return found


def make(asked: Mapping[str, Request], until: float) -> bool:
    """Make or resume runs one after another until a moment of :func:`time.monotonic`.

    Returns:
        Whether all of them are finished.
    """
    for name, request in asked.items():
        left = until - time.monotonic()
        if left < LEAST:
            return False
        print(f"{name}: at most {left:.0f} s", flush=True)
        try:
            launch(request, stop=StopRequest(left))
        except Interruption:
            return False
    return True


def records(asked: Mapping[str, Request]) -> dict[str, Record | None]:
    """Records of runs, as far as they were begun."""
    registry = Registry()
    found = {}
    for name, request in asked.items():
        path = record_path(request.results, resolve(registry, request).spec.run_id)
        found[name] = read_record(path) if path.is_file() else None
    return found


def page(speeds: Iterable[Speed], device: str, product: float) -> str:
    """A table of all runs in Markdown."""
    columns = ("run", "state", "tasks", "seconds", "images/s", "GFLOP/s", "share", "peak MiB", "accuracy", "parameters")
    rows = []
    for it in speeds:
        fast = (_number(it.seconds, "{:.0f}"), _number(it.images, "{:,.0f}"), _number(it.operations, "{:,.1f}", 1e-9))
        held = (_number(it.share, "{:.1f} %", 100), _number(it.peak, "{:,.0f}", 2**-20))
        good = (_number(it.accuracy, "{:.2f} %", 100), _number(it.params, "{:,}"))
        rows.append((it.run, it.state or "not begun", str(it.tasks), *fast, *held, *good))
    told = f"Device: {device}; a product of matrices in float32 reaches {product / 1e9:,.0f} GFLOP/s."
    return f"{told}\n\n{table(columns, rows, texts=2)}\n"


def _number(value: float | None, form: str, times: float = 1) -> str:
    return "" if value is None else form.format(times * value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make runs, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results/accelerator"))
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=570.0, help="limit of this call (default: %(default)s)")
    parser.add_argument("--benchmark", default="split_cifar100")
    parser.add_argument("--protocol", default="paper")
    parser.add_argument("--limit", type=int, help="images per task and split at most: a trial")
    given = parser.parse_args(arguments)
    until = time.monotonic() + given.seconds
    fields = ("results", "data_root", "device", "benchmark", "protocol", "limit")
    asked = requests({name: getattr(given, name) for name in fields})
    finished = make(asked, until)
    product = product_speed(given.device, 8192 if given.device != "cpu" else 1024)
    speeds = [speed(name, record, product) for name, record in records(asked).items()]
    device = torch.cuda.get_device_name(given.device) if given.device != "cpu" else "processor"
    told = page(speeds, device, product)
    given.results.mkdir(parents=True, exist_ok=True)
    (given.results / "accelerator.md").write_text(told, encoding="utf-8")
    document = {"device": device, "product": product, "runs": [asdict(it) for it in speeds]}
    (given.results / "accelerator.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(told)
    print("all runs are finished" if finished else "runs are left: call again")
    return ExitStatus.DONE if finished else ExitStatus.OUT_OF_TIME


if __name__ == "__main__":
    sys.exit(main())
