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


def _no_weights(self: Any, older: Any, newer: Any, sample: Any) -> Any:
    ones = [torch.ones_like(it) if isinstance(it, torch.Tensor) else it for it in sample]
    return Proxy.forward(self, older, newer, ones)


def _one_more(self: Any, genotype: Any, place: Any) -> Any:
    self.made = getattr(self, "made", 0) + 1
    return Good.unit(self, Chosen((("depth", 1 + self.made % 4), genotype.values[1])), place)


def _two_changed(self: Any, genotype: Any, below: Any = random.randrange) -> Any:
    return self.decode([(it + 1) % size for it, size in zip(self.encode(genotype), self.decisions, strict=True)])


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


DEEP_FIRST = {"depth": (3, 2, 1), "activation": ("relu", "silu")}

DRAWS, VALUES, OPTIONS = "draws_by_the_generator_it_is_given", "genotypes_are_values", "every_option_can_be_found"
NONE, UNITS, PROXY = "refuses_what_is_none", "units_are_interchangeable", "proxy_is_the_unit"

#: By what is broken: the check of the contract, what it says, and the space.
BROKEN: dict[str, tuple[str, str, Any]] = {
    "global generator": (
        DRAWS,
        "must draw from below",
        space(random_genotype=lambda self, below=None: self.decode([random.randrange(3), random.randrange(2)])),
    ),
    "own generator": (
        DRAWS,
        "Python's global generator",
        space(random_genotype=lambda self, below=OWN: Good.random_genotype(self, below)),
    ),
    "JSON": (VALUES, "JSON keeps", space(from_dict=lambda self, value: Chosen(tuple(value.items())[::-1]))),
    "encode": (VALUES, "decode\\(encode", space(encode=lambda self, genotype: (0, 0))),
    "sample_of": (VALUES, "derive\\(\\) made", space(sample_of=lambda self, genotype: [0, 0])),
    "option refused": (
        OPTIONS,
        "decision 0 that make no genotype: .*too deep",
        space(fault=lambda self, genotype: "too deep" if genotype["depth"] == 3 else None),
    ),
    "idle decision": (
        OPTIONS,
        "decision 1 changes nothing",
        space(decode=lambda self, decisions: Good.decode(self, [decisions[0], 0])),
    ),
    "option never drawn": (
        OPTIONS,
        "drew none with \\{2} at 0",
        space(random_genotype=lambda self, below=random.randrange: self.decode([below(2), below(2)])),
    ),
    "two mutations": (OPTIONS, "must change one decision", space(mutate=_two_changed)),
    "takes all": (NONE, "fault\\(None\\) must say", space(fault=lambda self, genotype: None)),
    "reading raises": (NONE, "gave ZeroDivisionError", space(from_dict=_raises)),
    "circle": (
        "pictures",
        "arrows in a circle",
        space(draw=lambda self, genotype: {"unit": [Arrow("a", "b", ""), Arrow("b", "a", "")]}),
    ),
    "shape": (UNITS, "another one", output(lambda module, found: found[..., : -(len(module.more) % 2) or None])),
    "no gradient": (
        UNITS,
        "pass no gradient to idle",
        unit(lambda made: made.register_parameter("idle", nn.Parameter(torch.zeros(1)))),
    ),
    "stem": (
        UNITS,
        "is given 5 features, and its newer says",
        space(stem=lambda self, input, channels: nn.Conv2d(input.shape[0], 5, 3, padding=1)),
    ),
    "order of options": ("extremes_bound_sizes", "Put options in ascending order", space(options=DEEP_FIRST)),
    "forecast": ("counts_its_parameters", "cost said", space(options=DEEP_FIRST)),
    "not a function of the genotype": ("leaves_a_complete_record", "what its genotype says", space(unit=_one_more)),
    "mixture": (PROXY, "weights that are 1 there", proxy(forward=_no_weights)),
    "copies nothing": (PROXY, "given its weights by copy_to", proxy(copy_to=lambda *_: None)),
    "cannot be resumed": ("resumes_to_the_same_weights", "earlier tasks are computed by", output(_remembers)),
    "cannot be exported": ("leaves_a_complete_record", "cannot be written as ONNX", output(_refuses_export)),
}
