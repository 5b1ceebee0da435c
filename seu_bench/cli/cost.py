"""``seu-bench cost``: parameters, multiply-accumulates and image passes of a run, before it is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from seu_bench.cli.options import fields_command, format_option, print_as
from seu_bench.config.run import ExecutionFields, Request
from seu_bench.plugin.registry import use_plugins
from seu_bench.utils.text import format_seconds

if TYPE_CHECKING:
    from seu_bench.engine.resolve import ResolvedRun

#: Sizes after each task, in the order of a document.
_SIZES: Final = ("params_total", "macs", "memory_bytes")
#: Fields of a request that decide nothing of a run's cost.
_OTHERS: Final = {"restart", "max_seconds", *ExecutionFields.model_fields} - {
    *("data_root", "plugin", "classes_per_task", "size", "results")
}


@fields_command(Request, Request.model_fields.keys() - _OTHERS)
@click.option("--time/--no-time", default=True, help="Also measure this machine's speed, for the time of learning.")
@format_option
def cost(form: str, time: bool, **fields: Any) -> None:
    """Estimate the cost of a run.

    Parameters, bytes kept for later tasks, multiply-accumulates per image and image passes, computed without learning
    or data sets (except the shape of your own data); and the time that learning takes on this machine, whose
    speed is measured on the first batches of each stage.
    """
    from seu_bench.engine.resolve import resolve

    request = Request(**fields)
    document = _document(resolve(use_plugins(request.plugin), request), measure=time)
    print_as(form, document, _lines(document))


def _document(run: ResolvedRun, *, measure: bool) -> dict[str, Any]:
    """The cost of a run as plain values; sizes are upper bounds where the strategy decides as it goes, ``*_min`` lower.

    ``image_passes`` and ``seconds`` are of learning; ``stages`` are counted by whether they train.
    """
    from seu_bench.engine.environment import choose_device
    from seu_bench.engine.forecast import measure_speed

    plan = run.plan()
    cost = run.cost(run.context(plan))
    stages: dict[str, dict[str, int]] = {}
    for stage in cost.stages:
        sums = stages.setdefault(stage.name, {"train": 0, "evaluate": 0, "image_passes": 0})
        for kind in sums:
            sums[kind] += getattr(stage, kind)
    speed = measure_speed(run, cost, choose_device(run.request.device)) if measure else None
    return {
        "strategy": run.spec.strategy,
        "benchmark": run.spec.benchmark.name,
        "benchmark_version": run.spec.benchmark.version,
        "protocol": run.spec.protocol_name,
        "seed": run.spec.seed,
        "tasks": [task.name for task in plan.tasks],
        "warnings": list(plan.warnings),
        **{name: list(getattr(cost, name)) for size in _SIZES for name in (size, f"{size}_min")},
        "mask_bits": list(cost.mask_bits),
        "mask_bits_min": list(cost.mask_bits_min or cost.mask_bits),
        "image_passes": cost.image_passes,
        "train_flops": cost.train_flops,
        "train_flops_min": cost.train_flops_min,
        "evaluation_passes": cost.all_passes - cost.image_passes,
        "stages": stages,
        "seconds": None if speed is None else speed.predict(cost),
    }


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    def format_range(name: str, task: int | None = None) -> str:
        least, most = (found if task is None else found[task] for found in (document[f"{name}_min"], document[name]))
        return f"{most:,}" if least == most else f"{least:,} to {most:,}"

    yield "{strategy} on {benchmark} version {benchmark_version}, protocol {protocol}".format(**document)
    for task, name in enumerate(document["tasks"]):
        masks = f" and {format_range('mask_bits', task)} bits of masks" if document["mask_bits"] else ""
        kept = f"; {format_range('memory_bytes', task)} bytes kept" if document["memory_bytes"] else ""
        sizes = f"{format_range('params_total', task)} parameters{masks}; {format_range('macs', task)}"
        yield f"  after task {task} ({name}): {sizes} multiply-accumulates per image{kept}"
    for name, sums in document["stages"].items():
        yield f"  {name}: {sums['train']:,} image passes to train, {sums['evaluate']:,} to evaluate"
    flops = f", {format_range('train_flops')} operations" if document["train_flops"] is not None else ""
    yield f"  together {document['image_passes']:,} image passes to learn{flops}"
    if document["seconds"] is not None:
        yield f"  about {format_seconds(document['seconds'])} on this machine"
    yield from document["warnings"]
