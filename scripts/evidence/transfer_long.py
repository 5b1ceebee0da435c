"""A modular network on a long stream: what each task takes, in a figure; and what the feature cache saves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from scripts.evidence.formatting import table
from scripts.evidence.runs import EVIDENCE, ROOT, records
from seu_bench.results.record import Record

#: The set of the long stream's record.
LONG_SET: Final = "transfer_long"
PICTURE: Final = ROOT / "docs" / "pictures" / "transfer_long.svg"
#: Training and validation images of a small task: 40 and 20 of each of ten classes.
SMALL: Final = (400, 200)
#: Tasks whose rows the table shows.
SHOWN: Final = 5


@dataclass(frozen=True)
class TaskCost:
    """What a task of the long stream took.

    Attributes:
        images: training and validation images.
        bodies: paths without their head that the prior asked.
        prior_cpu, candidates_cpu: CPU seconds.
        prior_flops, candidates_flops: operations.
        params: after it.
    """

    images: int
    bodies: int
    prior_cpu: float
    candidates_cpu: float
    prior_flops: int
    candidates_flops: int
    params: int


def long_run(folder: Path = EVIDENCE) -> Record | None:
    """The record; ``None`` where it was not run."""
    return next(iter(records(folder / LONG_SET)), None) if (folder / LONG_SET).is_dir() else None


def costs_of(record: Record) -> list[TaskCost]:
    """What each learned task took; the first has neither prior nor candidates."""
    stages: Mapping[int, list[tuple[str, float, int, int]]] = defaultdict(list)
    for stage in record.stages:
        if stage.name != "evaluation":
            stages[stage.task].append((stage.name, stage.cpu_seconds or 0.0, stage.flops or 0, stage.epochs))
    costs = []
    for task in sorted(stages):
        prior = [row for row in stages[task] if row[0] == "prior"]
        others = [row for row in stages[task] if row[0] != "prior"]
        costs.append(
            TaskCost(
                sum(record.task_images[task][:2]),
                sum(row[3] for row in prior),
                sum(row[1] for row in prior),
                sum(row[1] for row in others),
                sum(row[2] for row in prior),
                sum(row[2] for row in others),
                record.params_total[task],
            )
        )
    return costs


def long_table(record: Record) -> str:
    """Means over five tasks each: what grows, and what does not."""
    costs = costs_of(record)[1:]
    lines = []
    for start in range(0, len(costs), SHOWN):
        part = costs[start : start + SHOWN]
        images, asked = sum(it.images for it in part), sum(it.images * it.bodies for it in part)
        lines.append(
            (
                f"{start + 2} to {start + 1 + len(part)}",
                f"{images / len(part):.0f}",
                f"{sum(it.bodies for it in part) / len(part):.1f}",
                f"{1e3 * sum(it.candidates_cpu for it in part) / images:.2f}",
                f"{1e3 * sum(it.prior_cpu for it in part) / asked:.2f}",
                f"{sum(it.candidates_flops for it in part) / images / 1e6:.1f}",
                f"{sum(it.prior_flops for it in part) / asked / 1e6:.2f}",
                f"{part[-1].params:,}",
            )
        )
    headings = ["tasks", "images", "bodies", "candidates (ms per image)", "prior (ms per image and body)"]
    headings += ["candidates (MFLOP per image)", "prior (MFLOP per image and body)", "parameters after them"]
    return table(headings, lines)


def draw(record: Record, path: Path = PICTURE) -> None:
    """CPU seconds per image and parameters, over the tasks."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    costs = costs_of(record)
    tasks = range(1, len(costs) + 1)
    with matplotlib.rc_context({"svg.hashsalt": "seu-bench", "svg.fonttype": "none", "font.size": 9}):
        figure, (times, sizes) = pyplot.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
        candidates = [1e3 * it.candidates_cpu / it.images for it in costs]
        times.bar(tasks, candidates, color="#4477aa", label="candidates")
        priors = [1e3 * it.prior_cpu / it.images for it in costs]
        times.bar(tasks, priors, bottom=candidates, color="#ee6677", label="prior")
        times.set(xlabel="task", ylabel="CPU ms per image", ylim=(0, None))
        times.legend(frameon=False)
        sizes.step(tasks, [it.params for it in costs], where="mid", color="#4477aa")
        sizes.plot(tasks, [it.params for it in costs][:1] * len(costs), color="#888888", linestyle=":")
        sizes.set(xlabel="task", ylabel="parameters", ylim=(0, None))
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)


def saved_table() -> str:
    """Operations of a small task's candidates with and without reading frozen modules back, by the number of epochs."""
    lines = []
    for epochs in (12, 300):
        plain, cached = candidates_flops(epochs, *SMALL)
        lines.append((str(epochs), f"{plain / 1e12:.3f}", f"{cached / 1e12:.3f}", f"{plain / cached:.2f} times"))
    return table(["epochs", "computed anew (TFLOP)", "computed once (TFLOP)", "without the cache"], lines, texts=1)


def candidates_flops(epochs: int, train: int, valid: int, channels: int = 16) -> tuple[int, int]:
    """Operations of all candidates of a task of ten classes on 32x32 colour images.

    Args:
        epochs: of each candidate.
        train, valid: images.
        channels: of the network.

    Returns:
        Computed anew in each epoch, and with every frozen module computed once for each image.
    """
    import torch

    from seu_bench.data import StreamPlan, TaskPlan
    from seu_bench.training import on_meta, pass_flops
    from seu_bench_mntdp.network import ModularResNet

    plan = StreamPlan(3, 32, 32, tuple(TaskPlan(f"task {task}", 10, train, valid, 0) for task in range(2)), (0, 1))
    network = on_meta(partial(ModularResNet, 3, channels, (10, 10)))
    anew = once = 0
    with torch.device("meta"):
        network.add_new()
        body = 0
        for reused in range(network.places + 1):
            network.try_path((*network.paths[0][:reused], *(None,) * (network.places - reused)))
            network.train()
            whole = pass_flops(partial(network.forward_single_task, task_label=1), plan)
            frozen = network.paths[0][: min(reused, network.places - 1)]
            prefix = pass_flops(partial(network.prefix, path=frozen), plan).evaluate
            trains = epochs if reused < network.places else 0
            tests = max(trains, 1)
            anew += trains * train * whole.train + tests * valid * whole.evaluate
            once += trains * train * (whole.train - prefix) + tests * valid * (whole.evaluate - prefix)
            body = max(body, prefix)
    return anew, once + body * (train + valid)
