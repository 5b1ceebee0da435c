"""The pretrained network of a run: of its benchmark and of its record, and what it adds to the run's cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.streams import stream_inputs
from seu_bench.data.dataset import InputShape, default_data_root
from seu_bench.data.encoding import StreamEncoder
from seu_bench.data.planning import StreamPlan
from seu_bench.errors import RequestError
from seu_bench.plugin.registry import Registry, find_named
from seu_bench.results.record import EncoderRecord, Record
from seu_bench.training.interfaces import Cost, EncoderFactory, StageCost, StrategyFactory

if TYPE_CHECKING:
    from seu_bench.models.encoder import Encoder


def find_encoder(
    registry: Registry, benchmark: BenchmarkSpec, strategy: StrategyFactory, data_root: Path | None
) -> StreamEncoder | None:
    """The pretrained network that a benchmark's input names, the same for all tasks; ``None``: it names none."""
    names = {source.encoder for source in stream_inputs(benchmark.stream)}
    uses = bool(getattr(strategy, "uses_encoder", False))
    if len(names) > 1:
        what = f"tasks of benchmark {benchmark.name!r} have different encoders: {', '.join(sorted(map(str, names)))}"
        raise RequestError(what, where="input.encoder", remedy="give one in [stream.input], for all tasks")
    (name,) = names
    if name is None:
        if uses:
            what = "the strategy learns with a pretrained network, and the benchmark names none"
            remedy = "add -o benchmark.stream.input.encoder=lite0 -o benchmark.stream.input.resize=96"
            raise RequestError(what, where="input.encoder", remedy=remedy)
        return None
    factory = named_encoder(registry, name)
    return StreamEncoder(factory.info(), factory.load, not uses, default_data_root(data_root) / "features")


def named_encoder(registry: Registry, name: str) -> EncoderFactory:
    """The encoder ``NAME``, or of many that are registered as one, ``KIND:NAME``; a RequestError: there is none."""
    found: EncoderFactory = find_named(registry.encoders, name, "encoder")
    return found


def find_record_encoder(registry: Registry, record: Record) -> Encoder | None:
    """The pretrained network of a record; ``None``: it has none. A RequestError: its weights are others here."""
    if record.encoder is None:
        return None
    encoder = named_encoder(registry, record.encoder.name).load()
    if (found := encoder.info.sha256) != record.encoder.sha256:
        what = f"the weights of encoder {record.encoder.name!r} are not the run's: {found}, not {record.encoder.sha256}"
        raise RequestError(what, where="encoder", remedy=f"install those of {record.encoder.source}")
    return encoder


def describe_encoder(encoder: StreamEncoder, sample: InputShape, *, trained: bool) -> EncoderRecord:
    """The pretrained network of a stream whose images are of this shape, as records have it; ``trained``: the model has
    a copy that is."""
    from seu_bench.models.sizes import count_macs, count_parameters, state_bytes

    network, info = encoder.network, encoder.info
    try:
        macs = count_macs(network, sample.shape, next(network.parameters()).device)
    except (AssertionError, RuntimeError, ValueError) as error:
        what = f"encoder {info.name!r} takes no {sample}: {' '.join(str(error).split()):.200}"
        remedy = f"add -o benchmark.stream.input.resize={info.size}"
        raise RequestError(what, where="input.resize", remedy=remedy) from error
    sizes = {"params": count_parameters(network), "bytes": state_bytes(network), "macs": macs}
    return EncoderRecord(**info.document(), **sizes, trained=trained)


def add_encoder(cost: Cost, encoder: EncoderRecord, plan: StreamPlan) -> Cost:
    """The cost with the encoder's sizes, and with the features of each task's images where these are samples."""
    if encoder.trained:
        return cost
    made = plan.kind == "features"
    added = {"params_total": encoder.params, "memory_bytes": encoder.bytes, "macs": encoder.macs if made else 0}
    sizes: dict[str, Any] = {
        name: tuple(value + size for value in getattr(cost, name))
        for key, size in added.items()
        for name in (key, f"{key}_min")
    }
    stages = [
        StageCost("features", place, 0, images, flops, flops)
        for place, task in enumerate(plan.tasks if made else ())
        for images in [task.num_train + task.num_valid]
        for flops in [2 * encoder.macs * images]
    ]
    return replace(cost, stages=(*stages, *cost.stages), **sizes)
