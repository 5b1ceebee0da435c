"""The table of Avalanche's strategies: name, what it is, options, and which functions make and estimate it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from seu_bench.config.options import Options
from seu_bench.plugin.registration import Unavailable
from seu_bench.training.interfaces import Cost, StrategyContext
from seu_bench_avalanche.options import (
    AgemOptions,
    ErAceOptions,
    GemOptions,
    LwfOptions,
    MasOptions,
    MemoryOptions,
    MirOptions,
    PlainOptions,
    ReplayOptions,
    RwalkOptions,
    SiOptions,
)

if TYPE_CHECKING:
    from seu_bench_avalanche.strategy import AvalancheStrategy


@dataclass
class Method:
    """One of Avalanche's strategies.

    Attributes:
        name: also that of its function in :mod:`seu_bench_avalanche.methods`, and of its estimate in
            :mod:`seu_bench_avalanche.costing`.
    """

    name: str
    summary: str
    options: type[Options] = PlainOptions
    components: Mapping[str, str] = field(default_factory=dict)
    presets: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def build(self, context: StrategyContext) -> AvalancheStrategy:
        """The Avalanche strategy."""
        from seu_bench_avalanche.methods import build

        return build(self.name, context)

    def cost(self, context: StrategyContext) -> Cost:
        """Sizes exactly; image passes as an estimate where memories decide."""
        from seu_bench_avalanche.costing import avalanche_cost

        return avalanche_cost(self.name, context)


def _table(*methods: Method) -> dict[str, Method]:
    return {method.name: method for method in methods}


#: What can be used.
METHODS: Final[dict[str, Method]] = _table(
    Method("lwf", "learning without forgetting: distils the old heads (Li & Hoiem 2016)", LwfOptions),
    Method("si", "synaptic intelligence (Zenke et al. 2017)", SiOptions),
    Method("mas", "memory-aware synapses (Aljundi et al. 2018)", MasOptions),
    Method("rwalk", "Riemannian walk's penalty, without its replay (Chaudhry et al. 2018)", RwalkOptions),
    Method("gem", "gradient episodic memory (Lopez-Paz & Ranzato 2017)", GemOptions),
    Method("agem", "averaged gradient episodic memory (Chaudhry et al. 2019)", AgemOptions),
    Method("replay", "experience replay from a balanced memory", ReplayOptions),
    Method("mir", "replay of what is interfered with most (Aljundi et al. 2019)", MirOptions),
    Method("er_ace", "replay with asymmetric cross-entropy (Caccia et al. 2022)", ErAceOptions),
    Method("gdumb", "trains anew on a balanced memory only (Prabhu et al. 2020)", MemoryOptions),
    Method("cwr", "CWR*: the backbone learns on the first task, later ones train a head (Lomonaco et al. 2020)"),
    Method("cumulative", "trains on the images of all tasks so far"),
    Method("joint", "trains once on the whole stream: the upper reference, no lifelong learner"),
    Method("from_scratch", "begins each task with the initial weights: what one task alone can reach"),
)

_ONE_HEAD = "it works on one head for all classes, and every task here has a head of its own"
_OWN_MODEL = "it needs a model of its own kind"

#: What cannot be used with Avalanche 0.6.0, and why.
UNAVAILABLE: Final[dict[str, Unavailable]] = {
    name: Unavailable(f"{reason} (avalanche-lib 0.6.0)")
    for name, reason in {
        "bic": f"{_ONE_HEAD}; and it hands a scheduler of torch an argument that is gone",
        "gss_greedy": "it calls the model without task labels",
        "der": "it calls the model without task labels",
        "lamaml": "it needs the package 'higher', which Avalanche does not bring",
        "lamaml_v2": "its inner loop fails on models with several heads",
        "mer": "its steps of meta-learning replace the training loop that all strategies share here",
        "ar1": "it downloads pretrained weights and brings its own network",
        "expert_gate": "it downloads pretrained weights and brings its own network",
        "icarl": _ONE_HEAD,
        "er_aml": _ONE_HEAD,
        "scr": _ONE_HEAD,
        "cope": _ONE_HEAD,
        "slda": _ONE_HEAD,
        "feature_replay": _OWN_MODEL,
        "packnet": _OWN_MODEL,
        "lfl": _OWN_MODEL,
        "generative_replay": _OWN_MODEL,
    }.items()
}
