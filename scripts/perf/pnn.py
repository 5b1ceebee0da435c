"""Speed-up of progressive networks by the feature cache, compared with what a column itself computes."""

from __future__ import annotations

import torch

from scripts.perf.comparison import Result, Size, Table
from scripts.perf.plain import WAYS, WITH, WITHOUT
from scripts.perf.runs import Timed, median_ratio, same_weights, side_by_side, stage_table, timed
from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.models.sizes import count_macs
from seu_bench.plugin.registry import Registry
from seu_bench_kit import AlexNetShape
from seu_bench_methods.pnn import Column

#: As in the paper.
BATCH = 128


def column_macs(shape: AlexNetShape, classes: int, columns: int) -> int:
    """Multiply-accumulates per image of a column behind so many others, whose outputs are there already."""
    column = Column(shape, classes, columns).eval()
    image = torch.zeros(1, shape.image_channels, shape.height, shape.width)
    with torch.no_grad():
        earlier = [Column(shape, classes, 0).eval().layer_inputs(image, ()) for _ in range(columns)]
    return count_macs(
        lambda x: column.logits(x, earlier, head_lateral=True),
        (shape.image_channels, shape.height, shape.width),
        image.device,
    )


def request_of(name: str, size: Size) -> Request:
    """Five tasks of colour images, or ten of grey ones; in batches that are all full, so that batches without the cache
    are its chunks."""
    colour = name == "pnn_5"
    return Request(
        strategy="pnn",
        benchmark="split_cifar100" if colour else "pmnist",
        protocol="paper",
        options={
            "width": 0.125 if size.quick else 0.5,
            "epochs": size.fixed(30, 2),
            "batch_size": BATCH,
            "benchmark.protocols.paper.eval_batch_size": BATCH,
            "benchmark.protocols.paper.images.valid": BATCH,
            **(
                {"benchmark.stream.classes_per_task": size.fixed(20, 50)}
                if colour
                else {"benchmark.stream.tasks": size.fixed(10, 2)}
            ),
        },
        limit=size.whole(BATCH, BATCH, BATCH),
        synthetic=True,
    )


def measure(name: str, size: Size) -> Result:
    """Whole runs side by side, then short ones of other budgets."""
    request = request_of(name, size)
    rounds = side_by_side(request, WAYS, size.count(2, 1) if name == "pnn_5" else 1)
    ours = rounds[0][WITH]
    # Batches that are not all full, and a budget that suffices for some of the rows.
    shorter = {"options": {**request.options, "epochs": 2}, "limit": BATCH + BATCH // 2}
    short = request.model_copy(update=shorter)
    budgets = [timed(short, feature_cache=budget) for budget in (None, 0, 2**21)]
    equal = same_weights(rounds, WITH, WITHOUT) and same_weights([{"": run} for run in budgets], "")
    columns, largest = _columns(request, [found[WITH] for found in rounds])
    return Result(
        {
            "benchmark": request.benchmark,
            "images per task": ours.record.task_images[0][0],
            "pixels": "x".join(map(str, ours.record.input_shape or ())),
            "rounds": len(rounds),
            **request.options,
        },
        {
            "run_ratio": median_ratio(rounds, Timed.seconds, WITHOUT, WITH),
            "steady_ratio": median_ratio(rounds, _steady, WITHOUT, WITH),
            "learning_ratio": median_ratio(rounds, lambda run: run.seconds("training"), WITHOUT, WITH),
            "equal_weights": equal,
            "largest_deviation": largest,
        },
        (stage_table(rounds, WITH, [WITHOUT]), columns),
    )


def _steady(run: Timed) -> float:
    """Training seconds if each epoch but the first, which fills the cache, took as long as its column's fastest."""
    later = [(epochs[0], epochs[1:]) for place, epochs in run.epochs.items() if place[0] == "training"]
    return sum(first + len(others) * min(others, default=0) for first, others in later)


def _columns(request: Request, runs: list[Timed]) -> tuple[Table, float]:
    """Seconds per epoch of each column beside those that its own arithmetic predicts, and the largest deviation."""
    run = resolve(Registry(), request)
    plan = run.plan()
    options = request.options
    shape = AlexNetShape.of(plan.channels, plan.height, plan.width, float(options["width"]))
    record = runs[0].record
    rows = []
    first: tuple[float, float] | None = None
    for task, (train, valid, _) in enumerate(record.task_images):
        macs = column_macs(shape, record.task_classes[task], task)
        work = macs * (3 * train + valid)
        taken = sorted(run.epoch(("training", task)) for run in runs)[len(runs) // 2]
        first = first or (work, taken)
        predicted = first[1] * work / first[0]
        rows.append([task + 1, macs, taken, predicted, taken / predicted])
    table = Table(
        "Columns", ("column", "own MACs per image", "s per epoch", "predicted s", "measured / predicted"), rows
    )
    return table, max(abs(row[4] - 1) for row in rows)
