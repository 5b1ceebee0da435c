"""Both strategies learn from plain Avalanche scripts, depend on the seed alone, and see only what they may."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from support.tiny import (
    all_threads,
    benchmark,
    build,
    class_split,
    class_stream,
    learn,
    one_thread,
    raw_dataset,
    same,
    weights,
)
from support.tried import tried
from torch import Tensor

from seu_bench.config.protocol import ImageLimits
from seu_bench.config.run import Request
from seu_bench.data.dataset import RawDataset, RawSplit
from seu_bench.data.streams import TaskStream, build_stream
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.models import Dropout
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.plugin import Registry
from seu_bench.testing import Trial
from seu_bench.training.loops import TrainingStage
from seu_bench.training.stage import Phase, TaskData
from seu_bench.training.task_inference import TaskInference

setup_module, teardown_module = one_thread, all_threads

both = pytest.mark.parametrize("name", ["seu", "naive"])


#: Enough to learn the textures: what each strategy needs.
LEARNING: dict[str, dict[str, Any]] = {
    "seu": {"channels": 4, "epochs": 6, "batch_size": 8, "searcher__epochs": 1},
    "naive": {"epochs": 6, "batch_size": 8},
}


def stream(**more: Any) -> TaskStream:
    return class_stream([[0, 1], [2, 3, 4]], **{"images": 16, **more})


def misled(split: str) -> TaskStream:
    """The labels of one split turned round: what is learned makes its loss grow, so it would choose early weights."""
    source = class_stream([[0, 1], [2, 3]], images=24)
    for task in source.tasks:
        labels: torch.Tensor = getattr(task, split).labels
        labels.copy_(1 - labels)
    return source


@both
def test_never_selects_on_test(name: str) -> None:
    """Test and training streams among the evaluation streams change nothing: only validation images select."""
    options = {**LEARNING[name], "epochs": 4, **({"genotype": "darts_v1"} if name == "seu" else {})}

    def learned(split: str, streams: list[str] | None) -> dict[str, torch.Tensor]:
        source = misled(split)
        strategy, scenario = build(source, name, **options), source.avalanche()
        chosen = None if streams is None else [scenario.streams[each] for each in streams]
        for experience in scenario.train_stream[:1]:
            strategy.train(experience, eval_streams=chosen)
        return weights(strategy.model)

    unselected = learned("test", None)
    assert same(learned("test", ["test", "train"]), unselected)
    assert same(learned("test", ["test", "valid"]), learned("test", ["valid"]))
    assert not same(learned("valid", ["valid"]), unselected)  # a stream that does select chooses otherwise


@both
@pytest.mark.long
def test_validation_images_select(name: str) -> None:
    """The weights kept are those of the lowest validation loss: poisoned images keep the last epoch's."""
    kept = {}
    for restore in ("best_valid", "last"):
        options = {**LEARNING[name], "epochs": 4, "restore": restore}
        options |= {"genotype": "darts_v1"} if name == "seu" else {}
        usual, poisoned = misled("valid"), misled("valid")
        valid = poisoned.tasks[0].valid
        valid.store[valid.rows] = math.nan
        for source, kind in ((usual, "usual"), (poisoned, "poisoned")):
            kept[restore, kind] = weights(learn(source, build(source, name, **options), tasks=1).model)
    assert same(kept["last", "usual"], kept["last", "poisoned"])
    assert same(kept["last", "usual"], kept["best_valid", "poisoned"])
    assert not same(kept["last", "usual"], kept["best_valid", "usual"])


@pytest.mark.parametrize(("batch_size", "batches"), [(5, 5), (23, 1), (100, 1)])
def test_batches_of_an_epoch_are_numbered(batch_size: int, batches: int) -> None:
    """24 images: a strategy knows which batch of how many it trains on; one image left over is no batch."""
    source = class_stream([[0, 1]], images=16)
    strategy, found = build(source, "naive", epochs=2, batch_size=batch_size), []
    forward = strategy.forward

    def watched() -> torch.Tensor:
        found.append((strategy.batch_number, strategy.batches_per_epoch))
        logits: torch.Tensor = forward()
        return logits

    strategy.forward = watched
    learn(source, strategy)
    assert found == 2 * [(number, batches) for number in range(batches)]


def test_training_in_two_stages() -> None:
    """Each has its own name, seed and length, and its learning rate falls over that: SGDR's cosine at 1/2 of 2 epochs
    is half of the first rate, at 3/4 of 4 epochs 0.146 of it."""
    source, rates, done = stream(), [], []
    strategy: Any = build(source, "naive", backbone="mlp", epochs=4, learning_rate=1.0)
    short = strategy.schedule.model_copy(update={"epochs": 2})

    def phases(task: TaskData) -> list[Phase]:
        return [
            Phase(lambda: TrainingStage(strategy, task, "head", short), lambda _: rates.append(strategy.optimizer)),
            Phase(lambda: TrainingStage(strategy, task), lambda _: rates.append(strategy.optimizer)),
        ]

    strategy.phases = phases
    strategy.pause = lambda stage: done.append((stage.name, stage.epochs, stage.epoch))
    learn(source, strategy, 1)
    assert done == [("head", 2, epoch) for epoch in (1, 2)] + [("training", 4, epoch) for epoch in (1, 2, 3, 4)]
    assert [optimizer.param_groups[0]["lr"] for optimizer in rates] == pytest.approx([0.5, 0.14644661])
    task = TaskData(0, source.tasks[0].train, source.tasks[0].valid)
    stages = [TrainingStage(strategy, task, name) for name in ("training", "head")]
    assert not torch.equal(*(stage.randomness.state_dict()["torch"] for stage in stages))


#: Logits of three images, for two tasks of two and three classes.
LOGITS = (
    torch.tensor([[2.0, 0.0], [0.1, 0.0], [5.0, 5.0]], dtype=torch.float64),
    torch.tensor([[0.0, 0.1, 0.2], [3.0, 0.0, 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64),
)


class Fixed(MultiHeadModel):
    """Answers with given logits."""

    def __init__(self, logits: tuple[Tensor, ...]) -> None:
        super().__init__([part.shape[1] for part in logits])
        self.logits = logits

    def forward_single_task(self, x: Tensor, task_label: int) -> Tensor:
        return self.logits[task_label]


def entropy(logits: list[float]) -> float:
    """Of the softmax, divided by its largest value."""
    weights = [math.exp(value) for value in logits]
    shares = [weight / sum(weights) for weight in weights]
    return -sum(share * math.log(share) for share in shares) / math.log(len(logits))


def test_scores_are_those_computed_by_hand() -> None:
    """Entropy divided by that of guessing, and the logarithm of the sum of exponentials."""
    for logits in LOGITS:
        for row, by_entropy, by_energy in zip(
            logits.tolist(),
            TaskInference("entropy", (2, 3), "class").score(logits).tolist(),
            TaskInference("energy", (2, 3), "class").score(logits).tolist(),
            strict=True,
        ):
            assert by_entropy == pytest.approx(-entropy(row), abs=1e-12)
            assert by_energy == pytest.approx(math.log(sum(map(math.exp, row))), abs=1e-12)


@pytest.mark.parametrize(("certainty", "tasks"), [("entropy", [0, 1, 1]), ("energy", [0, 1, 0])])
def test_the_most_certain_path_answers(certainty: Any, tasks: list[int]) -> None:
    """The third image: two equal logits are uncertain by entropy, and large ones certain by energy."""
    found = TaskInference(certainty, (2, 3), "class")(Fixed(LOGITS), torch.zeros(3, 1), 2)
    assert found.shape == (3, 5)
    lowest = torch.finfo(torch.float64).min
    for image, task in enumerate(tasks):
        parts = [LOGITS[0][image], LOGITS[1][image]]
        parts[1 - task] = torch.full_like(parts[1 - task], lowest)
        assert torch.equal(found[image], torch.cat(parts))


def test_domains_answer_with_shared_classes() -> None:
    """The logits of the path chosen, as they are."""
    logits = (LOGITS[0], torch.tensor([[0.0, 0.1], [0.0, 9.0], [0.0, 1.0]], dtype=torch.float64))
    found = TaskInference("entropy", (2, 2), "domain")(Fixed(logits), torch.zeros(3, 1), 2)
    assert torch.equal(found, torch.stack([logits[0][0], logits[1][1], logits[1][2]]))


@pytest.mark.parametrize("name", ["linear", "independent"])
def test_what_is_learned_is_the_same_as_with_task_labels(name: str) -> None:
    """Task labels are known while a task is learned: the weights are the same, bit by bit."""
    known = tried(name)
    inferring = {**known.options, "infer_task": "entropy"}
    weights = [
        replace(known, options=options, scenario=scenario).learner("tiny_three").learn_all().weights()
        for options, scenario in ((known.options, "task"), (inferring, "class"), (inferring, "domain"))
    ]
    assert same(weights[0], weights[1]) and same(weights[0], weights[2])


def test_all_paths_are_counted() -> None:
    """Multiply-accumulates of an image and image passes of evaluation, in the estimate and as measured."""
    known = tried("independent")
    inferring = replace(known, options={**known.options, "infer_task": "energy"}, scenario="class")
    plain, learner = known.learner("tiny_three").learn_all(), inferring.learner("tiny_three").learn_all()
    path = plain.sizes.macs[0]
    assert plain.sizes.macs == [path] * 3
    assert learner.sizes.macs == list(learner.cost.macs) == [path, 2 * path, 3 * path]
    assert learner.cost.all_passes - learner.cost.image_passes == 20 * (1 + 2 * 2 + 3 * 3)
    assert plain.cost.all_passes - plain.cost.image_passes == 20 * (1 + 2 + 3)
    assert plain.cost.image_passes == learner.cost.image_passes


def twins() -> RawDataset:
    """Four classes, of which the last two look exactly like the first two: only a task label tells them apart."""
    data = raw_dataset([32, 32], [40, 40])

    def twice(split: RawSplit) -> RawSplit:
        images = torch.from_numpy(split.images).repeat(2, 1, 1, 1).numpy()
        return RawSplit(
            images,
            torch.from_numpy(split.labels).repeat(2).add_(torch.arange(2).repeat_interleave(len(split)) * 2).numpy(),
        )

    info = replace(
        data.info, num_classes=4, train_per_class=(32,) * 4, test_per_class=(40,) * 4, num_train=128, num_test=160
    )
    return RawDataset(info, twice(data.train), twice(data.test))


def rights(trial: Trial) -> list[float | None]:
    """Accuracies of both tasks of twins after learning them."""
    data, split = twins(), {**class_split([[0, 1], [2, 3]]), "scenario": trial.scenario}

    def change(stream: Any) -> None:
        made = build_stream(benchmark(split), lambda _: data, ImageLimits(), 0)
        for name, value in vars(made).items():
            object.__setattr__(stream, name, value)

    return trial.learner("tiny_pairs", brief=False, change=change).learn_all().matrix.result()[-1]


@pytest.mark.parametrize("name", ["naive", "replay", "linear", "independent"])
def test_a_task_label_that_would_help_is_not_seen(name: str) -> None:
    """The same image cannot be right in both of two tasks, unless the learner is told which one it is of."""
    known = tried(name)
    both = rights(known)
    assert sum(value or 0.0 for value in both) > 1.2
    options = dict(known.options)
    if name in ("linear", "independent"):
        options["infer_task"] = "entropy"
    both = rights(replace(known, options=options, scenario="class"))
    assert sum(value or 0.0 for value in both) <= 1.0


SMOKE = "benchmark.protocols.smoke.model."
#: Of the AlexNet variant, in the order of its layers.
RATES = [0.2, 0.2, 0.5, 0.5, 0.5]


def resolved(strategy: str, **options: Any) -> ResolvedRun:
    named = {key.replace("protocol_", SMOKE): value for key, value in options.items()}
    return resolve(Registry(), Request(strategy=strategy, protocol="smoke", options=named))


def rates(run: ResolvedRun) -> list[float]:
    """Dropout rates of a new strategy's network."""
    model = run.strategy.build(run.context(run.plan())).model
    if hasattr(model, "expand"):  # it grows with each task
        model.expand(0, "cpu")
    modules = list(model.modules())
    layers = [module.p for module in modules if isinstance(module, Dropout)]
    held = [module.dropout for module in modules if hasattr(module, "dropout")]
    return layers or [rate for value in held for rate in (value if isinstance(value, tuple) else [value])]


@pytest.mark.parametrize("strategy", ["naive", "hat", "independent", "pnn", "ltg"])
@pytest.mark.parametrize("options, factor", [({}, 1.0), ({"protocol_dropout": 0.0}, 0.0), ({"dropout": 0.5}, 0.5)])
def test_dropout_of_every_family_is_scaled(strategy: str, options: dict[str, float], factor: float) -> None:
    assert rates(resolved(strategy, **options)) == pytest.approx([factor * rate for rate in RATES])


@pytest.mark.parametrize("strategy", ["naive", "ewc", "hat", "independent", "replay"])
def test_protocols_backbone_is_that_of_strategies_that_take_any(strategy: str) -> None:
    run = resolved(strategy, protocol_backbone="mlp")
    assert run.spec.options["backbone"] == "mlp" and run.backbone is not None and "two hidden" in run.backbone.summary
    assert "backbone" not in resolved(strategy).spec.options
