"""A Wasserstein GAN with gradient penalty (I. Gulrajani et al., "Improved Training of Wasserstein GANs", NeurIPS 2017)
as generator."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from seu_bench_dgr.generators import GeneratorTrainer, ImageGenerator, Sources

#: Channels next to the image of the published convolutions for small images.
CHANNELS = 64

#: Decay rates of Adam's moments (Gulrajani et al.).
BETAS = (0.5, 0.9)


class Wgan(ImageGenerator):
    """A generator of one linear layer and two transposed convolutions, and a critic of two convolutions and a linear
    layer. Neither has batch normalisation, under which a gradient of one image would hang on the others.

    Args:
        shape: channels, height and width of an image.
        latent: random numbers that an image is made from.
        channels: next to the image; twice as many next to the linear layers.
        penalty: weight of the gradient penalty.
        critic_steps: steps of the critic for each of the generator.
    """

    def __init__(
        self, shape: tuple[int, int, int], latent: int, channels: int, penalty: float, critic_steps: int
    ) -> None:
        super().__init__(shape, latent)
        self.penalty = penalty
        self.critic_steps = critic_steps
        depth, height, width = shape
        small = (2 * channels, -(-height // 4), -(-width // 4))
        features = small[0] * small[1] * small[2]
        self.maker = nn.Sequential(
            nn.Linear(latent, features),
            nn.Unflatten(1, small),
            nn.ReLU(),
            nn.ConvTranspose2d(small[0], channels, 4, stride=2, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(channels, depth, 4, stride=2, padding=1),
        )
        self.critic = nn.Sequential(
            nn.Conv2d(depth, channels, 5, stride=2, padding=2),
            nn.LeakyReLU(0.2),
            nn.Conv2d(channels, small[0], 5, stride=2, padding=2),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(features, 1),
        )

    def logits(self, noise: Tensor) -> Tensor:
        """Pixels before the sigmoid; rows and columns beyond the image are cut off."""
        _, height, width = self.shape
        made: Tensor = self.maker(noise)
        return made[:, :, :height, :width]

    def trainer(self, rate: float) -> WganTrainer:
        """Adam over the critic, and over the generator."""
        return WganTrainer(self, rate)

    def critic_loss(self, pixels: Tensor) -> Tensor:
        """What the critic lowers: its mean for as many made images, less that for ``pixels`` ``[N, C, H, W]``, plus the
        gradient penalty."""
        with torch.no_grad():
            made = self.pixels(len(pixels))
        distance = self.critic(made).mean() - self.critic(pixels).mean()
        loss: Tensor = distance + self.penalty * gradient_penalty(self.critic, pixels, made)
        return loss


def gradient_penalty(critic: Callable[[Tensor], Tensor], one: Tensor, other: Tensor) -> Tensor:
    """Mean of ``(|gradient| - 1)^2`` at a random place between each two images.

    Args:
        critic: images ``[N, C, H, W]`` -> ``[N, 1]``.
        one: images.
        other: images of the same shape.

    Returns:
        A scalar, differentiable in the critic's weights.
    """
    places = torch.rand(len(one), 1, 1, 1, device=one.device, dtype=one.dtype)
    between = (places * one + (1 - places) * other).requires_grad_()
    (gradients,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    norms: Tensor = torch.linalg.vector_norm(gradients.flatten(1), dim=1)
    return (norms - 1).square().mean()


class WganTrainer(GeneratorTrainer):
    """Some steps of the critic, each on images of its own, then one of the generator."""

    def __init__(self, model: Wgan, rate: float) -> None:
        self.model = model
        parts = (model.critic, model.maker)
        super().__init__(*(self.adam(part, rate, BETAS) for part in parts))

    def step(self, sources: Sources) -> Tensor:
        """The step; the loss is the critic's in its last one."""
        critic, maker = self.optimizers
        loss, count = torch.zeros(()), 0
        for _ in range(self.model.critic_steps):
            critic.zero_grad(set_to_none=True)
            loss, count = self._critic_loss(sources)
            loss.backward()
            critic.step()
        maker.zero_grad(set_to_none=True)
        judged: Tensor = -self.model.critic(self.model.pixels(count)).mean()
        self.passes += 2 * count
        judged.backward(inputs=list(self.model.maker.parameters()))
        maker.step()
        return loss.detach()

    def _critic_loss(self, sources: Sources) -> tuple[Tensor, int]:
        """The loss, and the number of the task's images."""
        real = sources.real()
        loss = self.model.critic_loss(real)
        # They, as many that are made and judged, and as many in between.
        self.passes += 4 * len(real)
        if sources.replayed is not None:
            replayed = sources.replayed(len(real))
            loss = sources.share * loss + (1 - sources.share) * self.model.critic_loss(replayed)
            self.passes += 5 * len(replayed)
        return loss, len(real)
