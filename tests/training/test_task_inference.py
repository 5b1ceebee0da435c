"""Answers without a task label: certainty computed directly, what is learned, and what it costs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from support.tiny import benchmark, class_split, raw_dataset
from support.tried import tried
from torch import Tensor

from seu_bench.config.protocol import ImageLimits
from seu_bench.data.dataset import RawDataset, RawSplit
from seu_bench.data.streams import build_stream
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.testing import Trial
from seu_bench.testing.trial import same
from seu_bench.training.task_inference import TaskInference

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


def test_tasks_not_learned_do_not_answer() -> None:
    """They have no path."""
    found = TaskInference("entropy", (2, 3), "class")(Fixed(LOGITS), torch.zeros(3, 1), 1)
    assert torch.equal(found, LOGITS[0])


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
