"""A variational autoencoder (D. P. Kingma, M. Welling, "Auto-Encoding Variational Bayes", ICLR 2014) as generator."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from seu_bench_dgr.generators import GeneratorTrainer, ImageGenerator, Sources

#: Hidden units of the published perceptron (van de Ven & Tolias 2018).
HIDDEN = 400


class Vae(ImageGenerator):
    """Two perceptrons of two hidden layers each: an image to a normal distribution of latents, and back.

    Args:
        shape: channels, height and width of an image.
        latent: dimensions of the latents.
        hidden: units of each hidden layer.
    """

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
        """Pixels before the sigmoid."""
        decoded: Tensor = self.decoder(noise)
        return decoded.view(-1, *self.shape)

    def trainer(self, rate: float) -> VaeTrainer:
        """Adam over encoder and decoder."""
        return VaeTrainer(self, rate)

    def losses(self, pixels: Tensor) -> Tensor:
        """Negative lower bound of the log-likelihood of each image, in nats, with one sample of its latents.

        Args:
            pixels: ``[N, C, H, W]`` in [0, 1], the probabilities of independent Bernoulli variables.

        Returns:
            ``[N]``: cross-entropy of the decoded pixels, summed over them, plus the divergence of the latents.
        """
        features = self.encoder(pixels)
        mean, log_variance = self.mean(features), self.log_variance(features)
        latents = mean + (log_variance / 2).exp() * torch.randn_like(mean)
        decoded = self.logits(latents)
        reconstruction = binary_cross_entropy_with_logits(decoded, pixels, reduction="none").flatten(1).sum(dim=1)
        return reconstruction + divergence(mean, log_variance)


def divergence(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Kullback-Leibler divergence of normal distributions ``[N, D]`` from the standard one, ``[N]`` nats."""
    return (mean.square() + log_variance.exp() - 1 - log_variance).sum(dim=1) / 2


class VaeTrainer(GeneratorTrainer):
    """Adam on the weighted mean of the task's and the replayed images' losses."""

    def __init__(self, model: Vae, rate: float) -> None:
        self.model = model
        super().__init__(self.adam(model, rate))

    def step(self, sources: Sources) -> Tensor:
        """One step; the loss is in nats per image."""
        (optimizer,) = self.optimizers
        optimizer.zero_grad(set_to_none=True)
        real = sources.real()
        replayed = real[:0] if sources.replayed is None else sources.replayed(len(real))
        losses = self.model.losses(torch.cat([real, replayed]))
        loss = losses[: len(real)].mean()
        if len(replayed):
            loss = sources.share * loss + (1 - sources.share) * losses[len(real) :].mean()
        self.passes += len(real) + 2 * len(replayed)
        loss.backward()
        optimizer.step()
        return loss.detach()
