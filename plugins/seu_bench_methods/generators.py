"""Generators of images, for replay: a variational autoencoder and a Wasserstein GAN with gradient penalty."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.optim import Adam, Optimizer

from seu_bench.data import TaskImages

Real: TypeAlias = Callable[[], Tensor]
Replayed: TypeAlias = Callable[[int], Tensor] | None
Optimizers: TypeAlias = Sequence[Optimizer]
Step: TypeAlias = tuple[Tensor, int]


class ImageGenerator(nn.Module, ABC):
    """Base of generators: random numbers to pixels in [0, 1], and those to the range of standardised images.

    It has no layer that behaves otherwise in evaluation mode.

    Args:
        shape: channels, height and width of an image.
        latent: random numbers that an image is made from.

    Attributes:
        low, high: darkest and brightest value of each channel, ``[C, 1, 1]``, in the first task's training images.
    """

    #: Units of a hidden layer, or channels next to the image, and learning rate, where none are given; Adam's moments.
    units: ClassVar[int]
    rate: ClassVar[float]
    betas: ClassVar[tuple[float, float]] = (0.9, 0.999)
    low: Tensor
    high: Tensor

    def __init__(self, shape: tuple[int, int, int], latent: int) -> None:
        super().__init__()
        self.shape, self.latent = shape, latent
        self.register_buffer("low", torch.zeros(shape[0], 1, 1))
        self.register_buffer("high", torch.ones(shape[0], 1, 1))

    @abstractmethod
    def logits(self, noise: Tensor) -> Tensor:
        """Return pixels ``[N, C, H, W]`` before the sigmoid, of ``noise`` ``[N, latent]``."""

    @abstractmethod
    def step(self, optimizers: Optimizers, real: Real, replayed: Replayed = None, share: float = 1.0) -> Step:
        """Take one step.

        Args:
            optimizers: those that :meth:`optimizers` returned.
            real: returns the next batch of the task's images, pixels ``[N, C, H, W]`` in [0, 1].
            replayed: makes images of earlier tasks beside so many of the task's; ``None`` in the first task.
            share: weight of the task's images; the others have the rest.
        """

    @property
    def parts(self) -> Sequence[nn.Module]:
        """What learns, each part by an optimiser of its own."""
        return [self]

    def optimizers(self, rate: float) -> list[Adam]:
        """Return fresh optimisers, at a learning rate; each takes one kernel where there is a device to compute on."""
        fused = not self.low.is_meta
        return [Adam(part.parameters(), lr=rate, betas=self.betas, fused=fused) for part in self.parts]

    def pixels(self, count: int) -> Tensor:
        """Draw ``count`` images, pixels in [0, 1]."""
        return self.logits(torch.randn(count, self.latent, device=self.low.device)).sigmoid()

    def images(self, count: int) -> Tensor:
        """Draw ``count`` images ``[count, C, H, W]`` in the range of the first task's training images."""
        return self.low + (self.high - self.low) * self.pixels(count)

    def fit_range(self, images: TaskImages) -> None:
        """Take the range of pixels from training images, whose own is that of 0 to 1 from then on."""
        batches = [x for x, _ in images.batches(512, shuffle=False)]
        self.low.copy_(torch.stack([x.amin(dim=(0, 2, 3)) for x in batches]).amin(dim=0)[:, None, None])
        self.high.copy_(torch.stack([x.amax(dim=(0, 2, 3)) for x in batches]).amax(dim=0)[:, None, None])

    def scaled(self, images: Tensor) -> Tensor:
        """Return images ``[N, C, H, W]`` as pixels in [0, 1]; what is beyond the range is brought into it."""
        span = (self.high - self.low).clamp_min(torch.finfo(images.dtype).tiny)
        return ((images - self.low) / span).clamp(0, 1)


class Vae(ImageGenerator):
    """Two perceptrons of two hidden layers each: an image to a normal distribution of latents, and back (D. P. Kingma,
    M. Welling, "Auto-Encoding Variational Bayes", ICLR 2014; sizes of van de Ven & Tolias 2018).

    Args:
        shape, latent: as of :class:`ImageGenerator`.
        hidden: units of each hidden layer.
    """

    units, rate = 400, 0.001

    def __init__(self, shape: tuple[int, int, int], latent: int, hidden: int) -> None:
        super().__init__(shape, latent)
        pixels = math.prod(shape)
        self.encoder = nn.Sequential(
            nn.Flatten(), nn.Linear(pixels, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        self.mean = nn.Linear(hidden, latent)
        self.log_variance = nn.Linear(hidden, latent)
        self.decoder = nn.Sequential(
            nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, pixels)
        )

    def logits(self, noise: Tensor) -> Tensor:
        """Return pixels before the sigmoid."""
        decoded: Tensor = self.decoder(noise)
        return decoded.view(-1, *self.shape)

    def losses(self, pixels: Tensor) -> Tensor:
        """Return the negative lower bound of each image's log-likelihood, in nats, with one sample of its latents.

        Args:
            pixels: ``[N, C, H, W]`` in [0, 1], the probabilities of independent Bernoulli variables.

        Returns:
            ``[N]``: cross-entropy of the decoded pixels, summed over them, plus the divergence of the latents.
        """
        features = self.encoder(pixels)
        mean, log_variance = self.mean(features), self.log_variance(features)
        decoded = self.logits(mean + (log_variance / 2).exp() * torch.randn_like(mean))
        reconstruction = binary_cross_entropy_with_logits(decoded, pixels, reduction="none").flatten(1).sum(dim=1)
        return reconstruction + divergence(mean, log_variance)

    def step(self, optimizers: Optimizers, real: Real, replayed: Replayed = None, share: float = 1.0) -> Step:
        """Take one step on the weighted mean of the task's and the replayed images' losses, in nats per image."""
        optimizers[0].zero_grad(set_to_none=True)
        new = real()
        old = new[:0] if replayed is None else replayed(len(new))
        losses = self.losses(torch.cat([new, old]))
        loss = losses[: len(new)].mean()
        if len(old):
            loss = share * loss + (1 - share) * losses[len(new) :].mean()
        loss.backward()
        optimizers[0].step()
        return loss.detach(), len(new) + 2 * len(old)


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence of normal distributions ``[N, D]`` from the standard one, ``[N]`` nats."""
    return (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=1) / 2


class Wgan(ImageGenerator):
    """A generator of one linear layer and two transposed convolutions, and a critic of two convolutions and a linear
    layer (I. Gulrajani et al., "Improved Training of Wasserstein GANs", NeurIPS 2017).

    Neither has batch normalisation, under which a gradient of one image would hang on the others.

    Args:
        shape, latent: as of :class:`ImageGenerator`.
        channels: next to the image; twice as many next to the linear layers.
        penalty: weight of the gradient penalty.
        critic_steps: steps of the critic for each of the generator.
    """

    units, rate, betas = 64, 0.0001, (0.5, 0.9)

    def __init__(
        self, shape: tuple[int, int, int], latent: int, channels: int, penalty: float, critic_steps: int
    ) -> None:
        super().__init__(shape, latent)
        self.penalty, self.critic_steps = penalty, critic_steps
        depth, height, width = shape
        small = (2 * channels, -(-height // 4), -(-width // 4))
        features = math.prod(small)
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
        """Return pixels before the sigmoid; rows and columns beyond the image are cut off."""
        _, height, width = self.shape
        made: Tensor = self.maker(noise)
        return made[:, :, :height, :width]

    def critic_loss(self, pixels: Tensor) -> Tensor:
        """Return what the critic lowers: its mean for as many made images, less that for ``pixels`` ``[N, C, H, W]``,
        plus the gradient penalty."""
        with torch.no_grad():
            made = self.pixels(len(pixels))
        distance = self.critic(made).mean() - self.critic(pixels).mean()
        loss: Tensor = distance + self.penalty * gradient_penalty(self.critic, pixels, made)
        return loss

    @property
    def parts(self) -> Sequence[nn.Module]:
        """The critic, and what makes images."""
        return [self.critic, self.maker]

    def step(self, optimizers: Optimizers, real: Real, replayed: Replayed = None, share: float = 1.0) -> Step:
        """Take some steps of the critic, each on images of its own, then one of the generator; the loss is the critic's
        in its last one."""
        critic, maker = optimizers
        loss, count, passes = torch.zeros(()), 0, 0
        for _ in range(self.critic_steps):
            critic.zero_grad(set_to_none=True)
            new = real()
            loss, count = self.critic_loss(new), len(new)
            passes += 4 * count  # they, as many that are made and judged, and as many in between
            if replayed is not None:
                old = replayed(count)
                loss = share * loss + (1 - share) * self.critic_loss(old)
                passes += 5 * len(old)
            loss.backward()
            critic.step()
        maker.zero_grad(set_to_none=True)
        judged: Tensor = -self.critic(self.pixels(count)).mean()
        judged.backward(inputs=list(self.maker.parameters()))
        maker.step()
        return loss.detach(), passes + 2 * count


def gradient_penalty(critic: Callable[[Tensor], Tensor], one: Tensor, other: Tensor) -> Tensor:
    """Return the mean of ``(|gradient| - 1)^2`` at a random place between each two images.

    Args:
        critic: images ``[N, C, H, W]`` -> ``[N, 1]``.
        one, other: images of the same shape.
    """
    places = torch.rand(len(one), 1, 1, 1, device=one.device, dtype=one.dtype)
    between = (places * one + (1 - places) * other).requires_grad_()
    (gradients,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    norms: Tensor = torch.linalg.vector_norm(gradients.flatten(1), dim=1)
    return (norms - 1).square().mean()
