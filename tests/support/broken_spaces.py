"""Search spaces that are broken, each in its own way: the check of the contract that finds it, and what it says."""

from __future__ import annotations

import random
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seu_bench import hookimpl
from seu_bench_kit import Arrow, Chosen, SpaceFactory

EXAMPLE = Path(__file__).parents[2] / "examples" / "my_space.py"
_MODULE = runpy.run_path(str(EXAMPLE))
Good: Any = _MODULE["ResidualSpace"]
Proxy: Any = _MODULE["ProxyResidual"]


class Offers:
    """The plugin that offers a space as ``tried``."""

    def __init__(self, space: Any) -> None:
        self.space = space

    @hookimpl
    def register_spaces(self, register: Any) -> None:
        register("tried", SpaceFactory("for tests", lambda: self.space))


def space(**methods: Any) -> Any:
    """The good space with other methods."""
    return type("Broken", (Good,), methods)()


def unit(change: Callable[[nn.Module], Any]) -> Any:
    """With units that are changed when they were made."""

    def make(self: Any, genotype: Any, place: Any) -> nn.Module:
        made: nn.Module = Good.unit(self, genotype, place)
        return change(made) or made

    return space(unit=make)


def output(change: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> Any:
    """With units whose outputs are changed."""
    return unit(lambda made: made.register_forward_hook(lambda module, _, found: change(module, found)) and None)


def proxy(**methods: Any) -> Any:
    """With another proxy."""
    return space(proxy=lambda self, place: type("Broken", (Proxy,), methods)(place))


def _forward(self: Any, older: Any, newer: Any, sample: Any) -> Any:
    return Proxy.forward(self, older, newer, sample)


def _always_relu(self: Any, older: Any, newer: Any, sample: Any) -> Any:
    return _forward(self, older, newer, [sample[0], 0])


def _no_weights(self: Any, older: Any, newer: Any, sample: Any) -> Any:
    return _forward(self, older, newer, [torch.ones_like(it) if isinstance(it, torch.Tensor) else it for it in sample])


def _too_shallow(self: Any, older: Any, newer: Any, sample: Any) -> Any:
    depth = sample[0]
    return _forward(self, older, newer, [depth if isinstance(depth, torch.Tensor) else max(0, depth - 1), sample[1]])


def _one_more(self: Any, genotype: Any, place: Any) -> Any:
    self.made = getattr(self, "made", 0) + 1
    return Good.unit(self, Chosen((("depth", 1 + self.made % 4), genotype.values[1])), place)


def _two_changed(self: Any, genotype: Any, below: Any = random.randrange) -> Any:
    return self.decode([(it + 1) % size for it, size in zip(self.encode(genotype), self.decisions, strict=True)])


def _never_deepest(self: Any, below: Any = random.randrange) -> Any:
    return self.decode([below(2), below(2)])


def _raises(self: Any, value: Any) -> Any:
    raise ZeroDivisionError("this is broken")


OWN = random.Random(0).randrange


def _remembers(module: nn.Module, found: torch.Tensor) -> torch.Tensor:
    module.calls = getattr(module, "calls", 0) + 1  # type: ignore[assignment]
    return found / (1 + module.calls)


def _refuses_export(module: nn.Module, found: torch.Tensor) -> torch.Tensor:
    if torch.compiler.is_compiling():
        raise ZeroDivisionError("this is broken")
    return found


def _fewer_in_the_end(module: Any, found: torch.Tensor) -> torch.Tensor:
    return found[:, : -1 if module.first[0].in_channels == 16 else None]


DEEP_FIRST = {"depth": (3, 2, 1), "activation": ("relu", "silu")}

#: By what is broken: the check of the contract, what it says, and the space.
BROKEN: dict[str, tuple[str, str, Any]] = {
    "global generator": (
        "draws_by_the_generator_it_is_given",
        "must draw from below",
        space(random_genotype=lambda self, below=None: self.decode([random.randrange(3), random.randrange(2)])),
    ),
    "one genotype": (
        "draws_by_the_generator_it_is_given",
        "20 seeds gave",
        space(random_genotype=lambda self, below=None: self.decode([0, 0])),
    ),
    "invalid genotypes": (
        "draws_by_the_generator_it_is_given",
        "of which fault\\(\\) says: too deep",
        space(fault=lambda self, genotype: "too deep"),
    ),
    "own generator": (
        "draws_by_the_generator_it_is_given",
        "Python's global generator",
        space(random_genotype=lambda self, below=OWN: Good.random_genotype(self, below)),
    ),
    "JSON": (
        "genotypes_are_values",
        "from_dict\\(\\) made",
        space(from_dict=lambda self, value: Chosen(tuple(value.items())[::-1])),
    ),
    "encode": ("genotypes_are_values", "decode\\(encode", space(encode=lambda self, genotype: (0, 0))),
    "too few decisions": ("genotypes_are_values", "encode\\(.* gave \\[0\\]", space(encode=lambda self, it: (0,))),
    "sample_of": ("genotypes_are_values", "derive\\(\\) made", space(sample_of=lambda self, genotype: [0, 0])),
    "NaN": (
        "genotypes_are_values",
        "derive\\(\\) ranked NaN",
        space(derive=lambda self, rows, tie_order=range: self._derive(rows, tie_order)),
    ),
    "option refused": (
        "every_option_can_be_found",
        "of option 2 of decision 0: too deep",
        space(fault=lambda self, genotype: "too deep" if genotype["depth"] == 3 else None),
    ),
    "idle decision": (
        "every_option_can_be_found",
        "decision 1 changes nothing",
        space(decode=lambda self, decisions: Good.decode(self, [decisions[0], 0])),
    ),
    "option never drawn": (
        "every_option_can_be_found",
        "drew none with option 2 of decision 0",
        space(random_genotype=_never_deepest),
    ),
    "no mutation": (
        "mutates_one_decision",
        "must change one decision",
        space(mutate=lambda self, genotype, below=None: genotype),
    ),
    "two mutations": ("mutates_one_decision", "must change one decision", space(mutate=_two_changed)),
    "takes all": ("refuses_what_is_none", "fault\\(None\\) must say", space(fault=lambda self, genotype: None)),
    "fault raises": ("refuses_what_is_none", "gave ZeroDivisionError", space(fault=_raises)),
    "reads all": (
        "refuses_what_is_none",
        "from_dict\\(None\\) must raise ValueError",
        space(from_dict=lambda self, value: self.decode([0, 0])),
    ),
    "reading raises": ("refuses_what_is_none", "gave ZeroDivisionError", space(from_dict=_raises)),
    "no picture": ("pictures", "must return arrows", space(draw=lambda self, genotype: {})),
    "numbers in pictures": (
        "pictures",
        "must be of texts",
        space(draw=lambda self, genotype: {"unit": [Arrow(0, 1, "relu")]}),  # type: ignore[arg-type]
    ),
    "circle": (
        "pictures",
        "arrows in a circle",
        space(draw=lambda self, genotype: {"unit": [Arrow("a", "b", ""), Arrow("b", "a", "")]}),
    ),
    "shape": (
        "units_are_interchangeable",
        "another one",
        output(lambda module, found: found[..., : -(len(module.more) % 2) or None]),
    ),
    "features": ("units_are_interchangeable", "must be place.output", output(_fewer_in_the_end)),
    "not finite": ("units_are_interchangeable", "not all of them are finite", output(lambda module, found: found / 0)),
    "no gradient": (
        "units_are_interchangeable",
        "passes no gradient to idle",
        unit(lambda made: made.register_parameter("idle", nn.Parameter(torch.zeros(1)))),
    ),
    "stem": (
        "units_are_interchangeable",
        "is given 5 features, and its newer says",
        space(stem=lambda self, input, channels: nn.Conv2d(input.shape[0], 5, 3, padding=1)),
    ),
    "order of options": ("extremes_bound_sizes", "Put options in ascending order", space(options=DEEP_FIRST)),
    "forecast": ("counts_what_is_computed", "cost said", space(options=DEEP_FIRST)),
    "not a function of the genotype": (
        "counts_what_is_computed",
        "cost said|network of its own",
        space(unit=_one_more),
    ),
    "state outside of tensors": ("counts_what_is_computed", "answer otherwise", output(_remembers)),
    "ignores the sample": (
        "proxy_computes_every_option",
        "the same whatever is sampled",
        proxy(forward=lambda self, older, newer, sample: _forward(self, older, newer, [0, 0])),
    ),
    "mixture": ("proxy_computes_every_option", "weights that are 1 there", proxy(forward=_no_weights)),
    "features of the proxy": (
        "proxy_computes_every_option",
        "finite features",
        proxy(forward=lambda self, *given: _forward(self, *given)[:, :-1]),
    ),
    "another activation": ("proxy_is_the_unit", "given its weights by copy_to", proxy(forward=_always_relu)),
    "copies nothing": ("proxy_is_the_unit", "given its weights by copy_to", proxy(copy_to=lambda *_: None)),
    "too shallow": ("proxy_is_the_unit", "multiply-accumulates, its unit", proxy(forward=_too_shallow)),
    "cannot be resumed": ("resumes_to_the_same_weights", "differs", output(_remembers)),
    "cannot be exported": ("leaves_a_complete_record", "cannot be written as ONNX", output(_refuses_export)),
}
