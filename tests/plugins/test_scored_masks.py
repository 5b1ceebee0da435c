"""Masks by scores, of wsn and supsup: the choice and its gradient, what a task computes with, what never moves."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from support.commands import Command
from support.tiny import build, class_stream, context, learn, logits_of, registry, same, weights
from torch import Tensor, nn

from seu_bench.data import InputShape
from seu_bench.data.streams import TaskStream
from seu_bench.errors import RunError
from seu_bench.training import build_backbone
from seu_bench.training.stage import StageProgress
from seu_bench.utils.seeding import RandomState, derive_seed
from seu_bench_backbones.networks import mlp, resnet18
from seu_bench_methods.masked import ScoredModel, draw_scores, kept_by_score, masked_by_score

CLASSES = (2, 3, 4)
BACKBONES = {"mlp": lambda: mlp(SAMPLE, 0.04), "resnet18": lambda: resnet18(SAMPLE, 0.1)}
SAMPLE = InputShape("image", (1, 8, 8))
each = pytest.mark.parametrize("backbone", BACKBONES)


@pytest.mark.parametrize("density", [0.001, 0.1, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("shape", [(7, 5), (4, 3, 2, 2), (101, 3)])
def test_the_largest_scores_are_kept(density: float, shape: tuple[int, ...]) -> None:
    scores = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    kept = kept_by_score(scores, density).numpy()
    ranked = np.argsort(-np.abs(scores.numpy()), axis=None)
    assert kept.shape == shape and set(np.flatnonzero(kept)) == set(ranked[: max(1, round(density * scores.numel()))])


def test_gradients_by_hand() -> None:
    """Of the squared error of a linear layer: by the chain rule in NumPy, the mask taken for its scores' magnitude."""
    generator = torch.Generator().manual_seed(2)
    weight, scores = (torch.randn(3, 4, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2))
    x, target = (torch.randn(5, n, generator=generator, dtype=torch.float64) for n in (4, 3))
    loss = ((x @ masked_by_score(weight, scores, 0.5).T - target) ** 2).sum() / 2
    loss.backward()
    w, s, inputs = weight.detach().numpy(), scores.detach().numpy(), x.numpy()
    mask = np.abs(s) >= np.sort(np.abs(s), axis=None)[6]
    upstream = (inputs @ (w * mask).T - target.numpy()).T @ inputs
    assert mask.sum() == 6
    np.testing.assert_allclose(scores.grad, np.sign(s) * w * upstream, rtol=1e-12)
    np.testing.assert_allclose(weight.grad, mask * upstream, rtol=1e-12)


X = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def learned(backbone: str) -> tuple[ScoredModel, list[Tensor]]:
    """A model with random masks of its tasks, whose statistics moved with each, and its answers before their ends."""
    torch.manual_seed(0)
    model, answers = ScoredModel(*BACKBONES[backbone](), CLASSES, 0.3), list[Tensor]()
    for task in range(3):
        model.begin(task)
        model.scores = list(draw_scores(model.weights()))
        model.train()(torch.randn(6, 1, 8, 8) * (task + 1), task)
        answers.append(model.eval()(X, task))
        model.finish()
    with pytest.raises(RunError, match="task 2 cannot follow 3"):
        model.begin(2)
    return model, answers


@each
def test_a_task_computes_with_its_mask_alone(backbone: str) -> None:
    """As a plain network whose other weights are 0 and whose statistics are the task's, bit by bit."""
    model, answers = learned(backbone)
    saved = ScoredModel(*BACKBONES[backbone](), CLASSES, 0.3)
    saved.load_architecture(model.architecture())
    saved.load_state_dict(model.state_dict())
    for task, logits in enumerate(answers):
        expected = [max(1, round(0.3 * weight.numel())) for weight in model.weights()]
        assert [int(mask.sum()) for mask in model.kept_weights(task, task)] == expected
        alone = model.alone(task).eval()
        for weight, own, kept in zip(alone.weights(), model.weights(), model.mask_of(task), strict=True):
            assert torch.equal(weight, own * kept)
        assert torch.equal(logits, model(X, task)) and torch.equal(logits, saved.eval()(X, task))
        assert torch.equal(logits, alone(X, task)) and torch.equal(logits, alone.heads[task](alone.backbone(X)))
    assert model.mask_bits == 3 * sum(weight.numel() for weight in model.weights())
    assert model.masks.shape == (3, math.ceil(model.mask_bits / 3 / 8))


MLP: dict[str, Any] = {"backbone": "mlp", "width": 0.04, "epochs": 3, "batch_size": 8, "learning_rate": 0.01}
RESNET: dict[str, Any] = {**MLP, "backbone": "resnet18", "width": 0.1}
each_learning = pytest.mark.parametrize("options", [MLP, RESNET], ids=["mlp", "resnet18"])


def stream() -> TaskStream:
    return class_stream([[0, 1], [2, 3, 4], [5, 6]], images=16)


@each_learning
@pytest.mark.parametrize("strategy", ["wsn", "supsup"])
def test_nothing_that_a_task_needs_moves(strategy: str, options: dict[str, Any]) -> None:
    """Weights in earlier masks keep their bits, with weight decay, and logits of earlier tasks theirs."""
    source = stream()
    method, scenario = build(source, strategy, **options, weight_decay=0.05), source.avalanche()
    model: ScoredModel = method.model
    begun = weights(model.backbone)
    kept: list[list[Tensor]] = []
    logits: list[Tensor] = []
    for task, experience in enumerate(scenario.train_stream):
        free = model.free()
        before = [weight.detach().clone() for weight in model.weights()]
        method.train(experience, eval_streams=[scenario.streams["valid"]])
        changed = [weight != old for weight, old in zip(model.weights(), before, strict=True)]
        assert not any(bool((it & ~part).any()) for it, part in zip(changed, free, strict=True))
        assert any(bool(it.any()) for it in changed) == (strategy == "wsn")
        for earlier in range(task):
            pairs = zip(model.weights(), model.mask_of(earlier), kept[earlier], strict=True)
            assert all(torch.equal(weight[mask], values) for weight, mask, values in pairs)
            assert torch.equal(logits_of(model, source, earlier), logits[earlier])
        kept.append([weight[mask].detach() for weight, mask in zip(model.weights(), model.mask_of(task), strict=True)])
        logits.append(logits_of(model, source, task))
    shared = [bool((a & b).any()) for a, b in zip(model.mask_of(0), model.mask_of(2), strict=True)]
    assert any(shared), "masks may share weights"
    if strategy == "supsup":
        frozen = {name: it for name, it in begun.items() if name in dict(model.backbone.named_parameters())}
        assert same(frozen, {name: weights(model.backbone)[name] for name in frozen})


def test_supsup_computes_with_signed_constants_of_the_seed() -> None:
    """Signs are those of the backbone that ``naive`` begins with; heads alone are trained parameters."""
    source = stream()
    method = build(source, "supsup", **RESNET)
    learn(source, method, tasks=1)
    with RandomState(derive_seed(method.seed, "model")).active():
        drawn = dict(build_backbone(context(source.plan, "supsup", RESNET))[0].named_parameters())
    for name, parameter in method.model.backbone.named_parameters():
        if name in method.model.names:
            inputs = math.prod(parameter.shape[1:])
            assert torch.equal(parameter, drawn[name].sign() * (2 / inputs) ** 0.5)
        else:
            assert torch.equal(parameter, torch.full_like(parameter, float(name.endswith("weight"))))
    assert [name for name, it in method.model.named_parameters() if it.requires_grad] == [
        f"heads.{task}.{part}" for task in range(3) for part in ("weight", "bias")
    ]


def test_scores_go_on_in_wsn_and_begin_anew_in_supsup() -> None:
    source = stream()
    for strategy in ("wsn", "supsup"):
        method, seen = build(source, strategy, **MLP), list[list[Tensor]]()
        begin = method.scores_of

        def noted(task: Any, begin: Any = begin, seen: Any = seen) -> nn.ParameterList:
            scores: nn.ParameterList = begin(task)
            seen.append([it.detach().clone() for it in scores])
            return scores

        method.scores_of = noted
        learn(source, method, tasks=2)
        assert not torch.equal(seen[0][0], seen[1][0])
        if strategy == "wsn":
            assert sum(map(Tensor.numel, method.scores)) == method.model.count
            bound = 1 / math.sqrt(64)  # of first scores, which training leaves
            assert seen[0][0].abs().max() <= bound < seen[1][0].abs().max()
            continue
        assert seen[1][0].abs().max() <= 1 / math.sqrt(64)
        assert "scores" not in method.kept()


@pytest.mark.parametrize("strategy", ["wsn", "supsup"])
def test_forecast_is_exact(strategy: str) -> None:
    """Passes, operations and bytes of each stage, on a network with batch normalisation."""
    source = stream()
    ended: list[StageProgress] = []
    method = build(source, strategy, **RESNET, on_progress=lambda it: ended.append(it) if it.done else None)
    learn(source, method, tasks=3)
    cost = registry().strategies.find(strategy).factory.cost(context(source.plan, strategy, RESNET))
    told = [(it.name, it.task, it.image_passes, it.flops) for it in cost.stages if it.name != "evaluation"]
    assert told == [(it.stage, it.task, it.image_passes, it.flops) for it in ended]
    assert cost.mask_bits[-1] == method.model.mask_bits


@pytest.mark.long
def test_cost(command: Command) -> None:
    """Beside ``naive``: a bit for each weight and task, and for wsn a score of 4 bytes for each weight."""
    asked = ("--benchmark", "split_cifar10", "--protocol", "paper", "--format", "json", "--no-time")
    naive = json.loads(command("cost", "--strategy", "naive", *asked).out)
    count = 27 * 64 + 9 * 64 * 128 + 9 * 128 * 256 + 4096 * 2048 + 2048 * 2048
    for strategy, scores in (("wsn", 4 * count), ("supsup", 0)):
        document = json.loads(command("cost", "--strategy", strategy, *asked).out)
        assert document["mask_bits"] == [count * task for task in range(1, 6)]
        for name in ("params_total", "macs", "train_flops"):
            assert document[name] == naive[name]
        kept = [kept + scores + task * -(-count // 8) for task, kept in enumerate(naive["memory_bytes"], start=1)]
        assert document["memory_bytes"] == kept
