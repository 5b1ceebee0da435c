"""A training whose rate follows the validation loss: when it is divided, when it ends, resuming, and its cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from support.tiny import class_stream, context, learn, same, weights

from seu_bench.config.common_options import BackboneOptions
from seu_bench.config.options import build_options
from seu_bench.config.protocol import Schedule
from seu_bench.data.streams import TaskStream
from seu_bench.errors import OptionError, RequestError
from seu_bench.models.backbone import BackboneModel
from seu_bench.testing.trial import from_file
from seu_bench.training.backbones import backbone_model
from seu_bench.training.interfaces import StrategyContext
from seu_bench.training.strategy import StagedStrategy
from seu_bench_kit.costing import fixed_size_cost
from seu_bench_methods.plateau import PlateauOptions, PlateauStage, at_least, fewest_epochs

#: From .05 the rate is below .005 after three divisions by 3.
OPTIONS: dict[str, Any] = {"epochs": 40, "batch_size": 8, "learning_rate": 0.05, "min_learning_rate": 0.005}


class Told(PlateauOptions, BackboneOptions):
    """Options of :class:`Following`."""


class Following(StagedStrategy):
    """Measures the validation losses that it is told to."""

    losses: Sequence[float] = ()

    def training_stage(self, task: Any) -> PlateauStage:
        """Follow the losses."""
        return PlateauStage(self, task)

    def validation_loss(self, task: Any, on_batch: Any) -> float | None:
        """The loss of this epoch."""
        measured = super().validation_loss(task, on_batch)
        assert self._stage is not None
        return None if measured is None else self.losses[self._stage.epoch]


def stream() -> TaskStream:
    return class_stream([[0, 1]], images=12)


def made_for(source: TaskStream, *, valid: bool = True, **options: Any) -> StrategyContext:
    """The context of a run with ``lr_schedule=plateau``."""
    chosen = build_options(Told, "told", {"backbone": "mlp", "lr_schedule": "plateau", **OPTIONS, **options})
    made = context(source.plan, "naive", {"backbone": "mlp"})
    return StrategyContext(made.plan, made.protocol, chosen, backbone=made.backbone)


def following(losses: Sequence[float], **more: Any) -> Following:
    """A strategy that measures these losses."""
    made = made_for(stream())
    model: BackboneModel = backbone_model(made)
    strategy = Following.of(made, model=model, **more)
    strategy.losses = losses
    return strategy


def rates_of(strategy: Following) -> list[float]:
    """The rate of each epoch that a training takes."""
    rates: list[float] = []
    strategy.pause = lambda _: rates.append(strategy.optimizer.param_groups[0]["lr"])
    learn(stream(), strategy)
    return rates


def test_rate_is_divided_after_five_epochs_without_a_lower_loss() -> None:
    """Equal is not lower; a lower loss begins the count anew; below the least rate it ends."""
    losses = [3.0, 2.0, *[2.0] * 4, 1.0, *[1.0] * 5, *[1.5] * 4, 0.5, *[0.6] * 40]
    rates = rates_of(following(losses))
    assert rates == pytest.approx([0.05] * 12 + [0.05 / 3] * 10 + [0.05 / 9] * 5)
    assert 0.05 / 27 < OPTIONS["min_learning_rate"] < 0.05 / 9


def test_fewest_epochs() -> None:
    """One that sets the lowest loss, and five for each division; never more than there are, all where it cannot end."""
    told = Schedule(epochs=200, learning_rate=0.05, min_learning_rate=1e-4)
    assert fewest_epochs(told) == 1 + 6 * 5  # .05 / 3^6 < .0001 < .05 / 3^5
    assert fewest_epochs(told.model_copy(update={"epochs": 8})) == 8
    assert fewest_epochs(told.model_copy(update={"min_learning_rate": 0.0})) == 200
    assert len(rates_of(following([1.0] * 40))) == 1 + 3 * 5 == fewest_epochs(Schedule(**OPTIONS))


@pytest.mark.parametrize("epoch", [3, 8, 18])
def test_resumes_to_the_same_weights(epoch: int) -> None:
    """Between two divisions, behind one, and when all epochs are over but not the stage."""
    losses = [1.0 - 0.01 * number for number in range(3)] + [1.0] * 40
    whole, states = following(losses), []
    whole.pause = lambda stage: states.append(from_file(whole.state_dict())) if stage.epoch == epoch else None
    learn(stream(), whole)
    resumed, left = following(losses), []
    resumed.load_state_dict(states[0])
    resumed.pause = lambda _: left.append(resumed.optimizer.param_groups[0]["lr"])
    learn(stream(), resumed)
    assert same(weights(whole.model), weights(resumed.model))
    assert len(left) == 3 + 3 * 5 - epoch


def test_cost_is_an_upper_bound() -> None:
    """Passes of all epochs; operations from the fewest epochs to all."""
    made = made_for(stream())
    schedule = made.options.applied_to(made.protocol.training)
    cost = at_least(fixed_size_cost(made, lambda: backbone_model(made)), schedule)
    assert cost.image_passes == 40 * 24
    assert cost.train_flops_min is not None and cost.train_flops is not None
    assert cost.train_flops_min * 40 == cost.train_flops * 16
    constant = fixed_size_cost(made_for(stream(), lr_schedule="constant"), lambda: backbone_model(made))
    assert constant.train_flops_min == constant.train_flops == cost.train_flops


def test_needs_a_validation_loss() -> None:
    """Refused with the option that contradicts it, and where the benchmark withholds no images."""
    with pytest.raises(OptionError, match="needs restore=best_valid"):
        made_for(stream(), restore="last")
    strategy = following([])
    with pytest.raises(RequestError, match="follows the validation loss"):
        for experience in stream().avalanche().train_stream:
            strategy.train(experience)
