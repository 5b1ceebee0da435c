"""Contract of strategies: subclass :class:`StrategyContract` in a pytest file.

A strategy that is trained once on the whole stream (``whole_stream = True`` on the strategy) may see all tasks'
training images, and is judged after its one training.
"""

from __future__ import annotations

import copy
import itertools
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import pytest
import torch
from scipy.special import bdtrc
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from seu_bench.config.common_options import TaskInferenceOptions
from seu_bench.config.streams import SCENARIOS, Scenario
from seu_bench.engine.checkpoint import is_resumable
from seu_bench.engine.forecast import TOLERANCE, differences
from seu_bench.engine.learner_file import learner_bytes, needs_whole_stream, parse_learner
from seu_bench.engine.resolve import needs_validation, scenarios_of
from seu_bench.metrics import forgetting
from seu_bench.results.record_metrics import EVALUATION
from seu_bench.testing.streams import poison
from seu_bench.testing.trial import (
    Contract,
    Learner,
    Trial,
    check_sizes,
    drawn,
    from_file,
    require,
    same,
    used_parameters,
)
from seu_bench.training.stage import Stage
from seu_bench.training.state import difference
from seu_bench.utils.seeding import RandomState

#: With these, most of a task is still to be learned when a run is stopped, and each epoch has several batches.
SLOW: Final = {"epochs": 3, "batch_size": 5}

#: What an author can do about a state that hangs on how many tasks there are.
_LENGTHENED: Final = (
    "Nothing may hang on how many tasks there are: make what is a task's own when it begins, under a seed of its own "
    "(self.drawing), say in lengthen() how state grows, or why it cannot in needs_whole_stream()"
)

#: Probability that guessing reaches the accuracy that counts as having learned.
BY_CHANCE = 1e-3


def above_chance(images: int, classes: int) -> int:
    """Return the least number of right answers that guessing reaches with probability :data:`BY_CHANCE` at most."""
    return next(right for right in range(1, images + 2) if bdtrc(right - 1, images, 1 / classes) <= BY_CHANCE)


class StrategyContract(Contract):
    """Tests that every strategy must pass.

    Attributes:
        strategy: registered name.
        options: options with which it learns quickly, by key as after ``-o``.
        plugins: modules or objects with hooks to register beside the installed plugins.
        exact_passes: whether ``cost`` gives image passes exactly rather than as an upper bound.
        scenario: of the streams that it learns.

    Example::

        class TestMine(StrategyContract):
            strategy = "mine"
    """

    strategy: ClassVar[str]

    @pytest.fixture
    def trial(self) -> Trial:
        """The strategy on trial."""
        return Trial(self.strategy, self.options, self.plugins, self.exact_passes, scenario=self.scenario)

    @staticmethod
    def _declared(trial: Trial) -> list[Scenario]:
        known = scenarios_of(trial.registry.strategies.find(trial.strategy).factory)
        return [scenario for scenario in SCENARIOS if scenario in known]

    def test_learns(self, trial: Trial) -> None:
        """Right after learning a task, its test images are classified far better than by guessing."""
        _check_learned(trial)

    def test_learns_in_other_scenarios(self, trial: Trial) -> None:
        """So it does in every other scenario that it declares."""
        others = [it for it in self._declared(trial) if it != trial.scenario]
        if not others:
            pytest.skip("this strategy learns in no other scenario")
        for scenario in others:
            _check_learned(replace(trial, scenario=scenario))

    @pytest.mark.parametrize("benchmark", ["tiny_single", "tiny_unequal", "tiny_lopsided", "tiny_all"])
    def test_streams_of_unusual_shape(self, trial: Trial, benchmark: str) -> None:
        """One task only, heads of different widths, a class that is missing from validation, or all are."""
        run = trial.resolved("tiny_single")
        if benchmark == "tiny_all" and needs_validation(run.strategy, run.options):
            pytest.skip("this strategy needs validation images")
        learner = trial.learner(benchmark).learn_all()
        for index, task in enumerate(learner.stream.plan.tasks):
            logits, shape = learner.logits(index), (task.num_test, learner.outputs(index))
            require(
                logits.shape == shape and bool(torch.isfinite(logits).all()),
                f"{benchmark}, task {index}: logits of shape {tuple(logits.shape)} must be of {shape}, images and "
                "classes, and finite",
            )

    def test_resumes_to_the_same_weights(self, trial: Trial) -> None:
        """Stopped after the first epoch of every stage, after each of the second task and between tasks, and made anew
        from its state in a file each time, a strategy is at every place what it is without stops, bit by bit."""
        learner = trial.learner("tiny_three")
        if not is_resumable(learner.strategy) or learner.whole_stream:
            pytest.skip("this strategy cannot be resumed")
        known = trial.registry.strategies.find(trial.strategy).factory.options.model_fields
        slow = {name: value for name, value in SLOW.items() if name in known}
        # Restored weights of an epoch before the stop would hide that the later ones differ.
        for more in ({}, {"restore": "last"}) if "restore" in known else ({},):
            tried = replace(trial, options={**trial.options, **slow, **more})
            whole, stopped, stop = _states(tried, stopping=False), _states(tried, stopping=True), "not at all"
            require(
                [*whole] == [*stopped], f"stopped, a run gets to {', '.join(stopped)} instead of {', '.join(whole)}"
            )
            for place, (expected, stops) in whole.items():
                found = difference(expected, stopped[place][0])
                require(
                    found is None,
                    f"a run that was stopped {stop} is not the same {place} as one that was not: {found} differs. Name "
                    "in state_attributes what the strategy remembers beside its model, or return it from "
                    "get_extra_state(); what else a stage changes belongs to the stage's get_extra_state()",
                )
                stop = place if stops else stop

    def test_extends_to_the_same_weights(self, trial: Trial) -> None:
        """Where tasks may be added, a learner of two tasks learns a third one as a learner does that knew of three from
        the start, bit by bit, in every scenario that it can learn; or it says at once why not."""
        options = trial.registry.strategies.find(trial.strategy).factory.options
        infers = issubclass(options, TaskInferenceOptions)
        reasons, scenarios = list[str | None](), SCENARIOS if infers else self._declared(trial)
        for scenario in scenarios:
            more: dict[str, Any] = {"benchmark.stream.input.normalise": "first_task"}
            if scenario not in self._declared(trial):
                more["infer_task"] = "entropy"
            tried = replace(trial, scenario=scenario, options={**trial.options, **more})
            reasons.append(check_extended(tried))
        if told := [reason for reason in dict.fromkeys(reasons) if reason is not None]:
            pytest.skip("; ".join(told))

    def test_model_can_be_made_again(self, trial: Trial) -> None:
        """From its architecture, as JSON holds it, and its weights a new model is made that answers the same."""
        learner, again = trial.learner("tiny_three").learn_all(), trial.learner("tiny_three")
        try:
            again.model.load_architecture(json.loads(json.dumps(learner.model.architecture(), allow_nan=False)))
            again.model.load_state_dict(learner.model.state_dict())
        except Exception as error:
            first = str(error).partition("\n")[0]
            pytest.fail(
                "the model cannot be made again from architecture() and its weights: no run could be resumed, and "
                f"load_model() would fail: {type(error).__name__}: {first}",
            )
        for task in range(learner.tasks):
            require(
                torch.equal(learner.logits(task), again.logits(task)),
                f"task {task}: a model made again from architecture() and its weights answers otherwise",
            )

    def test_cached_features_change_nothing(self, trial: Trial) -> None:
        """With no, little and much memory for outputs of frozen layers it learns the same weights, bit by bit."""
        learners = [trial.learner("tiny_three", feature_cache=budget) for budget in (0, 40_000, None)]
        if not getattr(learners[0].model, "has_frozen_layers", False):
            pytest.skip("this strategy's model asks for no outputs of frozen layers")
        plain, *others = [learner.learn_all().weights() for learner in learners]
        require(
            all(same(plain, weights) for weights in others),
            "the weights depend on --feature-cache: what is cached under a key must be the output of frozen layers in "
            "evaluation mode, and of those that the key names",
        )

    def test_sees_no_later_task_and_no_test_image(self, trial: Trial) -> None:
        """Images of later tasks and all test images may be NaN: the weights do not change by a bit."""
        found = []
        for poisoned in (False, True):
            learner = trial.learner("tiny_three")
            tasks = learner.stream.tasks
            later = [] if learner.whole_stream else [tasks[-1].train, tasks[-1].valid]
            for images in (*later, *(task.test for task in tasks)) if poisoned else ():
                poison(images)
            for task in range(learner.tasks if learner.whole_stream else learner.tasks - 1):
                learner.learn(task)
            found.append(learner.weights())
        require(
            same(*found),
            "the weights depend on images of a later task or on test images: learn from the experience that train() is "
            "given, and from nothing in evaluation",
        )

    def test_trains_in_training_mode(self, trial: Trial) -> None:
        """At every step that moves a part of the model, that part is in training mode."""
        learner = trial.learner("tiny_two")
        with _steps_watched(learner) as asleep:
            learner.learn_all()
        if not asleep:
            pytest.skip("no optimiser of torch moves this strategy's model")
        names = dict.fromkeys(name for step in asleep for name in step)
        require(
            not names,
            f"trained in evaluation mode: {', '.join([*names][:3])}. Dropout is then off, and batch normalisation "
            "learns no statistics: call model.train() after whatever measures",
        )

    def test_does_not_train_on_validation_images(self, trial: Trial) -> None:
        """Validation images may be NaN: weights may be selected otherwise, and stay finite."""

        learner = trial.learner("tiny_single")
        poison(learner.stream.tasks[0].valid)
        learner.learn_all()
        broken = [name for name, tensor in learner.weights().items() if not bool(torch.isfinite(tensor).all())]
        require(not broken, f"validation images reached the weights: {', '.join(broken[:3])} became NaN")

    def test_evaluation_changes_nothing(self, trial: Trial) -> None:
        """Neither weights and buffers, nor what random numbers come next; the second evaluation equals the first."""
        learner = trial.learner("tiny_two").learn_all()
        weights, rows = learner.weights(), learner.matrix.result()
        with RandomState(1).active():
            before = drawn()
            learner.evaluate()
            after = drawn()
        require(same(learner.weights(), weights), "evaluating changed weights or buffers of the model")
        require(before == after, "evaluating drew random numbers from the global generators")
        require(learner.matrix.result() == rows, "a second evaluation gave other accuracies than the first")

    def test_depends_on_the_seed_alone(self, trial: Trial) -> None:
        """The same seed gives the same bits whatever was drawn before; another seed gives other weights."""
        found = [_learned_in_noise(trial, seed, noise).weights() for seed, noise in ((0, 1), (0, 1_000), (1, 1))]
        require(
            same(found[0], found[1]),
            "the weights depend on random numbers drawn elsewhere: draw in stages, or inside "
            "seu_bench.utils.seeding.RandomState(derive_seed(context.seed, purpose)).active()",
        )
        if not any(weight.requires_grad for weight in trial.learner("tiny_two").model.parameters()):
            pytest.skip("no parameter of this strategy's model is trained")
        require(not same(found[0], found[2]), "another seed gives the same weights: use context.seed")

    def test_counts_its_parameters(self, trial: Trial) -> None:
        """Parameters and memory measured after each task match the strategy's state, and lie in the range that ``cost``
        gave."""
        learner = trial.learner("tiny_three")
        for task in range(learner.tasks):
            learner.learn(task)
            if learner.whole_stream and task < learner.tasks - 1:
                continue
            check_sizes(learner, task)
        last = learner.tasks - 1
        used = used_parameters(learner.model, learner.test_images(last)[:2], last)
        missing = [parameter.numel() for parameter in used - set(learner.model.task_module(last).parameters())]
        require(
            not missing,
            f"task_module({last}) lacks {len(missing)} parameters of {sum(missing)} numbers in all that the task's "
            "logits are computed from",
        )

    def test_leaves_a_complete_record(self, trial: Trial, tmp_path: Path) -> None:
        """A run by the runner finishes, fills the accuracy matrix, and passes the images that ``cost`` said."""
        learner = trial.learner("tiny_three")
        record = trial.record("tiny_three", tmp_path)
        tasks = range(learner.tasks)
        require(record.status == "finished", f"the run is {record.status}: {record.error}")
        for task in [learner.tasks - 1] if learner.whole_stream else tasks:
            row = record.accuracy_matrix[task]
            require(
                [value is not None for value in row] == [earlier <= task for earlier in tasks],
                f"row {task} of the accuracy matrix is {row}",
            )
        expected, passed = _passes(learner.cost.stages), _passes(record.stages)
        done = {task for _, task in passed}
        require(
            bool(done) and (learner.whole_stream or done == {*tasks}),
            f"the record has no stage of learning for tasks {[*{*tasks} - done]}: hand context.on_progress on",
        )
        missed = differences(learner.cost, record.stages, 0.0 if trial.exact_passes else TOLERANCE)
        told = "Count every image, by replay() or count_images(); where that cannot be exact, set exact_passes = False"
        require(not missed, f"the forecast is wrong: {'; '.join(missed[:3])}. {told}")
        require(expected == passed or not trial.exact_passes, f"image passes: cost said {expected}, it took {passed}")
        least, took, most = learner.cost.train_flops_min, record.metrics["train_flops"], learner.cost.train_flops
        told = f"operations of learning: cost said {least} to {most}, the run took {took}"
        require(least is None or most is None or (took is not None and least <= took <= most), told)


class FrozenGrowthContract(StrategyContract):
    """For strategies that never change what an earlier task is computed by: forgetting is exactly nothing."""

    def test_earlier_outputs_keep_their_bits(self, trial: Trial) -> None:
        """Logits of a learned task are bit-identical after every later task, and so are its accuracies."""
        learner = trial.learner("tiny_three")
        logits: list[torch.Tensor] = []
        for task in range(learner.tasks):
            learner.learn(task)
            logits.append(learner.logits(task))
            for earlier, before in enumerate(logits[:-1]):
                require(
                    torch.equal(learner.logits(earlier), before),
                    f"learning task {task} changed the logits of task {earlier}: freeze what it is computed by, "
                    "batch normalisation's running statistics too",
                )
        rows = learner.matrix.result()
        for task in range(learner.tasks):
            column = [rows[later][task] for later in range(task, learner.tasks)]
            require(len(set(column)) == 1, f"column {task} of the accuracy matrix is {column} from the diagonal on")
        require(forgetting(rows) == 0.0, f"forgetting is {forgetting(rows)}")


def _check_learned(trial: Trial) -> None:
    learner = trial.learner("tiny_pairs", brief=False).learn_all()
    rows = learner.matrix.result()
    for index, task in enumerate(learner.stream.plan.tasks):
        accuracy = rows[learner.tasks - 1 if learner.whole_stream else index][index]
        require(
            accuracy is not None,
            f"task {index} was evaluated and the accuracy matrix has no entry: hand context.evaluator on",
        )
        bar = above_chance(task.num_test, learner.choices(index))
        require(
            round((accuracy or 0.0) * task.num_test) >= bar,
            f"task {index} ({trial.scenario}-incremental): {accuracy:.2f} of {task.num_test} test images are right "
            f"just after learning it; guessing gives {bar / task.num_test:.2f} once in {1 / BY_CHANCE:.0f} times. Give "
            "options that learn quickly",
        )


def check_extended(trial: Trial) -> str | None:
    """Compare a learner of two tasks that learns a third with one that knew of three; or return why it cannot."""
    benchmark = "tiny_three" if trial.scenario == "domain" else "tiny_unequal"  # where heads can differ in width
    short, made, longer, whole = (trial.learner(benchmark, first_tasks=tasks) for tasks in (2, None, None, None))
    if (reason := needs_whole_stream(short.strategy)) is not None:
        return reason
    short.learn_all()
    late = needs_whole_stream(short.strategy)
    require(late is None, f"needs_whole_stream() says {late!r} when two tasks are learned: say so before the first one")
    state = short.strategy.state_dict()
    own, _ = parse_learner(learner_bytes(state, (), "short", short.run.spec.benchmark))
    place = f"{trial.scenario}-incremental: a learner of two tasks"
    try:
        longer.strategy.load_state_dict(made.strategy.lengthened({**own, "weights": state["weights"]}))
        longer.learn(2)
    except Exception as error:
        pytest.fail(f"{place} cannot learn a third one: {type(error).__name__}: {error}. {_LENGTHENED}")
    whole.learn_all()
    found = difference(*(copy.deepcopy(it.strategy.state_dict()) for it in (whole, longer)))
    told = f"{place} that learns a third one is not what one is that knew of three"
    require(found is None, f"{told}: {found} differs. {_LENGTHENED}")
    for task in range(whole.tasks):
        equal = torch.equal(whole.logits(task), longer.logits(task))
        require(equal, f"{told}: it answers otherwise in task {task}. {_LENGTHENED}")
    expected = {key: passes for key, passes in whole.passes.items() if key[1] == 2}
    require(expected == dict(longer.passes), f"{told}: image passes are {dict(longer.passes)}, and must be {expected}")
    return None


@contextmanager
def _steps_watched(learner: Learner) -> Iterator[list[list[str]]]:
    """Within a ``with`` block, note for each step on the model the modules that it moves in evaluation mode."""
    asleep: list[list[str]] = []

    def look(optimizer: torch.optim.Optimizer, *_: object) -> None:
        groups = (group["params"] for group in optimizer.param_groups)
        moved = {parameter for group in groups for parameter in group if parameter.grad is not None}
        if moved & set(learner.model.parameters()):
            asleep.append([*_asleep(learner.model, moved)])

    handle = register_optimizer_step_pre_hook(look)
    try:
        yield asleep
    finally:
        handle.remove()


def _asleep(model: nn.Module, moved: set[Any]) -> Iterator[str]:
    """Names of modules in evaluation mode that hold a moved parameter, or are dropout beside such modules: in a network
    that is frozen, dropout stays off."""
    for name, module in model.named_modules():
        if any(parameter in moved for parameter in module.parameters(recurse=False)) and not module.training:
            yield name
        if any(parameter in moved for parameter in module.parameters()):
            for part, child in module.named_children():
                if isinstance(child, nn.modules.dropout._DropoutNd) and not child.training:
                    yield f"{name}.{part}" if name else part


class _StoppedError(Exception):
    """A run that was stopped within a task."""


def _states(trial: Trial, *, stopping: bool) -> dict[str, tuple[Any, bool]]:
    """Learn a stream, and at the places where a run is stopped begin again with a new strategy if ``stopping``.

    Returns:
        For each place where a run could be resumed what must be equal of the state, with accuracies between two tasks;
        and whether runs are stopped there.
    """
    found: dict[str, tuple[Any, bool]] = {}
    last: Any = None

    def new() -> Learner:
        learner = trial.learner("tiny_three", brief=False)
        if found:
            learner.strategy.load_state_dict(last)
        learner.strategy.pause = pause
        return learner

    def reach(place: str, stops: bool, **more: Any) -> None:
        nonlocal last
        state = learner.strategy.state_dict()
        last = from_file(state) if stopping and stops else None
        # Times differ, and a stage's own state may have some.
        found[place] = copy.deepcopy({**state, "stage": state["stage"] and state["stage"]["randomness"], **more}), stops

    def pause(stage: Stage[Any]) -> None:
        stops = stage.epoch == 1 or (stage.task == 1 and stage.epoch < SLOW["epochs"])
        reach(
            f"after epoch {stage.epoch} of {stage.name} of task {stage.task}",
            stops,
            image_passes=stage.image_passes,
            curve=[(report.loss, report.accuracy) for report in stage.curve],
        )
        if stopping and stops:
            raise _StoppedError

    learner, task = new(), 0
    while task < learner.tasks:
        try:
            learner.learn(task)
        except _StoppedError:
            learner = new()
            continue
        reach(f"after task {task}", True, accuracies=learner.matrix.result()[task])
        learner, task = new() if stopping else learner, task + 1
    return found


def _learned_in_noise(trial: Trial, seed: int, noise: int) -> Learner:
    """Learn while the global generators stand somewhere else whenever it matters; they are restored afterwards."""
    moments = itertools.count(noise)

    def disturb() -> None:
        moment = next(moments)
        torch.manual_seed(moment)
        np.random.seed(moment)
        random.seed(moment)

    with RandomState(noise).active():
        return trial.learner("tiny_two", seed=seed, disturb=disturb).learn_all()


def _passes(stages: Iterable[Any]) -> Counter[tuple[str, int]]:
    """Images of each stage of learning, by name and task."""
    found: Counter[tuple[str, int]] = Counter()
    for stage in stages:
        found[stage.name, stage.task] += stage.image_passes * (stage.name != EVALUATION)
    return +found
