"""Contract of backbones, and the plain fine-tuning that they and metrics are tried with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final

import pytest
import torch
from torch import Tensor, nn

from seu_bench.config.common_options import BackboneOptions
from seu_bench.config.streams import SCENARIOS
from seu_bench.engine.resolve import named_backbone
from seu_bench.errors import RequestError
from seu_bench.hookspecs import hookimpl
from seu_bench.plugin.registration import LazyFactory, Register
from seu_bench.testing.sizes import check_sizes
from seu_bench.testing.trial import Contract, Trial, installed, require, same
from seu_bench.training.backbones import backbone_model
from seu_bench.training.costing import fixed_size_cost
from seu_bench.training.interfaces import StrategyContext, StrategyFactory
from seu_bench.training.strategy import StagedStrategy
from seu_bench.utils.seeding import RandomState

#: Channels, height and width of the images that a backbone is tried with: tiny, MNIST's, CIFAR's, and not square.
SHAPES: Final = ((1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 24, 32))


class FineTuning:
    """The plugin that offers ``fine_tuning``, which trains one network on every task in turn; registered by hand."""

    @hookimpl
    def register_strategies(self, register: Register[StrategyFactory]) -> None:
        register(
            "fine_tuning",
            LazyFactory(
                "for contracts",
                options=BackboneOptions,
                build=self._build,
                cost=fixed_size_cost,
                scenarios=SCENARIOS,  # benchmarks of any scenario are checked by it
            ),
        )

    @staticmethod
    def _build(context: StrategyContext) -> StagedStrategy:
        return StagedStrategy.of(context, model=backbone_model(context))


class BackboneContract(Contract):
    """Tests that every backbone must pass.

    Attributes:
        backbone: registered name, or ``KIND:NAME``.

    Example::

        class TestMine(BackboneContract):
            backbone = "mine"
    """

    backbone: ClassVar[str]

    def network(self, shape: tuple[int, int, int], *, seed: int = 0, width: float = 0.5) -> tuple[nn.Module, int]:
        """Build the network for images of a shape ``(C, H, W)``; skip the test if the backbone refuses the shape."""
        factory = named_backbone(installed(self.plugins), self._name())
        try:
            with RandomState(seed).active():
                network, features = factory.build(*shape, width)
        except RequestError as error:
            pytest.skip(f"it refuses images of {shape}: {error.what}")
        return network, features

    def _name(self) -> str:
        """The backbone; of one that stands for many, its example."""
        if ":" in self.backbone:
            return self.backbone
        example = getattr(installed(self.plugins).backbones.find(self.backbone).factory, "example", None)
        return self.backbone if example is None else f"{self.backbone}:{example}"

    @pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
    def test_maps_images_to_features(self, shape: tuple[int, int, int]) -> None:
        """Images ``[N, C, H, W]`` become finite features ``[N, F]``, in training and in evaluation mode."""
        network, width = self.network(shape)
        require(isinstance(network, nn.Module), f"build() must return a torch module first, not {network!r:.100}")
        for training in (True, False):
            found = network.train(training)(_images(shape))
            expected = (4, width)
            require(
                isinstance(found, Tensor) and tuple(found.shape) == expected and bool(torch.isfinite(found).all()),
                f"4 images of {shape} gave {_shape_of(found)}; features must be finite and of shape {expected}, as "
                "build() says by the number that it returns second",
            )

    @pytest.mark.parametrize("width", [0.125, 1.0, 2.0])
    def test_widths(self, width: float) -> None:
        """It can be narrow and wide."""
        network, features = self.network((1, 8, 8), width=width)
        found = tuple(network.eval()(_images((1, 8, 8))).shape)
        require(found == (4, features), f"with width {width}, features are of shape {found}, and {features} were said")

    def test_looks_at_each_image_alone(self) -> None:
        """In evaluation mode the features of an image do not depend on the images beside it."""
        network, images = self.network((1, 8, 8))[0].eval(), _images((1, 8, 8))
        with torch.no_grad():
            together, apart = network(images), torch.cat([network(image[None]) for image in images])
        require(
            torch.allclose(together, apart, rtol=1e-4, atol=1e-5),
            f"an image's features change by {(together - apart).abs().max():.2g} with the images beside it",
        )

    def test_depends_on_the_seed_alone(self) -> None:
        """Weights are drawn from torch's generators: equal for one seed, others for another."""
        first, again, other = (self.network((1, 8, 8), seed=seed)[0].state_dict() for seed in (0, 0, 1))
        require(same(first, again), "two networks of one seed have other weights: draw from torch's generators")
        if not first:
            pytest.skip("it has no weights")
        require(not same(first, other), "networks of two seeds have the same weights")

    def test_weights_can_be_loaded(self) -> None:
        """A second network with the weights of the first computes the same."""
        one, two = (self.network((1, 8, 8), seed=seed)[0].eval() for seed in (0, 1))
        two.load_state_dict(one.state_dict())
        images = _images((1, 8, 8))
        with torch.no_grad():
            require(torch.equal(one(images), two(images)), "state_dict() does not hold all that it computes with")

    def test_is_learned_with(self, tmp_path: Path) -> None:
        """Fine-tuning on it learns three tasks; sizes are those that the cost estimate said."""
        trial = Trial("fine_tuning", {"backbone": self._name(), **self.options}, [*self.plugins, FineTuning()])
        learner = trial.learner("tiny_three")
        for task in range(learner.tasks):
            learner.learn(task)
            check_sizes(learner, task)
        record = trial.record("tiny_three", tmp_path)
        require(record.status == "finished", f"the run is {record.status}: {record.error}")


def _images(shape: tuple[int, int, int]) -> Tensor:
    return torch.randn(4, *shape, generator=torch.Generator().manual_seed(0))


def _shape_of(found: Any) -> str:
    return f"a tensor of shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
