"""Requests resolved to validated runs: names looked up, options layered, data sets and tuned files found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final, cast

from seu_bench.config.benchmark import BenchmarkFile, BenchmarkSource, BenchmarkSpec, names_a_file
from seu_bench.config.common_options import BackboneOptions, SelectingOptions, SpaceOptions, TaskInferenceOptions
from seu_bench.config.options import Options, build_options, did_you_mean, split_by_prefix
from seu_bench.config.protocol import ImageLimits, ProtocolSpec
from seu_bench.config.run import Request, ResultFields, RunSpec
from seu_bench.config.streams import SCENARIOS, InputKind, OnlineStream, Scenario, Stream
from seu_bench.config.tuned import TunedFile
from seu_bench.data.dataset import DatasetInfo, DatasetSource, RawDataset
from seu_bench.data.encoding import StreamEncoder
from seu_bench.data.own_folders import with_benchmark_file
from seu_bench.data.planning import StreamPlan, plan_stream
from seu_bench.data.sources import definition_source
from seu_bench.data.tasks import dataset_names, number_classes
from seu_bench.engine.encoders import add_encoder, describe_encoder, find_encoder
from seu_bench.engine.environment import require_memory
from seu_bench.engine.online import require_online
from seu_bench.engine.tuned_files import find_tuned
from seu_bench.errors import DataError, RequestError, ScenarioError, SeuBenchError, UnknownNameError
from seu_bench.plugin.code import describe_code, file_digest
from seu_bench.plugin.paths import attached_code, make_attached
from seu_bench.plugin.registry import PACKAGE, Kind, Registry, find_named
from seu_bench.results.record import CodeRecord, EncoderRecord
from seu_bench.training.interfaces import (
    BackboneFactory,
    Component,
    Cost,
    SpaceFactory,
    StrategyContext,
    StrategyFactory,
)

#: Data sets are made up from this seed, not from the run's: every seed of a synthetic run sees the same images.
SYNTHETIC_SEED = 0
#: A network for each kind of sample: the default where a strategy's own does not take it, and what is proposed.
USUAL_BACKBONES: Final[Mapping[InputKind, str]] = {"image": "alexnet", "features": "mlp", "tokens": "embedding"}


@dataclass(frozen=True)
class ResolvedRun:
    """Everything that a run needs but data and a device.

    Attributes:
        tuned: the file that chose options of it.
        code: what it uses that is not part of seu-bench, every such metric included, and its benchmark's file.
    """

    request: Request
    spec: RunSpec
    overrides: Mapping[str, Any]
    strategy: StrategyFactory
    options: Options
    searcher: Component | None
    creator: Component | None
    backbone: BackboneFactory | None
    space: SpaceFactory | None
    sources: Mapping[str, DatasetSource]
    packages: Mapping[str, str]
    tuned: TunedFile | None = None
    code: tuple[CodeRecord, ...] = ()
    encoder: StreamEncoder | None = None

    @property
    def limits(self) -> ImageLimits:
        """Images per task: the protocol's, lowered by ``--limit``."""
        return self.spec.protocol.images.lowered_to(self.spec.limit)

    @property
    def part(self) -> dict[str, Any]:
        """Which part of the stream is learned and measured on, as ``build_stream`` and ``plan_stream`` take it."""
        return {"first_tasks": self.spec.first_tasks, "evaluation": self.spec.evaluation, "encoder": self.encoder}

    @property
    def shorter(self) -> str | None:
        """Name of a shorter protocol than the run's."""
        shorter = {**dict.fromkeys(("paper", "published", "half_day"), "quick"), "quick": "smoke"}
        name = shorter.get(self.spec.protocol_name)
        return name if name in self.spec.benchmark.protocols else None

    @property
    def reference(self) -> str | None:
        """What it is a reference of, which is never ranked; ``None``: a learner."""
        alone = getattr(self.strategy, "reference_components", {})
        chosen = {part.kind: part.name for part in (self.searcher, self.creator) if part is not None}
        return getattr(self.strategy, "reference", None) if alone.items() <= chosen.items() else None

    def load(self, name: str) -> RawDataset:
        """A data set, or its synthetic stand-in."""
        with _name_source_errors(name, self.packages):
            if not self.spec.synthetic:
                data = self.sources[name].load(self.request.data_root)
                _check_kind(self.sources[name], data.info)
                return data
            from seu_bench.data.synthetic import synthetic_dataset

            return synthetic_dataset(self.sources[name].info(self.request.data_root), SYNTHETIC_SEED)

    def refuse_tuned_seed(self, seed: int) -> None:
        """Refuse a run that is measured on test images with a seed on which its options were tuned."""
        if self.tuned is not None and self.spec.evaluation == "test":
            self.tuned.refuse_seed(seed)

    def plan(self) -> StreamPlan:
        """The stream's shape and sizes without loading data."""
        return self._plan(**self.part)

    def _plan(self, **part: Any) -> StreamPlan:
        infos = _infos(self.sources, self.packages, self.request.data_root)
        return plan_stream(self.spec.benchmark, infos, self.limits, self.spec.seed, **part)

    @cached_property
    def encoder_record(self) -> EncoderRecord | None:
        """The pretrained network of the stream, as the record has it."""
        if self.encoder is None:
            return None
        images = replace(self.encoder, makes_samples=False)
        trained = bool(getattr(self.strategy, "trains_encoder", False))
        return describe_encoder(self.encoder, self._plan(**self.part | {"encoder": images}).input, trained=trained)

    def cost(self, context: StrategyContext) -> Cost:
        """The cost that the strategy's factory estimates; where tasks are inferred, all paths of each image count."""
        from seu_bench.training.task_inference import all_paths_cost, task_inference

        inference = task_inference(context)
        if (fixed := self.fixed_parameters(context)) is not None:
            require_memory(fixed, context.device)  # a rehearsal has the weights
        cost = self.strategy.cost(context)
        cost = cost if inference is None else all_paths_cost(cost)
        encoder = self.encoder_record
        return cost if encoder is None else add_encoder(cost, encoder, context.plan)

    def fixed_parameters(self, context: StrategyContext) -> int | None:
        """Parameters of the network, counted without its weights; ``None`` where the strategy lets it grow."""
        parameters: int | None = getattr(self.strategy, "fixed_parameters", lambda _: None)(context)
        return parameters

    def build(self, context: StrategyContext) -> Any:
        """Build the strategy, with the plugins that are attached to it."""
        from avalanche.evaluation import PluginMetric

        from seu_bench.training.monitoring import attach

        strategy, found = self.strategy.build(context), make_attached(self.request.attach)
        if plugins := {path: it for path, it in found.items() if not isinstance(it, PluginMetric)}:
            attach(strategy, plugins)
        return strategy

    def context(self, plan: StreamPlan, device: str = "cpu", **more: Any) -> StrategyContext:
        """Return the context that the strategy's factory is given; ``more`` are further fields of it."""
        return StrategyContext(
            plan=plan,
            protocol=self.spec.protocol,
            options=self.options,
            seed=self.spec.seed,
            device=device,
            searcher=self.searcher,
            creator=self.creator,
            backbone=self.backbone,
            space=self.space,
            encoder=None if self.encoder is None or self.encoder.makes_samples else self.encoder.network,
            compute=self.request.compute,
            **more,
        )


@contextmanager
def _name_source_errors(name: str, packages: Mapping[str, str]) -> Iterator[None]:
    """An exception of a data set's source that is no error of ours becomes one that names the data set."""
    try:
        yield
    except SeuBenchError:
        raise
    except Exception as error:
        raise DataError(
            f"data set {name!r} cannot be used: {type(error).__name__}: {error}",
            where=f"package {packages[name]}" if name in packages else "the benchmark file",
            remedy="check its files with seu-bench data; otherwise report it to the package's author",
        ) from error


def _infos(
    sources: Mapping[str, DatasetSource], packages: Mapping[str, str], data_root: Path | None
) -> dict[str, DatasetInfo]:
    found = {}
    for name, source in sources.items():
        with _name_source_errors(name, packages):
            found[name] = source.info(data_root)
            _check_kind(source, found[name])
    return found


def _check_kind(source: DatasetSource, info: DatasetInfo) -> None:
    """Refuse a data set of another kind than its source says, by which a network was chosen."""
    if info.kind != (kind := getattr(source, "kind", "image")):
        what = f"data set {info.name!r} has samples of the kind {info.kind!r}, and its source says {kind!r}"
        raise DataError(what, remedy=f"give the source an attribute kind = {info.kind!r}")


@dataclass(frozen=True)
class ChosenStrategy:
    """A strategy and its components, with validated options and the values that its preset set."""

    factory: StrategyFactory
    options: Options
    components: Mapping[str, Component]
    backbone: BackboneFactory | None
    space: SpaceFactory | None
    preset: Mapping[str, Any]


def choose_strategy(
    registry: Registry,
    request: Request,
    protocol: ProtocolSpec,
    given: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
    *,
    samples: InputKind = "image",
    on_encoder: bool = False,
) -> ChosenStrategy:
    """Look up the strategy, searcher and creator of a request, and layer their options, given ones on top.

    Below those are the preset's, the ``defaults``, the protocol's, its memory, a network that takes the ``samples``;
    ``on_encoder`` it is a linear head, whatever the protocol's. A RequestError says what does not fit together.
    """
    factory = registry.strategies.find(request.strategy).factory
    parts, below = split_by_prefix(given), split_by_prefix(defaults or {})
    backbone = "linear" if on_encoder else protocol.model.backbone or _usual_backbone(registry, factory, samples)
    usual: dict[str, Any] = {"backbone": backbone} if backbone and issubclass(factory.options, BackboneOptions) else {}
    usual |= {"memory": protocol.memory} if protocol.memory and "memory" in factory.options.model_fields else {}
    layers = usual, protocol.strategies.get(request.strategy, {}), below[""], parts[""]
    # An unknown preset is left to the options' own validation.
    chosen = next((layer["preset"] for layer in reversed(layers) if "preset" in layer), "default")
    values_of_preset = factory.presets.get(str(chosen), {})
    preset = split_by_prefix(values_of_preset)
    options = build_options(factory.options, f"strategy {request.strategy!r}", *layers[:-1], preset[""], layers[-1])
    components: dict[str, Component] = {}
    for kind in ("searcher", "creator"):
        wanted: str | None = getattr(request, kind)
        if kind in factory.components:
            name = wanted or factory.components[kind]
            known = registry.kinds[f"{kind}s"].find(name).factory.options.model_fields
            known_preset = {key: value for key, value in preset[kind].items() if key in known}
            protocols = getattr(protocol, f"{kind}s").get(name, {})
            found = find_component(registry, kind, name, protocols | below[kind], known_preset, parts[kind])
            components |= {kind: found} if found is not None else {}
        elif wanted or parts[kind]:
            raise RequestError(
                f"strategy {request.strategy!r} takes no {kind}",
                where=f"--{kind} {wanted}" if wanted else f"-o {kind}.{next(iter(parts[kind]))}",
                remedy=f"leave the {kind} out, or choose a strategy that takes one, such as 'seu'",
            )
    networks = find_backbone(registry, options), find_space(registry, options)
    return ChosenStrategy(factory, options, components, *networks, values_of_preset)


def _usual_backbone(registry: Registry, factory: StrategyFactory, kind: InputKind) -> str | None:
    """The network for samples of a kind; ``None``: a strategy's own takes them, or it has none."""
    own = factory.options.model_fields.get("backbone") if kind != "image" else None
    return USUAL_BACKBONES[kind] if own and kind not in taken_inputs(named_backbone(registry, own.default)) else None


def resolve(registry: Registry, request: Request) -> ResolvedRun:
    """Validate a request against what is installed, of whose names case and hyphens do not count."""
    request = with_benchmark_file(registry.with_names(request), registry.benchmarks)
    factory = registry.strategies.find(request.strategy).factory
    overrides = split_by_prefix(request.options)["benchmark"]
    source = find_benchmark(registry, request.benchmark)
    benchmark = source.load(overrides)
    protocol_name = request.protocol or benchmark.default_protocol
    if protocol_name not in (known := benchmark.protocols):
        what = f"benchmark {benchmark.name!r} has no protocol {protocol_name!r}{did_you_mean(protocol_name, known)}"
        raise UnknownNameError(what, remedy=f"its protocols are: {', '.join(known)}")
    if known[protocol_name].stream:
        benchmark = source.load(overrides, protocol_name)
    scenario = benchmark.stream.scenario
    names = {kind: getattr(request, kind) or own for kind, own in factory.components.items()}
    other = tuple(str(name) for kind, name in names.items() if name != factory.components[kind])
    which = benchmark.name, benchmark.version, protocol_name, request.strategy
    place = (*which, names.get("searcher"), names.get("creator"), scenario)
    tuned, is_default = find_tuned(request, benchmark, place, "-".join([request.strategy, *other]))
    chosen, prepare = tuned.options if tuned else {}, factory.options.prepare
    given = prepare({} if is_default else chosen) | prepare(request.options)
    encoder = find_encoder(registry, benchmark, factory, request.data_root)
    on_encoder = encoder is not None and encoder.makes_samples
    sources, packages = _find_sources(registry, benchmark)
    kinds: dict[str, InputKind] = {name: getattr(source, "kind", "image") for name, source in sources.items()}
    layers = benchmark.protocols[protocol_name], given, chosen if is_default else {}
    samples = next(iter(kinds.values()))
    picked = choose_strategy(registry, request, *layers, samples=samples, on_encoder=on_encoder)
    if isinstance(benchmark.stream, OnlineStream):
        require_online(registry, request, picked.options)
    picked = picked if benchmark.stream.validates else _without_validation(request, picked, benchmark.stream)
    components = picked.components
    require_scenario(registry, request, picked.options, scenario, f"stream.scenario of benchmark {benchmark.name!r}")
    local_data = {name: sources[name].checksum() for name in sources if name not in packages}  # the user's own

    @cache  # each task may ask for the same
    def info_of(name: str) -> DatasetInfo:
        return _infos({name: sources[name]}, packages, request.data_root)[name]

    benchmark = number_classes(benchmark, info_of)
    for key in ("groups", "class_order"):  # so that the records of a run are the same however its classes were named
        if isinstance(overrides.get(f"stream.{key}"), list | tuple):
            overrides[f"stream.{key}"] = benchmark.model_dump(mode="json")["stream"][key]
    spec = RunSpec(
        strategy=request.strategy,
        benchmark=benchmark,
        protocol_name=protocol_name,
        options=picked.options.identity(),
        seed=request.seed,
        local_data=local_data,
        chosen=other,
        **{kind: part.name for kind, part in components.items()},
        **{f"{kind}_options": part.options.identity() for kind, part in components.items()},
        **request.model_dump(include=set(ResultFields.model_fields)),
    )
    replaced = {*request.options, *(picked.preset if is_default else ())}
    tuned = tuned if chosen.keys() - replaced else None
    for name, kind in kinds.items():
        if encoder is not None and kind != "image":
            what = f"data set {name!r} has {_plural([kind])}, of which no encoder makes features"
            raise RequestError(what, where="input.encoder", remedy="leave the encoder out")
        _require_input(registry, request.strategy, picked, "features" if on_encoder else kind, name)
    code = _code(registry, request, picked, packages)
    parts = components.get("searcher"), components.get("creator"), picked.backbone, picked.space
    run = ResolvedRun(
        request, spec, overrides, factory, picked.options, *parts, sources, packages, tuned, code, encoder
    )
    run.refuse_tuned_seed(request.seed)
    return run


def _find_sources(registry: Registry, benchmark: BenchmarkSpec) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the sources of a benchmark's data sets, and the packages of those that it does not define, by name."""
    names, own = dataset_names(benchmark), benchmark.datasets
    others = {name: registry.datasets.find(name) for name in names if name not in own}
    sources = {name: definition_source(own[name], name) if name in own else others[name].factory for name in names}
    return sources, {name: entry.package for name, entry in others.items()}


def dataset_infos(registry: Registry, benchmark: BenchmarkSpec, data_root: Path | None) -> dict[str, DatasetInfo]:
    """Describe the data sets of a benchmark, by name; a DataError: one is missing or cannot be used."""
    return _infos(*_find_sources(registry, benchmark), data_root)


def find_benchmark(registry: Registry, name: str) -> BenchmarkSource:
    """A benchmark by name, or by the path of its TOML file."""
    return BenchmarkFile(Path(name).expanduser()) if names_a_file(name) else registry.benchmarks.find(name).factory


def _code(
    registry: Registry, request: Request, picked: ChosenStrategy, datasets: Iterable[str]
) -> tuple[CodeRecord, ...]:
    """Describe the code that a run uses and that is not part of seu-bench, and its benchmark's file."""
    backbone = picked.options.backbone.partition(":")[0] if isinstance(picked.options, BackboneOptions) else None
    is_file, path = names_a_file(request.benchmark), Path(request.benchmark).expanduser()
    used: list[tuple[Kind[Any], Iterable[str]]] = [
        (registry.strategies, [request.strategy]),
        (registry.backbones, [backbone] if backbone else []),
        (registry.spaces, [picked.options.space] if isinstance(picked.options, SpaceOptions) else []),
        (registry.datasets, datasets),
        (registry.metrics, registry.metrics),
        (registry.benchmarks, [] if is_file else [request.benchmark]),
        *[(registry.kinds[f"{kind}s"], [part.name]) for kind, part in picked.components.items()],
    ]
    entries = [(kind.singular, kind[name]) for kind, names in used for name in names]
    code = [describe_code(registry, kind, entry) for kind, entry in entries if entry.package != PACKAGE]
    code += [CodeRecord(kind="benchmark file", name=path.name, sha256=file_digest(path))] if is_file else []
    return (*code, *attached_code(request.attach))


def find_component(registry: Registry, kind: str, name: str | None, *layers: Mapping[str, Any]) -> Component | None:
    """A searcher or a creator by name, if one is named, with options from layers, of which later ones win."""
    if name is None:
        return None
    entry = registry.kinds[f"{kind}s"].find(name)
    options = build_options(entry.factory.options, f"{kind} {name!r}", *layers)
    return Component(kind, name, entry.factory, options, entry.plugin, entry.package)


def find_backbone(registry: Registry, options: Options) -> BackboneFactory | None:
    """The backbone that a strategy's options name; ``None``: it takes none."""
    return named_backbone(registry, options.backbone) if isinstance(options, BackboneOptions) else None


def find_space(registry: Registry, options: Options) -> SpaceFactory | None:
    """The search space that a strategy's options name; ``None``: it takes none."""
    return registry.spaces.find(options.space).factory if isinstance(options, SpaceOptions) else None


def named_backbone(registry: Registry, name: str) -> BackboneFactory:
    """The backbone ``NAME``, or of many that are registered as one, ``KIND:NAME``; a RequestError: there is none."""
    found: BackboneFactory = find_named(registry.backbones, name, "backbone")
    return found


def scenarios_of(factory: StrategyFactory, options: Options | None = None) -> tuple[str, ...]:
    """Return the scenarios that a strategy can learn, with these ``options`` or by its defaults."""
    if isinstance(options, TaskInferenceOptions) and options.infer_task is not None:
        return SCENARIOS
    return tuple(getattr(factory, "scenarios", ("task",)))


def require_scenario(registry: Registry, request: Request, options: Options, scenario: Scenario, where: str) -> None:
    """Refuse a strategy that cannot learn a scenario by a ScenarioError that names those that can."""
    strategy = request.strategy
    known = scenarios_of(registry.strategies.find(strategy).factory, options)
    if scenario in known:
        return
    entries = registry.strategies.items()
    others = sorted(name for name, it in entries if scenario in scenarios_of(it.factory) and name != strategy)
    remedy = f"choose a strategy that can: {', '.join(others)}" if others else "choose another scenario"
    if isinstance(options, TaskInferenceOptions):
        remedy = f"give -o infer_task=entropy (or energy), and the most certain path answers; or {remedy}"
    elif "task" not in known:
        remedy = f"ask for one that it learns, -o benchmark.stream.scenario={known[0]}; or {remedy}"
    what = f"strategy {strategy!r} cannot learn the scenario {scenario!r}: it learns {', '.join(map(repr, known))}"
    raise ScenarioError(
        what + (", and needs the task label of each image" if known == ("task",) else ""), where=where, remedy=remedy
    )


def inputs_of(factory: StrategyFactory, options: Options) -> tuple[InputKind, ...] | None:
    """Return the kinds of samples that a strategy says it can learn, with these options; ``None``: it does not say."""
    own: Any = getattr(factory, "inputs", None)
    own = own(options) if callable(own) else own
    if own is None and not isinstance(options, BackboneOptions) and not factory.components:
        own = ("image",)  # where components are searched and created, they say it
    return None if own is None else tuple(own)


def needs_validation(factory: Any, options: Options) -> bool:
    """Whether a strategy, a searcher or a creator says that it cannot do without validation images."""
    own = getattr(factory, "needs_validation", False)
    return bool(own(options) if callable(own) else own)


def _without_validation(request: Request, picked: ChosenStrategy, stream: Stream) -> ChosenStrategy:
    """The choice for a stream without validation images, with which the last weights are kept, whatever the defaults
    are; a RequestError: something cannot do without."""
    options, parts = picked.options, [(request.strategy, cast("Any", picked.factory), picked.options)]
    parts += [(it.name, it.factory, it.options) for it in picked.components.values()]
    where, other = "benchmark.stream.validation", "choose a benchmark whose tasks are learned in epochs"
    remedy = f"hold some out: -o {where}=0.1" if "validation" in type(stream).model_fields else other
    if request.evaluation == "validation":
        what = "accuracies are to be measured on withheld validation images, and the stream has none"
        raise RequestError(what, where=where, remedy=remedy)
    if lacking := [name for name, factory, own in parts if needs_validation(factory, own)]:
        what = f"{' and '.join(map(repr, lacking))} chooses by validation images, and the stream has none"
        raise RequestError(what, where=where, remedy=remedy)
    if not isinstance(options, SelectingOptions) or options.restore == "last":
        return picked
    if "restore" in request.options:
        what = "weights are to be selected by validation images, and the stream has none"
        raise RequestError(what, where="-o restore=best_valid", remedy=f"give -o restore=last; or {remedy}")
    return replace(picked, options=options.model_copy(update={"restore": "last"}))


def _require_input(registry: Registry, strategy: str, picked: ChosenStrategy, kind: InputKind, dataset: str) -> None:
    """Refuse a strategy, a network or a search space that cannot learn a data set's samples by a RequestError that
    names others."""
    known, has = inputs_of(picked.factory, picked.options), f"and data set {dataset!r} has {_plural([kind])}"
    if known is not None and kind not in known:
        remedy = "choose one that takes a backbone, e.g. naive, replay or ewc"
        what = f"strategy {strategy!r} learns {_plural(known)}, {has}"
        raise RequestError(what, where=f"--strategy {strategy}", remedy=remedy)
    parts: list[tuple[str, str, BackboneFactory | SpaceFactory | None, Kind[Any]]] = [
        ("network", "backbone", picked.backbone, registry.backbones),
        ("search space", "space", picked.space, registry.spaces),
    ]
    for word, option, chosen, offered in parts:
        if chosen is not None and kind not in taken_inputs(chosen):
            taking = [name for name, it in offered.items() if kind in taken_inputs(it.factory)]
            usual = next((name for name in (USUAL_BACKBONES[kind], *taking) if name in taking), "NAME")
            name, told = getattr(picked.options, option), f"those that take {_plural([kind])}: {', '.join(taking)}"
            what = f"{word} {name!r} takes {_plural(taken_inputs(chosen))}, {has}"
            remedy = (
                f"give -o {option}={usual}; {told}" if taking else f"none takes {_plural([kind])}: choose other data"
            )
            raise RequestError(what, where=f"-o {option}={name}", remedy=remedy)


def _plural(kinds: Iterable[str]) -> str:
    return " and ".join(kind.replace("image", "images") for kind in kinds)


def taken_inputs(factory: BackboneFactory | SpaceFactory) -> Sequence[str]:
    """Return the kinds of samples that a network or a search space takes."""
    return getattr(factory, "inputs", ("image",))
