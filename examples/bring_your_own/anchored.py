"""L2 anchoring: what all tasks share is held near where the last task left it ("L2" in Kirkpatrick et al. 2017)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, NonNegativeFloat

from seu_bench.hookspecs import hookimpl
from seu_bench.interfaces import Cost, Register, Setting, StrategyFactory, checked_options
from seu_bench.options import Options
from seu_bench.strategy_options import BackboneOptions, SelectingOptions


class AnchoredOptions(BackboneOptions, SelectingOptions):
    strength: NonNegativeFloat = Field(1.0, description="weight of the squared distance to the anchor")


class AnchoredFactory:
    summary = "fine-tuning with an L2 penalty on leaving the last task's weights"
    options: type[Options] = AnchoredOptions
    components: Mapping[str, str] = {}
    presets: Mapping[str, Mapping[str, object]] = {}

    def build(self, setting: Setting) -> Any:
        from torch import Tensor  # torch is imported here, so that `seu-bench list` starts without it

        from seu_bench.backbones import backbone_model
        from seu_bench.strategy import StagedStrategy, Step, TaskData

        strength = checked_options(setting, AnchoredOptions).strength
        model = backbone_model(setting)

        class Anchored(StagedStrategy):
            anchor: Sequence[Tensor] = ()
            remembers = ("anchor",)

            def steps(self, task: TaskData) -> Sequence[Step]:
                return [Step(lambda: self.training_stage(task), lambda _: self.drop_anchor())]

            def drop_anchor(self) -> None:
                self.anchor = [weight.detach().clone() for weight in model.backbone.parameters()]

            def penalty(self) -> Tensor | None:
                terms = [(w - a).square().sum() for a, w in zip(self.anchor, model.backbone.parameters(), strict=False)]
                return strength * sum(terms[1:], terms[0]) if terms else None

        return Anchored.of(setting, model=model)

    def cost(self, setting: Setting) -> Cost:
        from seu_bench.costing import fixed_size_cost

        return fixed_size_cost(setting)


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    register("anchored", AnchoredFactory())
