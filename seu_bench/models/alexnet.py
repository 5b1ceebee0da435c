"""The AlexNet variant that the paper's fixed-size strategies use (after Serra et al., ICML 2018)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from seu_bench.errors import RequestError
from seu_bench.models.layers import ChannelsLastConv2d, Dropout


@dataclass(frozen=True)
class AlexNetShape:
    """Sizes of the AlexNet variant: three convolutions, each halving the image, then two linear layers.

    Attributes:
        image_channels, height, width: of the input.
        convolutions: channels of the three convolutions.
        linear: width of both linear layers, and so of the features.
        dropout: of the five layers.
    """

    image_channels: int
    height: int
    width: int
    convolutions: tuple[int, int, int] = (64, 128, 256)
    linear: int = 2048
    dropout: tuple[float, ...] = (0.2, 0.2, 0.5, 0.5, 0.5)

    @classmethod
    def of(
        cls, image_channels: int, height: int, width: int, factor: float = 1.0, dropout: float = 1.0
    ) -> AlexNetShape:
        """The shape for a stream's images, widths times ``factor``, at least 1, dropout rates times ``dropout``.

        Raises:
            RequestError: images below 8x8 have nothing left after three poolings.
        """
        if min(height, width) < 8:
            raise RequestError(
                f"the AlexNet variant needs images of at least 8x8 pixels, not {height}x{width}",
                remedy="pad the images (stream.input.pad), or choose another backbone or strategy",
            )
        first, second, third = (max(1, round(factor * channels)) for channels in cls.convolutions)
        linear, rates = max(1, round(factor * cls.linear)), tuple(dropout * rate for rate in cls.dropout)
        return cls(image_channels, height, width, (first, second, third), linear, rates)

    @property
    def flat(self) -> int:
        """Numbers per image after the last pooling."""
        return self.convolutions[-1] * (self.height // 8) * (self.width // 8)


def alexnet(shape: AlexNetShape) -> nn.Sequential:
    """Three 3x3 convolutions with pooling, two linear layers: ``[N, C, H, W] -> [N, shape.linear]``."""
    layers: list[nn.Module] = []
    inputs = shape.image_channels
    for outputs, dropout in zip(shape.convolutions, shape.dropout[:3], strict=True):
        layers += [ChannelsLastConv2d(inputs, outputs, 3, padding=1), nn.ReLU(), Dropout(dropout), nn.MaxPool2d(2)]
        inputs = outputs
    layers.append(nn.Flatten())
    inputs = shape.flat
    for dropout in shape.dropout[3:]:
        layers += [nn.Linear(inputs, shape.linear), nn.ReLU(), Dropout(dropout)]
        inputs = shape.linear
    return nn.Sequential(*layers)
