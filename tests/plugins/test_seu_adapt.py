"""SEU on a pretrained network: scores in closed form, discriminants by an own computation, units that stay."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from seu_bench.data.streams import TaskStream
from seu_bench.testing import Learner, Trial
from seu_bench_adapt.paths import STRENGTHS, Path, best_accuracy
from seu_bench_adapt.seu_adapt import readable

OPTIONS = {"unit": "linear16", "learning_rate": 0.1, "margin": 0.0, "adapted": 2, "epochs": 20}


def test_each_image_is_answered_by_the_others() -> None:
    """Leaving one out in closed form is leaving one out."""
    labels = torch.randint(3, (25,))
    x = torch.randn(25, 4, dtype=torch.float64) + torch.nn.functional.one_hot(labels, 4)
    right = []
    for strength in STRENGTHS:
        ridge = strength * (x @ x.T).diagonal().mean()
        answers = []
        for one in range(len(x)):
            rest = [it for it in range(len(x)) if it != one]
            a, y = x[rest], torch.nn.functional.one_hot(labels[rest], 3).double()
            weight = torch.linalg.solve(a.T @ a + ridge * torch.eye(4), a.T @ y)
            answers.append(int((x[one] @ weight).argmax()))
        right.append(float((torch.tensor(answers) == labels).double().mean()))
    assert best_accuracy(x @ x.T, labels) == pytest.approx(max(right))
    assert 1 / 3 < max(right) < 1


@pytest.mark.parametrize(("width", "read"), [(2000, (0, 1, 2, 3)), (1024, (0, 1, 3)), (90, (1,)), (15, ())])
def test_last_layers_that_fit_are_read(width: int, read: tuple[int, ...]) -> None:
    """A layer that does not fit is passed over, not the end."""
    assert readable((16, 80, 1280, 320), width) == read


def all_of(learner: Learner, split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Images and labels of all tasks."""
    images = [getattr(it, split) for it in learner.stream.tasks]
    found = [it.gather(torch.arange(len(it))) for it in images]
    return torch.cat([x for x, _ in found]), torch.cat([y for _, y in found])


@torch.no_grad()
def test_one_path_is_one_discriminant() -> None:
    """Of all classes, from sums over tasks, and by the strength that most withheld images are answered right with, each
    when its task was learned."""
    with torch.enable_grad():
        learner = Trial("seu_adapt", {"margin": 0.5}, scenario="class").learner("tiny_three").learn_all()
    model, tasks = learner.model, learner.stream.tasks
    assert model.paths == [Path((0, 1, 2), (-1, -1, -1))] and model.path_of == [0, 0, 0]
    (images, labels), (held, wanted) = all_of(learner, "train"), all_of(learner, "valid")
    maps, found, first = torch.cat([images, held]), [], len(tasks[0].train)
    for layer in model.network.encoder.layers:
        maps = layer(maps)
        pooled = maps.mean(dim=(2, 3)).double().numpy()
        pooled = pooled - pooled[:first].mean(axis=0)
        found.append(pooled / np.sqrt((pooled[:first] ** 2).mean()) / np.sqrt(pooled.shape[1] / 12))
    x, z = np.split(np.concatenate(found, axis=1), [len(images)])
    y, right = labels.numpy(), np.zeros(len(STRENGTHS))
    for task in range(3):
        seen = y < 2 * task + 2
        means = np.stack([x[y == label].mean(axis=0) for label in range(2 * task + 2)])
        apart = x[seen] - means[y[seen]]
        within = apart.T @ apart / (len(apart) - len(means))
        answers = []
        for strength in STRENGTHS:
            inverse = np.linalg.inv(within + strength * np.diag(within).mean() * np.eye(len(within)))
            answers.append((means @ inverse, -np.einsum("ci,ij,cj->c", means, inverse, means) / 2))
        own = wanted.numpy() // 2 == task
        right += [((z[own] @ w.T + b).argmax(axis=1) == wanted.numpy()[own]).sum() for w, b in answers]
    assert model.heads[0].right.tolist() == right.tolist() and len(set(right)) > 1
    weight, offsets = answers[len(STRENGTHS) - 1 - right[::-1].argmax()]
    expected = np.concatenate([weight, offsets[:, None]], axis=1)
    assert np.abs(model.heads[0].weight.numpy() - expected).max() < 1e-4 * np.abs(expected).max()


def shuffle_labels(stream: TaskStream) -> None:
    """Give images labels at random, by which one path and another are better by chance."""
    generator = torch.Generator().manual_seed(4)
    for task in stream.tasks:
        for images in (task.train, task.valid):
            images.labels.copy_(images.labels[torch.randperm(len(images), generator=generator)])


@pytest.mark.parametrize("scenario", ["task", "class"])
def test_units_and_paths_stay(scenario: Any) -> None:
    """What a task was learned with has the same bits after later tasks, and so have features of its path; a model made
    again answers the same."""
    learner = Trial("seu_adapt", OPTIONS, scenario=scenario).learner("tiny_unequal", brief=False, change=shuffle_labels)
    model, images = learner.model, learner.test_images(0)
    kept: list[Any] = []
    for task in range(learner.tasks):
        learner.learn(task)
        path = model.paths[model.path_of[task]]
        model.eval()
        kept.append((task, path, {name: it.clone() for name, it in model.units.state_dict().items()}))
        kept[-1] = (*kept[-1], model.features(images, path).detach())
    assert model.units and len(model.paths) > 1
    for task, path, units, features in kept:
        assert model.paths[model.path_of[task]] == path
        assert all(torch.equal(model.units.state_dict()[name], it) for name, it in units.items())
        assert torch.equal(model.features(images, path), features)
    assert not any(it.requires_grad for it in model.parameters())
    again = Trial("seu_adapt", OPTIONS, scenario=scenario).learner("tiny_unequal")
    again.model.load_architecture(json.loads(json.dumps(model.architecture())))
    again.model.load_state_dict(model.state_dict())
    assert all(torch.equal(learner.logits(it), again.logits(it)) for it in range(learner.tasks))
