"""MNTDP, modular networks with task-driven priors (T. Veniat, L. Denoyer, M. Ranzato, "Efficient Continual Learning
with Modular Networks and Task-Driven Priors", ICLR 2021, arXiv:2012.12631)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from seu_bench import LazyFactory, Register, hookimpl
from seu_bench.config import SelectingOptions, TaskInferenceOptions
from seu_bench.training import StrategyFactory


class MntdpOptions(SelectingOptions, TaskInferenceOptions):
    """Options of MNTDP; ``epochs`` is how long each candidate is trained, with variant s the search and again the
    training."""

    variant: Literal["d", "s"] = Field(
        "d", description="d: every prefix of the related path is tried; s: a distribution over paths is learned"
    )
    k: PositiveInt = Field(15, description="neighbours that vote in the prior (published code; 5 on S_long)")
    prior_images: PositiveInt = Field(1000, description="training images, at most, that the neighbours are among")
    split_last: bool = Field(False, description="whether the last group is two modules (published on S_in and S_long)")
    optimizer: Literal["sgd", "adam"] = Field("sgd", description="of the modules; adam is published")
    patience: PositiveInt | None = Field(
        None,
        description="steps without a lower validation loss after which a candidate's training ends, with its epoch "
        "(published: 300); none: it has all epochs",
    )
    new_module_cost: NonNegativeFloat = Field(0.01, description="variant s: reward lost for each new module")
    path_learning_rate: PositiveFloat = Field(0.05, description="variant s: of Adam on the distribution over paths")
    width: PositiveFloat | None = Field(None, description="factor of the modules' 64 channels")
    backbone: Literal["resnet18_even"] = Field(
        "resnet18_even",
        description="network that the modules are parts of; runs of it are what transfer is counted from",
    )


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``mntdp``."""
    register(
        "mntdp",
        LazyFactory(
            "MNTDP: modules reused as the path of the most related task suggests (Veniat et al. 2021)",
            options=MntdpOptions,
            build="seu_bench_mntdp.strategy:build_mntdp",
            cost="seu_bench_mntdp.costing:mntdp_cost",
        ),
    )
