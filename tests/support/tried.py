"""Every registered strategy on trial, with what it needs to learn tiny streams quickly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from support.tiny import registry

from seu_bench.config.common_options import BackboneOptions
from seu_bench.config.streams import Scenario
from seu_bench.engine.resolve import scenarios_of
from seu_bench.testing import Trial

#: What a strategy needs besides the tiny protocol.
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "agem": {"patterns_per_experience": 10, "sample_size": 8},
    "bic": {"memory": 18},
    "cwr": {"epochs": 20},
    "den": {"learning_rate": 0.01},
    "der": {"memory": 18, "balanced_epochs": 4},
    "derpp": {"memory": 20, "batch_size_mem": 8},
    "dgr": {"generator_iterations": 120, "generator_width": 400},
    "ease": {"epochs": 20, "learning_rate": 0.1},
    "er_ace": {"memory": 20, "batch_size_mem": 4},
    "gdumb": {"memory": 60},
    "gem": {"patterns_per_experience": 10},
    "icarl": {"memory": 18},
    "lucir": {"memory": 18},
    "mas": {"lambda_reg": 0.01},
    "memo": {"memory": 18},
    "mir": {"memory": 20, "batch_size_mem": 4, "subsample": 8},
    "ranpac": {"projection": 100},
    "rcl": {"trials": 2},
    "seu_adapt": {"unit": "linear16", "margin": 0.03, "epochs": 20, "learning_rate": 0.1},
    "replay": {"memory": 20, "batch_size_mem": 4},
    "supsup": {"learning_rate": 0.01},
    "wsn": {"learning_rate": 0.01},
    "slca": {"epochs": 40, "learning_rate": 0.3, "slow": 1.0},
    "wa": {"memory": 18},
}

#: Strategies whose image passes depend on what they meet.
INEXACT = ("agem", "cpg", "den", "er_ace", "mir", "mntdp", "replay", "seu_adapt")

ALL = sorted(registry().strategies)

#: SEU without its search, which takes three quarters of the time.
FIXED_SEU = "seu of one genotype"
#: The same, whose old units are adapted by the one creator that does.
ADAPTING_SEU = "seu that adapts"
#: The same, whose tasks begin with copies and a linear probe, which may be what they keep.
PROBING_SEU = "seu that probes"

#: One of each sort, for ``make test``: plain, with a memory, and one that grows. ``make test-long`` tries the others.
USUAL = ("ltg", "naive", "replay")


def scenario_of(name: str) -> Scenario:
    """The scenario in which a strategy is tried: task-incremental, or the first that it can learn."""
    known = scenarios_of(registry().strategies.find(name).factory)
    return "task" if "task" in known else known[0]


def tried(name: str) -> Trial:
    """A strategy of ours in its scenario; where a backbone can be chosen, the quickest."""
    if name == FIXED_SEU:
        return Trial("seu", {"genotype": "darts_v1"})
    if name == ADAPTING_SEU:
        return Trial("seu", {"genotype": "darts_v1"}, creator="adapt")
    if name == PROBING_SEU:
        probing = {"creator.probe": True, "creator.relation": "latest", "keep_start": True}
        return Trial("seu", {"genotype": "darts_v1", **probing}, creator="inherit")
    options = dict(OPTIONS.get(name, {}))
    if issubclass(registry().strategies.find(name).factory.options, BackboneOptions) and name != "naive":
        options.setdefault("backbone", "mlp")
    return Trial(name, options, exact_passes=name not in INEXACT, scenario=scenario_of(name))


def each(names: Sequence[str]) -> list[Any]:
    """Parameters of a matrix over strategies."""
    return [pytest.param(name, marks=[] if name in USUAL else pytest.mark.long) for name in names]
