"""Contract of search spaces: subclass :class:`SpaceContract` in a pytest file."""

from __future__ import annotations

import importlib.util
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from graphlib import CycleError, TopologicalSorter
from math import prod
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from seu_bench.config.common_options import SpaceOptions
from seu_bench.config.options import Options
from seu_bench.data import InputShape
from seu_bench.engine.resolve import taken_inputs
from seu_bench.engine.saved_model import build_model, onnx_bytes, parse_weights, read_weights
from seu_bench.engine.verification import verify
from seu_bench.errors import RequestError
from seu_bench.hookspecs import hookimpl
from seu_bench.models.sizes import count_macs, count_parameters
from seu_bench.plugin.registration import Register
from seu_bench.results.record_files import MODEL_NAME, find_run
from seu_bench.testing.contract import StrategyContract
from seu_bench.testing.kinds import SAMPLES
from seu_bench.testing.trial import Contract, Trial, check_sizes, drawn, load_registry, require
from seu_bench.training.stage import EpochlessStage
from seu_bench.utils.seeding import RandomState
from seu_bench_kit.components import SearcherFactory, SearchTask
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
        require(isinstance(factory, SpaceFactory), f"register_spaces() must register a SpaceFactory, not {factory!r}")
        return factory  # type: ignore[no-any-return]

    @pytest.fixture
    def built(self, factory: SpaceFactory) -> SearchSpace:
        """The space on trial."""
        made = factory.build(**self.options)
        require(isinstance(made, SearchSpace), f"build() must make a SearchSpace, and made {made!r:.100}")
        return made  # type: ignore[no-any-return]

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
        """Valid genotypes, the same of the same numbers, others of others; Python's global generator is the default."""
        before, found = drawn(), _draw(built, 20)
        told = "random_genotype(below) must draw from below(n), and from nothing else"
        require(found == _draw(built, 20) and drawn() == before, f"{told}: the same numbers gave other genotypes")
        require(len({*found}) > 1 or prod(built.decisions) == 1, f"{told}: 20 seeds gave {found[0]}")
        for genotype in found:
            fault = built.fault(genotype)
            require(fault is None, f"random_genotype() drew {genotype}, of which fault() says: {fault}")
        random.seed(0)
        found = [built.random_genotype() for _ in range(20)]
        random.seed(0)
        told = "without below, random_genotype() must draw from Python's global generator, which a stage seeds"
        require(found == [built.random_genotype() for _ in range(20)], told)

    def test_genotypes_are_values(self, built: SearchSpace) -> None:
        """JSON keeps them, their decisions spell them out, and the certain rows of their sample give them back."""
        for genotype in [*built.named.values(), *(drawn_ones := _some(built, 20))]:
            again = built.from_dict(json.loads(json.dumps(genotype.to_dict(), allow_nan=False)))
            told = f"from_dict() made {again} of what JSON keeps of {genotype}: they must be equal and hashed alike"
            require(again == genotype and _outcome(hash, again) == hash(genotype), told)
            require(built.fault(genotype) is None, f"fault({genotype}) is {built.fault(genotype)}")
        for genotype in drawn_ones:
            for method, indices, sizes in (
                ("encode", built.encode(genotype), built.decisions),
                ("sample_of", built.sample_of(genotype), built.choices),
            ):
                fits = len(indices) == len(sizes) and all(0 <= it < n for it, n in zip(indices, sizes, strict=True))
                require(fits, f"{method}({genotype}) gave {[*indices]}, and the numbers of options are {sizes}")
            found = built.decode(built.encode(genotype))
            require(found == genotype, f"decode(encode(genotype)) made {found} of {genotype}")
            rows = [np.eye(n)[it] for it, n in zip(built.sample_of(genotype), built.choices, strict=True)]
            found = built.derive(rows)
            require(found == genotype, f"derive() made {found} of rows that are 1 where sample_of({genotype}) points")
        even = [np.full(size, 1 / size) for size in built.choices]
        fault = built.fault(built.derive(even))
        require(fault is None, f"derive() made no genotype of equal values: {fault}")
        try:
            built.derive([*even[:-1], np.full(built.choices[-1], np.nan)])
        except ValueError:
            return
        require(False, "derive() ranked NaN, and must raise ValueError: override _derive(), which is given none")

    def test_every_option_can_be_found(self, built: SearchSpace) -> None:
        """Each option of each decision makes a valid genotype, each decision matters, and each option is drawn."""
        generator, count = random.Random(0), 50 * max(built.decisions, default=1)
        spelled = [built.decode([generator.randrange(size) for size in built.decisions]) for _ in range(count)]
        for place, options in enumerate(_neighbours(built, built.encode(spelled[0]))):
            for option, genotype in enumerate(options):
                fault = built.fault(genotype)
                require(fault is None, f"decode() made {genotype} of option {option} of decision {place}: {fault}")
            told = f"decision {place} changes nothing: each option decodes to {options[0]}"
            require(len(options) == 1 or len({*options}) > 1, told)
        known, met = (
            {it for some in each for it in enumerate(built.encode(some))} for each in (spelled, _draw(built, count))
        )
        missed = [f"option {option} of decision {place}" for place, option in sorted(known - met)]
        require(not missed, f"of {count} genotypes random_genotype() drew none with {' or '.join(missed[:3])}")

    def test_mutates_one_decision(self, built: SearchSpace) -> None:
        """A mutant is another valid genotype, one decision away."""
        if prod(built.decisions) == 1:
            pytest.skip("the space has a single genotype")
        for genotype in _draw(built, 10):
            mutant = built.mutate(genotype, random.Random(0).randrange)
            near = {it for options in _neighbours(built, built.encode(genotype)) for it in options}
            told = f"mutate() must change one decision of {genotype}, and made {mutant}: {built.fault(mutant)}"
            require(built.fault(mutant) is None and mutant in near - {genotype}, told)

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
                graph: dict[str, set[str]] = {}
                for arrow in arrows:
                    graph.setdefault(arrow.target, set()).add(arrow.source)
                circle = _outcome(TopologicalSorter(graph).prepare)
                require(not isinstance(circle, CycleError), f"picture {name!r} has arrows in a circle: {circle}")

    # ------------------------------------------------------------------ modules

    @pytest.mark.parametrize("sample", SAMPLES, ids=lambda it: f"{it.kind}-{'x'.join(map(str, it.shape))}")
    def test_units_are_interchangeable(self, factory: SpaceFactory, built: SearchSpace, sample: InputShape) -> None:
        """The stem takes every input registered; units of a place give the same shape; all parameters train."""
        if sample.kind not in taken_inputs(factory):
            pytest.skip(f"it does not take {sample.kind}")
        for place, *inputs in _inputs(built, sample):
            known: tuple[int, ...] = ()
            for genotype in _some(built, 4):
                unit = built.unit(genotype, place).train()
                output = unit(*inputs)
                known, told = (
                    known or tuple(output.shape),
                    f"the unit of {genotype} at {place} gave {tuple(output.shape)}",
                )
                require(tuple(output.shape) == known, f"{told}, another one {known}: units must be interchangeable")
                fits = output.shape[:2] == (len(inputs[0]), place.output)
                require(fits, f"{told}: its features must be place.output, {place.output}")
                require(bool(output.isfinite().all()), f"{told}, and not all of them are finite")
                functional.mse_loss(output, torch.randn_like(output)).backward()
                untrained = ", ".join(name for name, it in unit.named_parameters() if it.grad is None)
                require(not untrained, f"the unit of {genotype} at {place} passes no gradient to {untrained}")

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

    @pytest.mark.parametrize("which", ["least", "most", "drawn"])
    def test_counts_what_is_computed(self, trial: Trial, built: SearchSpace, which: str) -> None:
        """After a task with new units the model has the parameters and operations of its genotype's network, within
        what ``seu-bench cost`` said; and with the same weights it answers the same."""
        genotype = dict(zip(("least", "most", "drawn"), _some(built, 1), strict=True))[which]
        learner = replace(trial, searcher="given", plugins=[*self.plugins, _Gives(genotype)]).learner("tiny_two")
        learner.learn(0)
        check_sizes(learner, 0)
        plan, size = learner.stream.plan, learner.run.spec.protocol.model
        network = GenotypeNetwork(genotype, plan.input, plan.classes_per_task[0], size.cells, size.channels, built)
        path, images = learner.model.task_module(0), learner.test_images(0)
        found = count_parameters(path), learner.sizes.macs[-1]
        alone = count_parameters(network), count_macs(network.eval(), plan.input.shape, CPU)
        told = "parameters and multiply-accumulates"
        require(
            found == alone, f"{genotype} has {found} {told} in the super model, and {alone} in a network of its own"
        )
        network.load_state_dict(dict(zip(network.state_dict(), path.state_dict().values(), strict=True)))
        same = torch.allclose(network(images).detach(), learner.logits(0), atol=1e-5)
        require(same, f"{genotype}: the super model and a network of its own with the same weights answer otherwise")

    # ------------------------------------------------------------------ the proxy network

    @torch.no_grad()
    def test_proxy_computes_every_option(self, factory: SpaceFactory, built: SearchSpace) -> None:
        """A sample of any options; and what certain weights mix is the sample."""
        for place, proxy, inputs in _proxies(factory, built):
            outputs = []
            for shift in range(max(built.choices)):
                sample = [(shift + 3 * at) % size for at, size in enumerate(built.choices)]
                certain = [torch.eye(size)[it] for it, size in zip(sample, built.choices, strict=True)]
                outputs.append(found := proxy(*inputs, sample))
                fits = found.shape[:2] == (len(inputs[0]), place.output) and bool(found.isfinite().all())
                told = f"proxy({place}), given {sample},"
                require(fits, f"{told} must give {place.output} finite features: {tuple(found.shape)}, {found.mean()}")
                same = torch.allclose(proxy(*inputs, certain), found, rtol=1e-4, atol=1e-5)
                require(same, f"{told} does not compute what it does with weights that are 1 there, and 0 elsewhere")
            differs = len(outputs) == 1 or any(not torch.equal(it, outputs[0]) for it in outputs)
            require(differs, f"proxy({place}) computes the same whatever is sampled")

    @torch.no_grad()
    def test_proxy_is_the_unit(self, factory: SpaceFactory, built: SearchSpace) -> None:
        """Given its weights by ``copy_to``, a unit computes what the proxy does, whose operations are no fewer."""
        for place, proxy, inputs in _proxies(factory, built):
            for genotype in _some(built, 4):
                unit, sampled = built.unit(genotype, place).eval(), partial(proxy, sample=built.sample_of(genotype))
                counts = [_operations(it, inputs) for it in (unit, sampled)]
                told = f"proxy({place}), given sample_of({genotype}),"
                require(counts[0] <= counts[1], f"{told} counts {counts[1]} multiply-accumulates, its unit {counts[0]}")
                if (copy := getattr(proxy, "copy_to", None)) is not None:
                    copy(unit, genotype)
                    same = torch.allclose(unit(*inputs), sampled(*inputs), rtol=1e-4, atol=1e-5)
                    require(same, f"{told} does not compute what the unit does that was given its weights by copy_to()")

    # ------------------------------------------------------------------ whole runs

    test_resumes_to_the_same_weights = StrategyContract.test_resumes_to_the_same_weights
    test_model_can_be_made_again = StrategyContract.test_model_can_be_made_again

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


class _Found(EpochlessStage[Any]):
    genotype: Any

    def result(self) -> Any:
        return self.genotype


class _Gives:
    """A plugin whose searcher, ``given``, finds one genotype."""

    def __init__(self, genotype: Any) -> None:
        self.genotype = genotype

    def _build(self, options: Options, task: SearchTask) -> _Found:
        stage = _Found("search", task.task, task.seed, task.device)
        stage.genotype = self.genotype
        return stage

    @hookimpl
    def register_searchers(self, register: Register[SearcherFactory]) -> None:
        register("given", SearcherFactory("for tests", options=Options, build=self._build))


def _draw(space: SearchSpace, count: int) -> list[Any]:
    return [space.random_genotype(random.Random(seed).randrange) for seed in range(count)]


def _some(space: SearchSpace, count: int) -> list[Any]:
    """The extremes, and some drawn."""
    return [*space.extremes, *_draw(space, count)]


def _neighbours(space: SearchSpace, decisions: tuple[int, ...]) -> list[list[Any]]:
    """By decision the genotypes of its options, the others being as they are."""
    return [
        [space.decode([*decisions[:place], option, *decisions[place + 1 :]]) for option in range(size)]
        for place, size in enumerate(space.decisions)
    ]


def _outcome(function: Any, *arguments: Any) -> Any:
    """What a function returns or raises."""
    try:
        return function(*arguments)
    except Exception as error:
        return error


def _operations(module: Any, inputs: tuple[Tensor, Tensor]) -> int:
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


def _proxies(factory: SpaceFactory, space: SearchSpace) -> Iterator[tuple[Any, nn.Module, tuple[Tensor, Tensor]]]:
    """Proxies of the places of a small network, with inputs, in evaluation mode."""
    if not _has_proxy(space):
        pytest.skip("the space has no proxy network")
    sample = next(it for it in SAMPLES if it.kind in taken_inputs(factory))
    for place, older, newer in _inputs(space, sample):
        yield place, space.proxy(place).eval(), (older, newer)
