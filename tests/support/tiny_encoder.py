"""A plugin with an encoder of random weights, and a method that learns with its network."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from seu_bench import Method, hookimpl
from seu_bench.models.encoder import Encoder, EncoderInfo
from seu_bench.utils.seeding import RandomState

INFO = EncoderInfo(
    *("two_convs", "two_convolutions", "0123456789abcdef", "noise", "MIT", "here"),
    (0.5, 0.4, 0.3),
    (0.5, 0.6, 0.7),
    16,
    (8, 16),
)


def tiny_encoder() -> Encoder:
    """Two convolutions, drawn always alike."""
    with RandomState(1).active():
        layers = [nn.Sequential(nn.Conv2d(*sides, 3, stride=2, padding=1), nn.ReLU()) for sides in ((3, 8), (8, 16))]
    return Encoder(INFO, layers, lambda maps: maps.mean(dim=(2, 3)))


class TinyFactory:
    """Its factory."""

    summary = "two convolutions"

    def info(self) -> EncoderInfo:
        return INFO

    def load(self) -> Encoder:
        return tiny_encoder()


class Heads(Method):
    """Linear heads on the network of the stream, which stays as it is."""

    name = "heads_on_encoder"
    uses_encoder = True

    @classmethod
    def make_model(cls, context: Any) -> Any:
        from seu_bench.models import BackboneModel

        assert context.encoder is not None

        class Hidden(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.held = [context.encoder]

            def forward(self, images: Tensor) -> Tensor:
                with torch.no_grad():
                    features: Tensor = self.held[0](images)
                return features

        return BackboneModel(Hidden(), 16, context.plan.classes_per_task, context.plan.scenario)


@hookimpl
def register_encoders(register: Any) -> None:
    register("two_convs", TinyFactory())
