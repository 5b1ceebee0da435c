"""Contract of search spaces: subclass :class:`SpaceContract` in a pytest file."""

from __future__ import annotations

import importlib.util
import json
import random
from collections.abc import Iterator, Sequence
from graphlib import TopologicalSorter
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from seu_bench.config.common_options import SpaceOptions
from seu_bench.data import InputShape
from seu_bench.engine.onnx_export import onnx_bytes
from seu_bench.engine.resolve import taken_inputs
from seu_bench.engine.saved_model import build_model, parse_weights, read_weights
from seu_bench.engine.verification import verify
from seu_bench.errors import RequestError
from seu_bench.models.sizes import count_macs, count_parameters
from seu_bench.results.record_files import MODEL_NAME, find_run
from seu_bench.testing.contract import StrategyContract
from seu_bench.testing.kinds import SAMPLES
from seu_bench.testing.trial import Contract, Trial, drawn, load_registry, require
from seu_bench.utils.seeding import RandomState
from seu_bench_kit.networks import GenotypeNetwork
from seu_bench_kit.search_space import SearchSpace, SpaceFactory

#: Units and width of the networks that are tried.
CELLS: Final = 3
CHANNELS: Final = 2
META, CPU = torch.device("meta"), torch.device("cpu")


class SpaceContract(Contract):
    """Tests that every search space must pass.

    Attributes:
        space: registered name.
        options: of the strategy that searches it, e.g. ``{"edges": "all14"}`` for ``darts_cell``.
        plugins: modules or objects with hooks to register beside the installed plugins.

    Example::

        class TestMine(SpaceContract):
            space = "mine"
    """

    space: ClassVar[str]

    @pytest.fixture(autouse=True)
    def _seeded(self) -> Iterator[None]:
        with RandomState(0).active():
            yield

    @pytest.fixture
    def factory(self) -> SpaceFactory:
        """The factory on trial."""
        factory: Any = load_registry(self.plugins).spaces.find(self.space).factory
        return factory  # type: ignore[no-any-return]

    @pytest.fixture
    def built(self, factory: SpaceFactory) -> SearchSpace:
        """The space on trial."""
        made: SearchSpace = factory.build(**self.options)
        return made

    @pytest.fixture
    def trial(self, factory: SpaceFactory, built: SearchSpace) -> Trial:
        """A strategy that searches it; at random where the space has no proxy network."""
        if "image" not in taken_inputs(factory):
            pytest.skip("the tiny streams are of images")
        strategies = load_registry().strategies.items()
        host = next(name for name, it in strategies if issubclass(it.factory.options, SpaceOptions))
        searcher = None if _has_proxy(built) else "random"
        return Trial(host, {"space": self.space, **self.options}, self.plugins, searcher=searcher)

    # ------------------------------------------------------------------ genotypes

    def test_draws_by_the_generator_it_is_given(self, built: SearchSpace) -> None:
        """The same genotypes of the same numbers, others of others; Python's global generator is the default."""
        before, found = drawn(), _draw(built, 20)
        told = "random_genotype(below) must draw from below(n), and from nothing else"
        require(found == _draw(built, 20) and drawn() == before, f"{told}: the same numbers gave other genotypes")
        require(len({*found}) > 1 or prod(built.decisions) == 1, f"{told}: 20 seeds gave {found[0]}")
        defaults = []
        for _ in range(2):
            random.seed(0)
            defaults.append([built.random_genotype() for _ in range(20)])
        told = "without below, random_genotype() must draw from Python's global generator, which a stage seeds"
        require(defaults[0] == defaults[1], told)

    def test_genotypes_are_values(self, built: SearchSpace) -> None:
        """JSON keeps them, their decisions spell them out, and so do the highest values where ``sample_of`` points."""
        for genotype in [*built.named.values(), *_some(built, 20)]:
            again = built.from_dict(json.loads(json.dumps(genotype.to_dict(), allow_nan=False)))
            told = f"from_dict() made {again} of what JSON keeps of {genotype}: they must be equal and hashed alike"
            require(again == genotype and hash(again) == hash(genotype), told)
            # Published ones are of the space as it is without options.
            is_foreign = bool(self.options) and genotype in built.named.values()
            require(is_foreign or built.fault(genotype) is None, f"fault({genotype}) is {built.fault(genotype)}")
        for genotype in _draw(built, 20):
            found = built.decode(built.encode(genotype))
            require(found == genotype, f"decode(encode(genotype)) made {found} of {genotype}")
            found = built.derive([it.numpy().astype(float) for it in _certain(built, built.sample_of(genotype))])
            require(found == genotype, f"derive() made {found} of rows that are 1 where sample_of({genotype}) points")

    def test_every_option_can_be_found(self, built: SearchSpace) -> None:
        """Each option of each decision makes a valid genotype and is drawn; a mutation changes one decision."""
        found = _draw(built, 50 * max(built.decisions, default=1))
        encoded = [built.encode(genotype) for genotype in found]
        near = set()
        for place, size in enumerate(built.decisions):
            before, after = encoded[0][:place], encoded[0][place + 1 :]
            options = [built.decode([*before, option, *after]) for option in range(size)]
            faults = [(option, fault) for option, it in enumerate(options) if (fault := built.fault(it)) is not None]
            require(not faults, f"options of decision {place} that make no genotype: {faults}")
            told = f"decision {place} changes nothing: each option decodes to {options[0]}"
            require(size == 1 or len({*options}) > 1, told)
            canonical = {built.encode(it)[place] for it in options}
            missed = canonical - {it[place] for it in encoded}
            require(not missed, f"of {len(found)} genotypes random_genotype() drew none with {missed} at {place}")
            near |= {*options}
        if prod(built.decisions) > 1:
            mutants = [built.mutate(found[0], random.Random(seed).randrange) for seed in range(10)]
            others = [it for it in mutants if it not in near - {found[0]}]
            require(not others, f"mutate() must change one decision of {found[0]}, and made {others[:1]}")

    def test_refuses_what_is_none(self, built: SearchSpace) -> None:
        """``fault`` and ``from_dict`` refuse nothing, plain values, and genotypes of other spaces."""
        spaces = load_registry(self.plugins).spaces.items()
        others = [it.factory.build().random_genotype() for name, it in spaces if name != self.space]
        for value in (None, {}, _draw(built, 1)[0].to_dict(), *others):
            fault = _outcome(built.fault, value)
            told = f"fault({value!r}) must say what is wrong, and gave {fault!r}"
            require(isinstance(fault, str) and fault != "", told)
        for value in (None, {}, [], "genotype", *(other.to_dict() for other in others)):
            made = _outcome(built.from_dict, value)
            require(isinstance(made, ValueError), f"from_dict({value!r}) must raise ValueError, and gave {made!r}")

    def test_pictures(self, built: SearchSpace) -> None:
        """Each is a graph of texts, without cycles."""
        for genotype in _some(built, 5):
            pictures = built.draw(genotype)
            require(bool(pictures) and all(pictures.values()), f"draw() must return arrows by name, not {pictures}")
            for name, arrows in pictures.items():
                texts = all(isinstance(it, str) for arrow in arrows for it in arrow)
                require(texts, f"picture {name!r}: arrows must be of texts, not {arrows}")
                order: TopologicalSorter[str] = TopologicalSorter()
                for arrow in arrows:
                    order.add(arrow.target, arrow.source)
                circle = _outcome(order.prepare)
                require(circle is None, f"picture {name!r} has arrows in a circle: {circle}")

    # ------------------------------------------------------------------ modules

    @pytest.mark.parametrize("sample", SAMPLES, ids=lambda it: f"{it.kind}-{'x'.join(map(str, it.shape))}")
    def test_units_are_interchangeable(self, factory: SpaceFactory, built: SearchSpace, sample: InputShape) -> None:
        """The stem takes every input registered; units of a place have one shape; each parameter trains."""
        if sample.kind not in taken_inputs(factory):
            pytest.skip(f"it does not take {sample.kind}")
        for place, *inputs in _inputs(built, sample):
            known, idle, trained = tuple[int, ...](), set[str](), set[str]()
            for genotype in _some(built, 4):
                unit = built.unit(genotype, place).train()
                output = unit(*inputs)
                known, told = known or output.shape, f"the unit of {genotype} at {place} gave {tuple(output.shape)}"
                require(output.shape == known, f"{told}, another one {tuple(known)}: units must be interchangeable")
                fits = output.shape[:2] == (len(inputs[0]), place.output)
                require(fits, f"{told}: its features must be place.output, {place.output}")
                require(bool(output.isfinite().all()), f"{told}, and not all of them are finite")
                functional.mse_loss(output, torch.randn_like(output)).backward()
                # Behind a part that passes nothing on, as `none` of the paper's cells, a parameter may be idle.
                for name, it in unit.named_parameters():
                    (idle if it.grad is None else trained).add(name)
            never = ", ".join(sorted(idle - trained))
            require(not never, f"units at {place} pass no gradient to {never}, whatever the genotype")

    def test_extremes_bound_sizes(self, factory: SpaceFactory, built: SearchSpace) -> None:
        """No genotype has fewer or more parameters and multiply-accumulates than ``extremes``."""
        sample = next(it for it in SAMPLES if it.kind in taken_inputs(factory))

        def sizes(genotype: Any) -> tuple[int, int]:
            with META:
                network = GenotypeNetwork(genotype, sample, 5, CELLS, CHANNELS, built).eval()
            return count_parameters(network), count_macs(network, sample.shape, META, sample.dtype)

        least, most = map(sizes, built.extremes)
        advice = "Put options in ascending order of their cost, or override extremes: forecasts would be wrong"
        for genotype in _draw(built, 30):
            found, told = sizes(genotype), "parameters and multiply-accumulates"
            holds = all(low <= it <= high for low, it, high in zip(least, found, most, strict=True))
            require(holds, f"{genotype} has {found} {told}, and extremes have {least} and {most}. {advice}")

    @torch.no_grad()
    def test_proxy_is_the_unit(self, factory: SpaceFactory, built: SearchSpace) -> None:
        """Sampled, or mixed by certain weights, it computes what a unit does that is given its weights by ``copy_to``,
        and no fewer operations."""
        if not _has_proxy(built):
            pytest.skip("the space has no proxy network")
        sample_shape = next(it for it in SAMPLES if it.kind in taken_inputs(factory))
        for place, *inputs in _inputs(built, sample_shape):
            proxy, outputs = built.proxy(place).eval(), []
            for genotype in _some(built, 4):
                unit, sample = built.unit(genotype, place).eval(), built.sample_of(genotype)
                outputs.append(found := proxy(*inputs, sample))
                told = f"proxy({place}), given sample_of({genotype}),"
                fits = found.shape[:2] == (len(inputs[0]), place.output) and bool(found.isfinite().all())
                require(fits, f"{told} must give {place.output} finite features: {tuple(found.shape)}, {found.mean()}")
                same = _close(proxy(*inputs, _certain(built, sample)), found)
                require(same, f"{told} does not compute what it does with weights that are 1 there, and 0 elsewhere")
                counts = [_operations(unit, *inputs), _operations(proxy, *inputs, sample)]
                require(counts[0] <= counts[1], f"{told} counts {counts[1]} multiply-accumulates, its unit {counts[0]}")
                if (copy := getattr(proxy, "copy_to", None)) is not None:
                    copy(unit, genotype)
                    same = _close(unit(*inputs), found)
                    require(same, f"{told} does not compute what the unit does that was given its weights by copy_to()")
            differs = prod(built.choices) == 1 or any(not torch.equal(it, outputs[0]) for it in outputs)
            require(differs, f"proxy({place}) computes the same whatever is sampled")

    # ------------------------------------------------------------------ whole runs

    test_resumes_to_the_same_weights = StrategyContract.test_resumes_to_the_same_weights
    test_model_can_be_made_again = StrategyContract.test_model_can_be_made_again
    test_counts_its_parameters = StrategyContract.test_counts_its_parameters

    def test_leaves_a_complete_record(self, trial: Trial, built: SearchSpace, tmp_path: Path) -> None:
        """Three tasks are learned; the record holds their genotypes and is verified, and the model exported."""
        record = trial.record("tiny_three", tmp_path)
        require(record.status == "finished", f"the run is {record.status}: {record.error}")
        faults = [built.fault(built.from_dict(value)) for value in record.genotypes or ()]
        require(faults == [None] * 3, f"the record's genotypes: {record.genotypes}, faults: {faults}")
        checked = verify(trial.registry, record.run_id, results=tmp_path, device="cpu").checks
        failed = [f"{it.name}: {'; '.join(it.detail)}" for it in checked if it.passed is False]
        require(not failed, f"seu-bench verify finds: {', '.join(failed)}")
        if all(importlib.util.find_spec(name) for name in ("onnx", "onnxscript")):
            path = find_run(tmp_path, record.run_id) / MODEL_NAME
            weights = parse_weights(read_weights(path.parent, record), path)
            onnx_bytes(build_model(trial.registry, *weights, record, path), 2)


def _draw(space: SearchSpace, count: int) -> list[Any]:
    return [space.random_genotype(random.Random(seed).randrange) for seed in range(count)]


def _some(space: SearchSpace, count: int) -> list[Any]:
    """The extremes, and some drawn."""
    return [*space.extremes, *_draw(space, count)]


def _certain(space: SearchSpace, sample: Sequence[Any]) -> list[Tensor]:
    """Weights that are 1 where a sample points."""
    return [torch.eye(size)[it] for it, size in zip(sample, space.choices, strict=True)]


def _close(found: Tensor, expected: Tensor) -> bool:
    """To 1e-4 of the largest value: a BatchNorm that the proxy alone has divides by the root of 1 + 1e-5."""
    return bool((found - expected).abs().max() <= 1e-4 * expected.abs().max())


def _outcome(function: Any, *arguments: Any) -> Any:
    """What a function returns or raises."""
    try:
        return function(*arguments)
    except Exception as error:
        return error


def _operations(module: Any, *inputs: Any) -> int:
    return count_macs(lambda _: module(*inputs), (1,), CPU)


def _has_proxy(space: SearchSpace) -> bool:
    return not isinstance(_outcome(space.proxy, space.places(CELLS, CHANNELS)[0]), RequestError)


@torch.no_grad()
def _inputs(space: SearchSpace, sample: InputShape) -> list[tuple[Any, Tensor, Tensor]]:
    """Places of a small network, with what the units before give of four samples."""
    shape, found = (4, *sample.shape), []
    batch = torch.randn(shape) if sample.vocabulary is None else torch.randint(sample.vocabulary, shape)
    older = newer = space.stem(sample, CHANNELS)(batch)
    for place in space.places(CELLS, CHANNELS):
        given = newer.shape[1]
        require(given == place.newer, f"{place} is given {given} features, and its newer says {place.newer}")
        found.append((place, older, newer))
        older, newer = newer, space.unit(space.extremes[0], place)(older, newer)
    return found
