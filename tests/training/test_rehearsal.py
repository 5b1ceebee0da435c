"""Forecasts by rehearsal, against runs that compute every batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from pydantic import Field, PositiveInt
from support.tiny import all_threads, one_thread
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from seu_bench import Method, Reservoir
from seu_bench.config import BackboneOptions, SelectingOptions
from seu_bench.engine.forecast import differences
from seu_bench.plugin.methods import MethodFactory
from seu_bench.plugin.registry import load_plugins
from seu_bench.testing.trial import Trial
from seu_bench.training import TaskData, on_meta, pass_flops, rehearsal

setup_module, teardown_module = one_thread, all_threads


class Mixed(Method):
    """A method with every source of an image: training, validation, memory by batch, and the task's images anew."""

    name = "mixed"
    forgets: ClassVar[bool] = False

    class Options(BackboneOptions, SelectingOptions):
        """A memory that fills over several tasks."""

        memory: PositiveInt = Field(90, description="images kept")

    def setup(self) -> None:
        """An empty reservoir."""
        self.memory = Reservoir(self.options.memory)

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        """Replay as many images as there are new ones; a teacher sees those of later tasks once more."""
        loss = cross_entropy(logits, y)
        if len(self.memory):
            old = self.memory.draw(len(y))
            replayed = self.model(old.x, old.task) if self.forgets else self.replay(old.x, old.task)
            loss = loss + cross_entropy(replayed, old.y)
        if int(task[0]):
            with torch.no_grad():
                self.replay(x, task)
        self.memory.add(x=x, y=y, task=task)
        return loss

    def after_task(self, task: TaskData) -> None:
        """Gradients of the memory, and of the task's images, by batches of another size."""
        for x, y in self.counted(task.train, 7):
            torch.autograd.grad(cross_entropy(self.model(x, task.index), y), list(self.network.backbone.parameters()))


class Careless(Mixed):
    """The same, which does not count what it replays."""

    name = "careless"
    forgets = True


def trial(method: type[Method], **options: Any) -> Trial:
    """The method on tiny streams."""
    manager = load_plugins()
    manager.methods["trial"] = [(method.name, MethodFactory(method))]
    found = Trial(method.name, {"backbone": "mlp", "epochs": 4, "batch_size": 5, **options})
    object.__setattr__(found, "registry", _registry(manager))
    return found


def _registry(manager: Any) -> Any:
    from seu_bench.plugin.registry import Registry
    from seu_bench.testing.streams import TinyStreams

    manager.register(TinyStreams(), name="tiny")
    return Registry(manager)


@pytest.mark.parametrize("options", [{}, {"memory": 7}, {"restore": "last"}])
def test_exact(options: dict[str, Any]) -> None:
    """Image passes and operations of each stage of each task, sizes and bytes are those of the run."""
    learner = trial(Mixed, **options).learner("tiny_three", brief=False)
    found: dict[tuple[str, int], tuple[int, int | None]] = {}

    def note(progress: Any) -> None:
        if progress.done:
            found[progress.stage, progress.task] = progress.image_passes, progress.flops

    learner.strategy.on_progress = note
    learner.learn_all()
    cost = learner.cost
    assert {(it.name, it.task): (it.image_passes, it.flops) for it in cost.stages if it.name != "evaluation"} == found
    assert list(cost.memory_bytes) == learner.sizes.memory_bytes
    assert (list(cost.params_total), list(cost.macs)) == (learner.sizes.params_total, learner.sizes.macs)


def test_what_is_not_counted_is_seen(tmp_path: Any) -> None:
    """A method that passes images without counting them has other operations than forecast, or fewer passes."""
    careless = trial(Careless)
    record = careless.record("tiny_three", tmp_path)
    honest = trial(Mixed).learner("tiny_three").cost
    assert any("image passes" in line and "'training' of task 1" in line for line in differences(honest, record.stages))


def test_differences_are_told_by_stage_and_task() -> None:
    """Only beyond the tolerance; of a bound only above it."""
    cost = trial(Mixed).learner("tiny_three").cost
    learning = [it for it in cost.stages if it.name != "evaluation"]
    assert differences(cost, learning) == []
    more = [replace(it, flops=int(1.2 * (it.flops or 0))) if it.task == 1 else it for it in learning]
    told = differences(cost, more)
    assert [line.partition(":")[0] for line in told] == [
        "stage 'after_task' of task 1",
        "stage 'training' of task 1",
    ]
    bound = replace(cost, stages=tuple(replace(it, flops_min=0) for it in cost.stages))
    less = [replace(it, train=it.train // 2, flops=(it.flops or 0) // 2) for it in learning]
    assert differences(bound, less) == [] and differences(cost, less)


def test_stand_in_counts_what_the_network_takes() -> None:
    """Forward alone, forward and backward, twice backward, frozen, and image by image under torch.func."""
    learner = trial(Mixed).learner("tiny_three")
    context = learner.context
    factory = rehearsal._backbone(context)
    assert factory is not None
    stand_in, features = factory.build(context.plan.input, 1.0)
    assert isinstance(stand_in, rehearsal.StandIn)
    flops, images = stand_in.flops, context.plan.input.zeros(6)

    def counted(compute: Any) -> int:
        from seu_bench.models.flops import FlopCounter

        with FlopCounter() as counter:
            compute()
        return counter.flops

    assert stand_in(images).shape == (6, features)
    assert counted(lambda: stand_in(images)) == 6 * flops.evaluate
    assert counted(lambda: stand_in(images).sum().backward()) == 6 * flops.train
    weights = dict(stand_in.named_parameters())
    per_image = torch.func.vmap(
        torch.func.grad(lambda w, x: torch.func.functional_call(stand_in, w, (x[None],)).sum()), in_dims=(None, 0)
    )
    assert counted(lambda: per_image({n: w.detach() for n, w in weights.items()}, images)) == 6 * flops.train
    stand_in.requires_grad_(False)
    assert counted(lambda: stand_in(images)) == 6 * flops.evaluate
    network = on_meta(lambda: nn.Sequential(nn.Flatten(), nn.Linear(images[0].numel(), 3)))
    assert pass_flops(network, context.plan).evaluate == 2 * 3 * images[0].numel()
