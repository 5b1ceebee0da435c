"""Learning rates and optimisers beside those of torch, by epoch and by step, in runs; first tasks of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.tiny import build, class_stream, context, learn, same, weights
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, MultiStepLR, SequentialLR

from seu_bench.config.common_options import TrainingOptions
from seu_bench.config.options import build_options
from seu_bench.config.protocol import Schedule, TrainingSchedule
from seu_bench.data.streams import TaskStream
from seu_bench.errors import OptionError
from seu_bench.testing.trial import from_file
from seu_bench.training.loops import epoch_rate, make_optimizer
from seu_bench.training.rehearsal import rehearse
from seu_bench_methods.naive import Naive

OPTIONS: dict[str, Any] = {"backbone": "mlp", "epochs": 6, "batch_size": 8, "learning_rate": 0.01, "weight_decay": 0.1}

RATES: dict[str, tuple[dict[str, Any], Callable[[Any], LRScheduler]]] = {
    "milestones": ({"milestones": [2, 3], "gamma": 0.3}, lambda it: MultiStepLR(it, [2, 3], 0.3)),
    "shares": ({"milestones": [0.5, 0.9]}, lambda it: MultiStepLR(it, [3, 6], 0.1)),
    "warm-up, cosine": (
        {"warmup_epochs": 2, "min_learning_rate": 0.001},
        lambda it: SequentialLR(it, [LinearLR(it, 1 / 3, total_iters=2), CosineAnnealingLR(it, 4, 0.001)], [2]),
    ),
    "warm-up, milestones": (
        {"warmup_epochs": 2, "milestones": [4]},
        lambda it: SequentialLR(it, [LinearLR(it, 1 / 3, total_iters=2), MultiStepLR(it, [2], 0.1)], [2]),
    ),
    "warm-up, constant": (
        {"warmup_epochs": 3, "lr_schedule": "constant"},
        lambda it: LinearLR(it, 1 / 4, total_iters=3),
    ),
}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda them, **more: torch.optim.SGD(them, momentum=0.8, **more),
    "adam": lambda them, **more: torch.optim.Adam(them, betas=(0.8, 0.999), **more),
    "adamw": lambda them, **more: torch.optim.AdamW(them, betas=(0.8, 0.999), **more),
}


def stream() -> TaskStream:
    return class_stream([[0, 1], [2, 3]], images=12)


def naive(source: TaskStream, **options: Any) -> Naive:
    return Naive.build(context(source.plan, "naive", OPTIONS | options))


class Beside(Naive):
    """Has torch's own optimiser make each step on copies of the weights, with the same gradients."""

    name = ""
    _make_scheduler: Callable[[Any], LRScheduler]

    def begin_training(self, module: nn.Module, schedule: Schedule) -> None:
        """Copy the weights."""
        super().begin_training(module, schedule)
        self._copies = [nn.Parameter(it.detach().clone()) for it in self._clipped]
        self._theirs = OPTIMIZERS[schedule.optimizer](self._copies, lr=0.01, weight_decay=0.1)
        self._scheduler = self._make_scheduler(self._theirs)

    def optimizer_step(self) -> None:
        """Make both steps."""
        for copied, weight in zip(self._copies, self._clipped, strict=True):
            copied.grad = None if weight.grad is None else weight.grad.clone()
        super().optimizer_step()
        self._theirs.step()
        torch.testing.assert_close([it.data for it in self._clipped], [it.data for it in self._copies])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("rates", RATES)
def test_rates_and_steps_are_torchs(rates: str, optimizer: str) -> None:
    """Of each epoch, in a training of two tasks; gradients are not clipped."""
    options, make_scheduler = RATES[rates]
    given = OPTIONS | options | {"optimizer": optimizer, "momentum": 0.8, "clip_norm": 0}
    source, epochs = stream(), []
    strategy = Beside.build(context(source.plan, "naive", given))
    strategy._make_scheduler = make_scheduler

    def pause(stage: Any) -> None:
        theirs = strategy._scheduler.get_last_lr()[0]
        assert strategy.optimizer.param_groups[0]["lr"] == pytest.approx(theirs, rel=1e-12)
        strategy._scheduler.step()
        epochs.append(stage.epoch)

    strategy.pause = pause
    learn(source, strategy)
    assert epochs == [1, 2, 3, 4, 5, 6] * 2


def test_sgd_is_as_it_was() -> None:
    """The fused one of torch, whose momentum begins as zeros; and no rate is set where it is constant."""
    weight = nn.Parameter(torch.ones(3))
    optimizer = make_optimizer([weight], Schedule())
    assert type(optimizer) is torch.optim.SGD and optimizer.defaults["fused"]
    assert torch.equal(optimizer.state[weight]["momentum_buffer"], torch.zeros(3))
    assert epoch_rate(Schedule(), 3, "constant") is None


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_resumes_to_the_bit(optimizer: str) -> None:
    """Within a task: moments and steps are in the checkpoint."""
    options = {"optimizer": optimizer, "milestones": [2, 4], "warmup_epochs": 1}
    source, states = stream(), []
    whole = naive(source, **options)
    whole.pause = lambda stage: states.append(from_file(whole.state_dict())) if stage.epoch == 3 else None
    learn(source, whole, 1)
    resumed, epochs = naive(source, **options), []
    resumed.load_state_dict(states[0])
    resumed.pause = lambda stage: epochs.append(stage.epoch)
    learn(source, resumed, 1)
    assert same(weights(whole.model), weights(resumed.model)) and epochs == [4, 5, 6]


def test_first_task_has_a_schedule_of_its_own() -> None:
    """In training and in forecasts, until an option of all tasks is given later."""
    first = {"first_epochs": 3, "first_milestones": [1], "first_weight_decay": 0.5}
    source, seen = stream(), []
    strategy = naive(source, milestones=[4], **first)

    def note(stage: Any) -> None:
        group = strategy.optimizer.param_groups[0]
        seen.append((stage.epoch, group["lr"], group["weight_decay"]))

    strategy.pause = note
    learn(source, strategy)
    assert [epoch for epoch, *_ in seen] == [1, 2, 3, 1, 2, 3, 4, 5, 6]
    assert [rate for _, rate, _ in seen] == pytest.approx([0.01, 0.001, 0.001, *[0.01] * 4, 0.001, 0.001])
    assert [decay for *_, decay in seen] == [0.5] * 3 + [0.1] * 6
    made = context(source.plan, "naive", OPTIONS | {"milestones": [4], **first})
    assert [it.train for it in rehearse(Naive.build, made).stages if it.name == "training"] == [3 * 18, 6 * 18]


def test_options_of_all_tasks_replace_those_of_the_first() -> None:
    """Of an earlier layer and of the protocol, key by key."""
    protocol = TrainingSchedule(epochs=9, first_epochs=20, first_milestones=(10,), weight_decay=0.2)
    table = {"epochs": 5, "first_epochs": 7, "first_weight_decay": 0.4}

    def applied(*layers: dict[str, Any]) -> tuple[Schedule, Schedule]:
        schedule = build_options(TrainingOptions, "it", *layers).applied_to(protocol)
        return schedule.of_task(0), schedule.of_task(1)

    of_table, user = applied(table), applied(table, {"epochs": 1})
    assert [(it.epochs, it.milestones, it.weight_decay) for it in of_table] == [(7, (10,), 0.4), (5, (), 0.2)]
    assert [(it.epochs, it.milestones, it.weight_decay) for it in user] == [(1, (10,), 0.4), (1, (), 0.2)]
    assert [it.epochs for it in applied({"epochs": 2})] == [2, 2]
    assert [it.milestones for it in applied({"milestones": []})] == [(), ()]


def test_milestones_of_a_shorter_stage_keep_their_shares() -> None:
    """As of packnet's retraining, which is half as long; those that are never reached are not, either."""
    schedule = Schedule(epochs=170, milestones=(80, 120, 150, 0.5, 200), learning_rate=1.0).of_epochs(85)
    rates = [epoch_rate(schedule, epoch) for epoch in range(85)]
    assert [epoch for epoch in range(1, 85) if rates[epoch] != rates[epoch - 1]] == [40, 43, 60, 75]
    assert rates[-1] == pytest.approx(1e-4)


def test_no_stability_is_claimed_of_adam() -> None:
    """The bound is that of SGD with momentum."""
    source = stream()
    found = {}
    for optimizer in ("sgd", "adam"):
        stages = []
        strategy = build(source, "ewc", backbone="mlp", optimizer=optimizer, learning_rate=0.001)
        strategy.pause = stages.append
        learn(source, strategy)
        found[optimizer] = stages[-1].stability is not None
    assert found == {"sgd": True, "adam": False}


@pytest.mark.parametrize("given", [{"milestones": [0]}, {"milestones": [1.5]}, {"optimizer": "lion"}, {"gamma": 0}])
def test_faults(given: dict[str, Any]) -> None:
    """Are named by their option."""
    with pytest.raises(OptionError, match=next(iter(given))):
        build_options(TrainingOptions, "it", given)
