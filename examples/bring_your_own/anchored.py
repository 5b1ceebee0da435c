"""L2 anchoring: what all tasks share is held near where the last task left it ("L2" in Kirkpatrick et al. 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field, NonNegativeFloat

from seu_bench import LazyFactory, Register, hookimpl
from seu_bench.config import BackboneOptions, SelectingOptions
from seu_bench.training import StrategyContext, StrategyFactory, checked_options

if TYPE_CHECKING:
    from seu_bench.training import StagedStrategy


class AnchoredOptions(BackboneOptions, SelectingOptions):
    strength: NonNegativeFloat = Field(1.0, description="weight of the squared distance to the anchor")


def build(context: StrategyContext) -> StagedStrategy:
    from torch import Tensor  # torch is imported here, so that `seu-bench list` starts without it

    from seu_bench.training import Phase, StagedStrategy, TaskData, backbone_model

    strength = checked_options(context, AnchoredOptions).strength
    model = backbone_model(context)

    class Anchored(StagedStrategy):
        anchor: Sequence[Tensor] = ()
        state_attributes = ("anchor",)

        def phases(self, task: TaskData) -> Sequence[Phase]:
            return [Phase(lambda: self.training_stage(task), lambda _: self.drop_anchor())]

        def drop_anchor(self) -> None:
            self.anchor = [weight.detach().clone() for weight in model.backbone.parameters()]

        def penalty(self) -> Tensor | None:
            terms = [(w - a).square().sum() for a, w in zip(self.anchor, model.backbone.parameters(), strict=False)]
            return strength * sum(terms[1:], terms[0]) if terms else None

    return Anchored.of(context, model=model)


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    register(
        "anchored",
        LazyFactory(
            "fine-tuning with an L2 penalty on leaving the last task's weights",
            options=AnchoredOptions,
            build=build,
            cost="seu_bench.training:fixed_size_cost",
        ),
    )
