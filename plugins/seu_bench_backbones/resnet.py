"""ResNet-18 (He et al., CVPR 2016) at a third of its width, for small images, as GEM introduced it (Lopez-Paz &
Ranzato, NIPS 2017, section 5): 3x3 stem without pooling, 20 channels that double three times."""

from __future__ import annotations

from torch import Tensor, nn

#: Channels of the first of the four groups.
CHANNELS = 20


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, ``[N, inputs, H, W] -> [N, outputs, H/stride, W/stride]``."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        return nn.functional.relu(self.residual(x) + self.shortcut(x))


def slim_resnet18(image_channels: int, factor: float = 1.0) -> tuple[nn.Sequential, int]:
    """Images ``[N, image_channels, H, W]`` to features ``[N, F]``, and ``F``."""
    channels = max(1, round(factor * CHANNELS))
    layers: list[nn.Module] = [
        nn.Conv2d(image_channels, channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
    ]
    inputs = channels
    for group in range(4):
        outputs = channels * 2**group
        layers += [ResidualBlock(inputs, outputs, 1 if group == 0 else 2), ResidualBlock(outputs, outputs, 1)]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), inputs
