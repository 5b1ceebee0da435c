"""The record of a run that begins: everything that is decided before training."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from seu_bench.environment import describe_environment
from seu_bench.record import Record
from seu_bench.resolve import ResolvedRun

if TYPE_CHECKING:
    from seu_bench.streams import TaskStream


def opening_record(run: ResolvedRun, stream: TaskStream, device: str) -> Record:
    """The record of ``run`` on ``stream``, of which nothing is learned yet."""
    spec, plan = run.spec, stream.plan
    return Record(
        run_id=spec.run_id,
        status="running",
        strategy=spec.strategy,
        options=run.options.model_dump(mode="json"),
        searcher=spec.searcher,
        searcher_options=run.searcher.options.model_dump(mode="json") if run.searcher else {},
        creator=spec.creator,
        creator_options=run.creator.options.model_dump(mode="json") if run.creator else {},
        benchmark=spec.benchmark.name,
        benchmark_version=spec.benchmark.version,
        benchmark_overrides=dict(run.overrides),
        protocol=spec.protocol_name,
        protocol_settings=spec.protocol.model_dump(mode="json", exclude={"summary", "ranked"}),
        ranked=spec.protocol.ranked,
        seed=spec.seed,
        limit=spec.limit,
        synthetic=spec.synthetic,
        precision=spec.precision,
        task_order=plan.order,
        task_names=tuple(task.name for task in plan.tasks),
        task_classes=plan.classes,
        task_images=tuple((task.train, task.valid, task.test) for task in plan.tasks),
        input_shape=(plan.channels, plan.height, plan.width),
        data_fingerprint=stream.fingerprint,
        environment=describe_environment(device),
        started=datetime.now(UTC).isoformat(timespec="seconds"),
    )
