"""L2 anchoring: what all tasks share is held near where the last task left it ("L2" in Kirkpatrick et al. 2017)."""

from pydantic import Field, NonNegativeFloat
from torch import Tensor

from seu_bench import Method
from seu_bench.config import BackboneOptions, SelectingOptions
from seu_bench.training import TaskData


class Anchored(Method):
    """Fine-tuning with an L2 penalty on leaving the last task's weights."""

    name = "anchored"
    check_options = {"backbone": "mlp"}

    class Options(BackboneOptions, SelectingOptions):
        strength: NonNegativeFloat = Field(1.0, description="weight of the squared distance to the anchor")

    options: Options

    def setup(self) -> None:
        self.anchor: list[Tensor] = []

    def penalty(self) -> Tensor | None:
        terms = [(w - a).square().sum() for a, w in zip(self.anchor, self.network.backbone.parameters(), strict=False)]
        return self.options.strength * sum(terms[1:], terms[0]) if terms else None

    def after_task(self, task: TaskData) -> None:
        self.anchor = [weight.detach().clone() for weight in self.network.backbone.parameters()]
