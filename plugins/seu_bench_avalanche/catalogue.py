"""Table of Avalanche's strategies: name, summary, options, and reasons why some cannot be used."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from seu_bench.config import SCENARIOS, Options
from seu_bench.plugin.registration import LazyFactory, Unavailable, deferred
from seu_bench.results import REFERENCE_ROWS
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


def _method(
    name: str, summary: str, options: type[Options] = PlainOptions, check_options: Mapping[str, object] | None = None
) -> tuple[str, LazyFactory]:
    """A strategy under the name of its entries in the tables of ``methods`` and ``costing``."""
    build = partial(deferred("seu_bench_avalanche.methods:build"), name)
    cost = partial(deferred("seu_bench_avalanche.costing:avalanche_cost"), name)
    reference = REFERENCE_ROWS.get(name)
    return name, LazyFactory(
        summary,
        options=options,
        build=build,
        cost=cost,
        scenarios=SCENARIOS,
        reference=reference,
        check_options=check_options,
    )


#: Strategies by name.
METHODS: Final[dict[str, LazyFactory]] = dict(
    [
        _method("lwf", "learning without forgetting: distils the old heads (Li & Hoiem 2016)", LwfOptions),
        _method("si", "synaptic intelligence (Zenke et al. 2017)", SiOptions),
        _method("mas", "memory-aware synapses (Aljundi et al. 2018)", MasOptions, {"lambda_reg": 0.01}),
        _method("rwalk", "Riemannian walk's penalty, without its replay (Chaudhry et al. 2018)", RwalkOptions),
        _method("gem", "gradient episodic memory (Lopez-Paz & Ranzato 2017)", GemOptions),
        _method("agem", "averaged gradient episodic memory (Chaudhry et al. 2019)", AgemOptions),
        _method("replay", "experience replay from a balanced memory", ReplayOptions),
        _method("mir", "replay of what is interfered with most (Aljundi et al. 2019)", MirOptions),
        _method("er_ace", "replay with asymmetric cross-entropy (Caccia et al. 2022)", ErAceOptions),
        _method("gdumb", "trains anew on a balanced memory only (Prabhu et al. 2020)", MemoryOptions),
        _method("cwr", "CWR*: the backbone learns on the first task, later ones train a head (Lomonaco et al. 2020)"),
        _method("cumulative", "trains on the images of all tasks so far"),
        _method("joint", "trains once on the whole stream: the upper reference, no lifelong learner"),
        _method("from_scratch", "begins each task with the initial weights: what one task alone can reach"),
    ]
)

_ONE_HEAD = "it is for class-incremental streams only, and was not tried on them here"
_OWN_MODEL = "it needs a model of its own kind"

#: Strategies of Avalanche 0.6.0 that cannot be used, with the reason.
UNAVAILABLE: Final[dict[str, Unavailable]] = {
    name: Unavailable(f"{reason} (avalanche-lib 0.6.0)")
    for name, reason in {
        "bic": f"{_ONE_HEAD}; and it hands a scheduler of torch an argument that is gone",
        "gss_greedy": "it calls the model without task labels",
        "der": "it remembers logits of the classes seen, and cannot compare them once there are more; derpp does",
        "lamaml": "it needs the package 'higher', which Avalanche does not bring",
        "lamaml_v2": "its inner loop fails on models with several heads",
        "mer": "its steps of meta-learning replace the training loop that all strategies share here",
        "ar1": "it downloads pretrained weights and brings its own network",
        "expert_gate": "it downloads pretrained weights and brings its own network",
        "er_aml": _ONE_HEAD,
        "scr": _ONE_HEAD,
        "cope": _ONE_HEAD,
        "feature_replay": _OWN_MODEL,
        "lfl": _OWN_MODEL,
        "generative_replay": _OWN_MODEL,
    }.items()
}
