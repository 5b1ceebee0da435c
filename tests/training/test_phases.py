"""What a batch passes beyond its own images is counted, and its operations are."""

from __future__ import annotations

import copy
from typing import Any

import torch
from support.tiny import all_threads, class_stream, context, learn, one_thread
from torch import Tensor

from seu_bench.training.backbones import backbone_model
from seu_bench.training.costing import fixed_size_cost
from seu_bench.training.interfaces import StageCost
from seu_bench.training.stage import Phase, StageProgress, TaskData
from seu_bench.training.strategy import StagedStrategy, TrainingStage

setup_module, teardown_module = one_thread, all_threads

#: Of 16 images of a task a quarter is withheld for validation; batches of 8 and 4, two epochs.
IMAGES, TRAIN, BATCHES, EPOCHS = 8, 12, 2, 2


class Repeating(StagedStrategy):
    """Passes its first batch once more with every batch but the first."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.first: Tensor | None = None

    def criterion(self) -> Tensor:
        loss = super().criterion()
        if not self.is_training:
            return loss
        if self.first is None:
            self.first = self.mb_x
            return loss
        self.passed(len(self.first))
        return loss + self.model.forward_single_task(self.first, 0).square().mean()


class Noting(StagedStrategy):
    """Notes the length of each batch, in place."""

    state_attributes = ("sizes", "fixed")

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.sizes: list[int] = []
        self.fixed = torch.zeros(3)

    def criterion(self) -> Tensor:
        if self.is_training:
            self.sizes.append(len(self.mb_x))
        return super().criterion()


def test_state_within_a_phase() -> None:
    """It has what the phase found beside what there is now, whatever changes in place; what did not change, once."""
    stream = class_stream([[0, 1]], images=IMAGES)
    made = context(stream.plan, "naive", {"backbone": "linear", "epochs": EPOCHS, "batch_size": 8})
    strategy = Noting.of(made, model=backbone_model(made))
    states: list[dict[str, Any]] = []
    strategy.pause = lambda _: states.append(copy.deepcopy(strategy.state_dict()))
    learn(stream, strategy)
    assert [state["own"]["sizes"] for state in states] == [[], []]
    assert [state["own_now"]["sizes"] for state in states] == [[8, 4], [8, 4, 8, 4]]
    assert all(state["own"]["fixed"] is state["own_now"]["fixed"] for state in states)
    resumed = Noting.of(made, model=backbone_model(made))
    resumed.load_state_dict(states[0])
    learn(stream, resumed)
    assert resumed.sizes == [8, 4, 8, 4] and states[0]["own_now"]["sizes"] == [8, 4]
    assert vars(resumed.clock) == vars(strategy.clock)


def test_passes_beyond_the_batch() -> None:
    """Image passes and operations are those that the estimate has for them, though the first batch is a plain one."""
    stream = class_stream([[0, 1], [2, 3]], images=IMAGES)
    ended: list[StageProgress] = []
    options = {"backbone": "linear", "epochs": EPOCHS, "batch_size": 8, "restore": "last"}
    made = context(stream.plan, "naive", options, on_progress=lambda it: ended.append(it) if it.done else None)
    learn(stream, Repeating.of(made, model=backbone_model(made)))
    assert [task.num_train for task in made.plan.tasks] == [TRAIN, TRAIN]
    more = [8 * (BATCHES * EPOCHS - 1), 8 * BATCHES * EPOCHS]
    cost = fixed_size_cost(made, [StageCost("training", task, images, 0) for task, images in enumerate(more)])
    assert [it.image_passes for it in ended] == [EPOCHS * TRAIN + images for images in more]
    assert sum(it.flops or 0 for it in ended) == cost.train_flops == cost.train_flops_min


class Refining(StagedStrategy):
    """Trains each task once more, for one epoch at a rate of its own."""

    def phases(self, task: TaskData) -> list[Phase]:
        again = self.schedule.model_copy(update={"epochs": 1, "learning_rate": 0.125})
        return [*super().phases(task), Phase(lambda: TrainingStage(self, task, "refining", again))]


def test_another_training_of_a_task() -> None:
    """It has its own name, seed, epochs and learning rate; batches are those of the strategy."""
    stream = class_stream([[0, 1]], images=IMAGES)
    ended: list[StageProgress] = []
    options = {"backbone": "linear", "epochs": EPOCHS, "batch_size": 8, "restore": "last"}
    made = context(stream.plan, "naive", options, on_progress=lambda it: ended.append(it) if it.done else None)
    strategy = Refining.of(made, model=backbone_model(made))
    rates: list[float] = []
    step = strategy.optimizer_step
    strategy.optimizer_step = lambda: (rates.append(strategy.optimizer.param_groups[0]["lr"]), step())[1]  # type: ignore[method-assign]
    learn(stream, strategy)
    assert [(it.stage, it.epochs, it.image_passes) for it in ended] == [
        ("training", EPOCHS, EPOCHS * TRAIN),
        ("refining", 1, TRAIN),
    ]
    assert rates[EPOCHS * BATCHES :] == [0.125] * BATCHES and 0.125 not in rates[: EPOCHS * BATCHES]
    task = TaskData(0, stream.tasks[0].train, None)
    states = [TrainingStage(strategy, task, name).randomness.state_dict() for name in ("training", "refining")]
    assert not torch.equal(states[0]["torch"], states[1]["torch"])
