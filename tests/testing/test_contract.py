"""Every registered strategy holds to the contract that strangers run on theirs, and broken strategies do not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import binom
from support.remembering import REMEMBERED, repaired
from support.tried import ADAPTING_SEU, ALL, FIXED_SEU, PROBING_SEU, each, tried
from torch import nn

from seu_bench import hookimpl
from seu_bench.config.common_options import BackboneOptions
from seu_bench.config.options import Options
from seu_bench.data.avalanche import BatchLoader, task_images
from seu_bench.data.images import TaskImages
from seu_bench.errors import RunError
from seu_bench.models.backbone import BackboneModel
from seu_bench.plugin.registration import Register
from seu_bench.testing import FrozenGrowthContract, StrategyContract, Trial
from seu_bench.testing.contract import above_chance
from seu_bench.training.backbones import backbone_model
from seu_bench.training.interfaces import Cost, StrategyContext, StrategyFactory
from seu_bench.training.rehearsal import rehearse
from seu_bench.training.stage import Phase, TaskData
from seu_bench.training.strategy import StagedStrategy

#: Strategies that freeze what a task was learned with.
FROZEN = (
    "cpg",
    "ease",
    "independent",
    "linear",
    "ltg",
    "mntdp",
    "packnet",
    "pathnet",
    "pnn",
    "rcl",
    "seu",
    "seu_adapt",
    "supsup",
    "wsn",
)


class TestEvery(StrategyContract):
    """The strategies that are trained on one network, or may change it."""

    @pytest.fixture(params=each([name for name in ALL if name not in FROZEN]))
    def trial(self, request: pytest.FixtureRequest) -> Trial:
        """Each in turn."""
        return tried(request.param)


class TestFrozen(FrozenGrowthContract):
    """The strategies that cannot forget."""

    @pytest.fixture(params=each([*FROZEN, FIXED_SEU, ADAPTING_SEU, PROBING_SEU]))
    def trial(self, request: pytest.FixtureRequest) -> Trial:
        """Each in turn."""
        return tried(request.param)


class BrokenOptions(BackboneOptions):
    """Options of strategies that are broken on purpose."""


class Broken:
    """A factory of naive fine-tuning with something wrong, as a plugin that offers it under the name ``broken``."""

    summary = "broken on purpose"
    options: type[Options] = BrokenOptions
    components: Mapping[str, str] = {}
    presets: Mapping[str, Mapping[str, object]] = {}

    def __init__(
        self,
        learner: Callable[..., StagedStrategy] = StagedStrategy.of,
        more_parameters: int = 0,
        more_memory: int = 0,
        scenarios: Sequence[str] = ("task",),
    ) -> None:
        self.learner = learner
        self.scenarios = tuple(scenarios)
        self.more_parameters = more_parameters
        self.more_memory = more_memory

    def build(self, context: StrategyContext) -> StagedStrategy:
        """The broken strategy."""
        return self.learner(context, model=backbone_model(context))

    def cost(self, context: StrategyContext) -> Cost:
        """Cost of naive fine-tuning, and so many parameters more."""
        cost = rehearse(Broken().build, context)
        total = tuple(params + self.more_parameters for params in cost.params_total)
        kept = tuple(memory + self.more_memory for memory in cost.memory_bytes)
        return replace(cost, params_total=total, params_total_min=total, memory_bytes=kept, memory_bytes_min=kept)

    @hookimpl
    def register_strategies(self, register: Register[StrategyFactory]) -> None:
        """Offer it."""
        register("broken", self)

    @property
    def fault(self) -> str:
        """Its defect, in a word."""
        return str(getattr(self.learner, "__self__", self.learner).__name__)

    @property
    def trial(self) -> Trial:
        """It, on trial."""
        return Trial("broken", {"backbone": "mlp"}, [self])


class Peeking(StagedStrategy):
    """Learns the last task's images beside each task's own: they are there, behind the experience."""

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """One more stage, on what is not this task's."""
        last = self.experience.origin_stream[-1]  # type: ignore[union-attr,index]
        images = task_images(last.dataset, task.index, self.device)
        return [Phase(lambda: self.training_stage(task), lambda _: self._shift(images))]

    def _shift(self, images: TaskImages) -> None:
        with torch.no_grad():
            self.model.heads[0].bias += images.store[images.rows].mean()  # type: ignore[operator,index,union-attr]


class LearningFromTests(StagedStrategy):
    """Adapts to the images that it is evaluated on."""

    def _after_eval_iteration(self, **kwargs: Any) -> None:
        super()._after_eval_iteration(**kwargs)
        with torch.no_grad():
            self.model.heads[0].bias += 1e-3 * self.mb_x.mean()  # type: ignore[operator,index,union-attr]


class TrainingOnValidation(StagedStrategy):
    """Adds the validation images to what it trains on."""

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """One training stage on more than it should see."""
        valid = task.valid
        if valid is not None:
            rows, labels = torch.cat([task.train.rows, valid.rows]), torch.cat([task.train.labels, valid.labels])
            self.dataloader = BatchLoader(replace(task.train, rows=rows, labels=labels), 8, shuffle=True)
        return super().phases(task)


class Unseeded(StagedStrategy):
    """Disturbs the weights before a task, by whatever the global generator draws."""

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training, from somewhere near."""
        with torch.no_grad():
            for weight in self.model.parameters():
                weight.add_(torch.randn_like(weight), alpha=1e-3)
        return super().phases(task)


class Drawing(StagedStrategy):
    """Draws a number whenever it evaluates."""

    def _before_eval_exp(self, **kwargs: Any) -> None:
        super()._before_eval_exp(**kwargs)
        torch.rand(1)


class Lazy(StagedStrategy):
    """Goes through every step and moves nothing."""

    def optimizer_step(self) -> None:
        """Nothing."""


def lazy_without_labels(context: StrategyContext, model: BackboneModel) -> StagedStrategy:
    """A strategy that learns where tasks are known, and nothing elsewhere."""
    return (StagedStrategy if context.plan.scenario == "task" else Lazy).of(context, model=model)


class Asleep(StagedStrategy):
    """Measures something before each task, and does not wake up again."""

    def training_mode(self) -> None:
        """The mode of evaluation."""
        self.model.eval()


class Twice(StagedStrategy):
    """Trains twice as long as its estimate says."""

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training, and training again."""
        return [Phase(lambda: self.training_stage(task)) for _ in range(2)]


class Forgetful(StagedStrategy):
    """Holds the weights near where the last task left them, and tells nobody that it remembers where that was."""

    anchor: Sequence[torch.Tensor] = ()

    def phases(self, task: TaskData) -> Sequence[Phase]:
        """Training, after which the anchor is dropped."""
        return [Phase(lambda: self.training_stage(task), lambda _: self._drop())]

    def _drop(self) -> None:
        self.anchor = [weight.detach().clone() for weight in self.model.parameters()]

    def penalty(self) -> torch.Tensor | None:
        """Squared distance to the anchor."""
        terms = [(w - a).square().sum() for a, w in zip(self.anchor, self.model.parameters(), strict=False)]
        return torch.stack(terms).sum() if terms else None


class Pickled(Forgetful):
    """Tells what it remembers as an object."""

    def get_extra_state(self) -> dict[str, Any]:
        """A value that only pickle could write."""
        return {"anchor": object}


class Uncounted(Forgetful):
    """Resumes with its anchor, and does not count it among what it keeps."""

    state_attributes = ("anchor",)

    def kept(self) -> dict[str, Any]:
        """The model alone."""
        return {"parameters": list(self.model.parameters())}


class Grown(BackboneModel):
    """Grows behind the back of whoever would make it again."""

    def train(self, mode: bool = True) -> Any:
        """One weight more, when it is trained first."""
        if mode and not hasattr(self, "more"):
            self.more = nn.Parameter(torch.zeros(1))
        return super().train(mode)


def grown(context: StrategyContext, model: BackboneModel) -> StagedStrategy:
    """A strategy whose model says nothing of its architecture."""
    features = model.heads[0].in_features
    made = Grown(model.backbone, features, model.classes_per_task)
    strategy = StagedStrategy.of(context, model=made)
    strategy.phases = lambda task: made.train() and [Phase(lambda: strategy.training_stage(task))]  # type: ignore[method-assign,assignment]
    return strategy


class HidingModel(BackboneModel):
    """Keeps parameters where PyTorch does not look for them."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.hidden = [nn.Parameter(torch.ones(width)) for width in self.classes_per_task]

    def forward_single_task(self, x: torch.Tensor, task_label: int) -> torch.Tensor:
        """Logits, scaled by what is hidden."""
        return self.hidden[task_label] * super().forward_single_task(x, task_label)


def hiding(context: StrategyContext, model: BackboneModel) -> StagedStrategy:
    """A strategy whose model has parameters that nobody counts."""
    features = model.heads[0].in_features
    return StagedStrategy.of(context, model=HidingModel(model.backbone, features, model.classes_per_task))


def seedless(context: StrategyContext, model: BackboneModel) -> StagedStrategy:
    """A strategy that draws the same weights and batches under every seed."""
    same_for_all = replace(context, seed=0)
    return StagedStrategy.of(same_for_all, model=backbone_model(same_for_all))


def unmeasured(context: StrategyContext, model: BackboneModel) -> StagedStrategy:
    """A strategy that does not hand the evaluator on."""
    return StagedStrategy.of(context, model=model, evaluator=None)


def test_contract_passes_what_is_sound(tmp_path: Path) -> None:
    """Without a fault, the factory of the tests below holds to all that they break."""
    contract, trial = StrategyContract(), Broken().trial
    contract.test_learns(trial)
    contract.test_sees_no_later_task_and_no_test_image(trial)
    contract.test_trains_in_training_mode(trial)
    contract.test_does_not_train_on_validation_images(trial)
    contract.test_evaluation_changes_nothing(trial)
    contract.test_resumes_to_the_same_weights(trial)
    contract.test_model_can_be_made_again(trial)
    contract.test_depends_on_the_seed_alone(trial)
    contract.test_counts_its_parameters(trial)
    contract.test_leaves_a_complete_record(trial, tmp_path)


@pytest.mark.parametrize(
    ("broken", "check", "said"),
    [
        (Broken(Lazy.of), "learns", r"task 0 \(task-incremental\): 0"),
        (
            Broken(lazy_without_labels, scenarios=("task", "domain")),
            "learns_in_other_scenarios",
            r"\(domain-incremental\): 0",
        ),
        (Broken(unmeasured), "learns", "hand context.evaluator on"),
        (Broken(Peeking.of), "sees_no_later_task_and_no_test_image", "images of a later task"),
        (Broken(LearningFromTests.of), "sees_no_later_task_and_no_test_image", "test images"),
        (Broken(LearningFromTests.of), "evaluation_changes_nothing", "changed weights"),
        (Broken(Asleep.of), "trains_in_training_mode", "trained in evaluation mode: backbone.1, backbone.3, heads.0"),
        (Broken(Drawing.of), "evaluation_changes_nothing", "drew random numbers"),
        (Broken(Unseeded.of), "depends_on_the_seed_alone", "drawn elsewhere"),
        (Broken(seedless), "depends_on_the_seed_alone", "use context.seed"),
        (Broken(Forgetful.of), "resumes_to_the_same_weights", "stopped after task 0 is not the same after epoch 1"),
        (Broken(Pickled.of), "resumes_to_the_same_weights", "more than tensors and plain values"),
        (Broken(grown), "model_can_be_made_again", "cannot be made again"),
        (Broken(more_parameters=1), "counts_its_parameters", "parameters were measured, and cost said"),
        (Broken(more_memory=4), "counts_its_parameters", "bytes of memory were measured, and cost said"),
        (Broken(Uncounted.of), "counts_its_parameters", r"kept\(\) must return all of it"),
        (Broken(hiding), "counts_its_parameters", r"task_module\(2\) lacks 1 parameters of 2 numbers"),
    ],
    ids=lambda value: value.fault if isinstance(value, Broken) else "",
)
def test_contract_fails_for(broken: Broken, check: str, said: str) -> None:
    """Each fault is found by the check that is made for it, in words that name it."""
    with pytest.raises(pytest.fail.Exception, match=said):
        getattr(StrategyContract(), f"test_{check}")(broken.trial)


@pytest.mark.parametrize("strategy", REMEMBERED, ids=lambda strategy: strategy.__name__)
def test_state_that_changes_within_an_epoch(strategy: type[StagedStrategy]) -> None:
    """A strategy that forgets it fails at once, in the first task; one that names it resumes to the bit."""
    check = StrategyContract().test_resumes_to_the_same_weights
    fault = r"after epoch 1 of training of task 0 is not .* weights.* differs. Name in state_attributes"
    with pytest.raises(pytest.fail.Exception, match=fault):
        check(Broken(strategy.of).trial)
    check(Broken(repaired(strategy).of).trial)


def test_contract_fails_for_training_on_validation_images() -> None:
    """NaN reaches the loss, or the weights: either ends the check."""
    with pytest.raises((pytest.fail.Exception, RunError), match=r"became nan|reached the weights"):
        StrategyContract().test_does_not_train_on_validation_images(Broken(TrainingOnValidation.of).trial)


def test_contract_fails_for_passes_that_were_not_estimated(tmp_path: Path) -> None:
    """The run passes twice the images of the estimate."""
    with pytest.raises(pytest.fail.Exception, match="60 image passes, and 30 were forecast"):
        StrategyContract().test_leaves_a_complete_record(Broken(Twice.of).trial, tmp_path)


@pytest.mark.parametrize(
    ("train", "flops", "fault"),
    [(1.0, (1.1, 1.01), "operations of learning"), (1.2, (None, None), "image passes: cost")],
)
def test_contract_fails_for_what_is_near_the_estimate(
    tmp_path: Path, train: float, flops: tuple[float | None, ...], fault: str
) -> None:
    """The run takes 1 % fewer operations than the least, or fewer images than an estimate that has no operations."""

    class Near(Broken):
        def cost(self, context: StrategyContext) -> Cost:
            cost, stages = super().cost(context), []
            for stage in cost.stages:
                most, least = (factor and int(factor * (stage.flops or 0)) for factor in flops)
                stages.append(replace(stage, train=int(train * stage.train), flops=most, flops_min=least))
            return replace(cost, stages=tuple(stages))

    with pytest.raises(pytest.fail.Exception, match=fault):
        trial = replace(Near().trial, exact_passes=flops == (None, None))
        StrategyContract().test_leaves_a_complete_record(trial, tmp_path)


def test_frozen_contract_fails_for_what_forgets() -> None:
    """Fine-tuning changes the logits of the first task."""
    with pytest.raises(pytest.fail.Exception, match="learning task 1 changed the logits of task 0"):
        FrozenGrowthContract().test_earlier_outputs_keep_their_bits(Broken().trial)


@pytest.mark.parametrize(("images", "classes"), [(10, 2), (100, 2), (30, 5)])
def test_bar_of_learning(images: int, classes: int) -> None:
    """Guessing reaches the bar once in a thousand times at most, and one answer less more often (SciPy)."""
    bar = above_chance(images, classes)
    assert binom.sf(bar - 1, images, 1 / classes) <= 1e-3 < binom.sf(bar - 2, images, 1 / classes)
