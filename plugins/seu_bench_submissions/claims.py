"""What a stranger's record must have by its own request: compared without data or training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seu_bench.engine.recorder import requested_fields
from seu_bench.engine.verification import differences, resolve_record
from seu_bench.errors import SeuBenchError
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import EVALUATION, compute_metrics
from seu_bench.training.interfaces import Cost


def claim_faults(registry: Registry, record: Record, data_root: Path | None = None) -> list[str]:
    """List where a finished record differs from the tasks, settings and cost that follow from its request."""
    if ":" in record.strategy or record.attach:
        return ["it cannot be checked here: it names classes by import path, which are not imported for strangers"]
    try:
        run = resolve_record(registry, record, data_root=data_root)
        plan = run.plan()
        cost = run.cost(run.context(plan))
    except Exception as error:  # a plugin's may raise anything where a stranger chose the options
        what = error.what if isinstance(error, SeuBenchError) else f"{type(error).__name__}: {error}"
        return [f"it cannot be checked here: {what}"]
    faults = []
    for name, value in requested_fields(run, plan).items():
        # Keys that are missing within a field are at the defaults of a later version, or else the run id differs.
        told = differences(getattr(record, name), value, name, "found")
        faults += [fault for fault in told if not fault.endswith(": only found")]
    return faults or [*_size_faults(record, cost), *_stage_faults(record, cost)]


def _size_faults(record: Record, cost: Cost) -> Iterator[str]:
    """Tasks that were not measured, and sizes outside of what was forecast for them."""
    tasks = len(record.task_names)
    learned = {stage.task for stage in cost.stages if stage.name != EVALUATION and stage.image_passes}
    first = tasks - 1 if learned == {tasks - 1} else 0  # who learns the whole stream at once is measured once
    measured = [[value is not None for value in row] for row in record.accuracy_matrix]
    if measured != [[first <= row >= task for task in range(tasks)] for row in range(tasks)]:
        yield "accuracy_matrix does not have a value for each task learned until then, and no other"
    none = (0,) * tasks
    ranges = {
        "params_total": (cost.params_total_min, cost.params_total),
        "params_active": (none, cost.params_total),
        "macs": (cost.macs_min, cost.macs),
        "memory_bytes": (cost.memory_bytes_min, cost.memory_bytes),
        "mask_bits": (cost.mask_bits or none, cost.mask_bits or none),
    }
    for name, (least, most) in ranges.items():
        values = getattr(record, name)
        if not most or (name == "mask_bits" and not values and not cost.mask_bits):
            continue  # not forecast, and stated then; older records have no masks
        if len(values) != tasks - first:
            yield f"{name} has {len(values)} values, and {tasks - first} were measured"
            continue
        for task, value in enumerate(values, start=first):
            if value is None or not least[task] <= value <= most[task]:
                yield f"{name} is {value} after task {task}, and {least[task]} to {most[task]} were forecast"
    if record.memory_by_kind and record.memory_bytes[-1:] != (sum(record.memory_by_kind.values()),):
        yield "memory_by_kind is not what memory_bytes has after the last task"


def _stage_faults(record: Record, cost: Cost) -> Iterator[str]:
    """Stages whose passes and operations are outside of what was forecast for all of them together."""
    if {stage.task for stage in record.stages} - set(range(len(record.task_names))):
        yield "a stage is of no task"
    metrics = compute_metrics(record)
    passes, flops = int(metrics["image_passes"] or 0), metrics["train_flops"]
    evaluated = sum(stage.image_passes for stage in record.stages) - passes
    most = {"learn": (passes, cost.image_passes), "evaluate": (evaluated, cost.all_passes - cost.image_passes)}
    for what, (found, forecast) in most.items():
        if not 0 < found <= forecast:
            yield f"{found} image passes to {what}, and at most {forecast} were forecast"
    least, largest = cost.train_flops_min, cost.train_flops
    if least is not None and largest is not None and (flops is None or not least <= flops <= largest):
        yield f"{flops} operations of learning, and {least} to {largest} were forecast"
