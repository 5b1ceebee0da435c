"""Focal replay: of remembered images those count that are recognised no longer."""

from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn.functional import cross_entropy

from seu_bench import Method, Reservoir
from seu_bench.config import BackboneOptions


class FocalReplay(Method):
    """Replay with the focal loss of remembered images (T.-Y. Lin et al., ICCV 2017)."""

    name = "focal_replay"
    check_options = {"backbone": "mlp", "memory": 20}

    class Options(BackboneOptions):
        memory: PositiveInt = Field(200, description="images kept")
        gamma: float = Field(2.0, ge=1, description="the greater, the less recognised images weigh")

    options: Options

    def setup(self) -> None:
        self.memory = Reservoir(self.options.memory)

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        loss = cross_entropy(logits, y)
        if len(self.memory):
            old = self.memory.draw(len(y))
            losses = cross_entropy(self.replay(old.x, old.task), old.y, reduction="none")
            missed = 1 - (-losses).exp()  # 1 - p, with p the probability of the label
            loss = loss + (missed**self.options.gamma * losses).mean()
        self.memory.add(x=x, y=y, task=task)
        return loss
