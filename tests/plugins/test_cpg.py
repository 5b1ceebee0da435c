"""CPG's weights and masks: what is picked, pruned and grown, and that no earlier task changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.tiny import CPU, build, class_stream, context, learn, logits_of, registry
from torch import Tensor, nn

from seu_bench.data import InputShape
from seu_bench.data.streams import TaskStream
from seu_bench.errors import RequestError
from seu_bench_backbones import networks
from seu_bench_methods.cpg import SPARSITIES, CompactingStage, Cpg, pruned_share
from seu_bench_methods.cpg_network import SCORE, GrownModel, check_leading, picked

IMAGES = InputShape("image", (3, 8, 8))
MLP: dict[str, Any] = {"backbone": "mlp", "width": 0.04, "epochs": 4, "batch_size": 8, "learning_rate": 0.1}
RESNET: dict[str, Any] = {"backbone": "resnet18", "width": 0.2, "epochs": 2, "batch_size": 8, "learning_rate": 0.05}
DECAY: dict[str, Any] = {"momentum": 0.9, "weight_decay": 0.05}


def model(backbone: str = "mlp", classes: tuple[int, ...] = (2, 3, 4)) -> GrownModel:
    """A model that has learned nothing; a growth adds half of the width."""
    torch.manual_seed(0)
    return GrownModel(lambda growth: getattr(networks, backbone)(IMAGES, 0.1 * (1 + growth / 2)), classes)


def learned(grown: GrownModel, fraction: float) -> None:
    """Learn the next task, without images: free weights and scores are drawn, and a fraction of the former pruned."""
    task = grown.learned
    grown.begin(task)
    grown.pick(task)
    with torch.no_grad():
        for weight, free in zip(grown.weights, grown.free(task), strict=True):
            weight.copy_(torch.where(free, torch.randn_like(weight), weight))
        for scores in grown.scores:
            scores.copy_(torch.rand_like(scores) * 2 * SCORE)
    grown.choose()
    grown.compact(task)
    grown.prune(grown.free(task), fraction)
    grown.finish()


def stream() -> TaskStream:
    return class_stream([[0, 1], [2, 3, 4], [5, 6]], images=16)


def growing(monkeypatch: pytest.MonkeyPatch, *tasks: int) -> None:
    """Let no network be good enough for some tasks, so that these grow."""
    told = Cpg._set_goal

    def set_goal(strategy: Cpg, accuracy: float) -> None:
        told(strategy, 2.0 if strategy.model.learned in tasks else 0.0)

    monkeypatch.setattr(Cpg, "_set_goal", set_goal)


def test_schedule_of_pruning() -> None:
    """Steep at first: after half of the steps seven eighths of the way are done."""
    assert [pruned_share(0.2, 1.0, step, 4) for step in range(5)] == pytest.approx(
        [0.2, 1.0 - 0.8 * 27 / 64, 0.9, 1.0 - 0.8 / 64, 1.0]
    )


def test_the_mask_learns_by_the_gradient_of_what_it_masks() -> None:
    """As if the mask itself were real: the weight times the gradient of the masked weight, where it can be picked."""
    grown = model()
    learned(grown, 0.5)
    grown.begin(1)
    grown.pick(1)
    with torch.no_grad():
        grown.scores[0].copy_(torch.rand_like(grown.scores[0]) * 2 * SCORE)
    x = torch.randn(4, *IMAGES.shape)
    grown.forward_single_task(x, 1).square().sum().backward()
    first, scores, free = grown.weights[0], grown.scores[0], grown.free(1)[0]
    mask = (scores > 0.005).float()
    assert torch.equal(picked(scores), mask) and 0 < float(mask.mean()) < 1
    plain = nn.Parameter(torch.where(free, first, first * mask).detach())
    part = grown.part(1)
    biases = [it.detach() for it in part.backbone.parameters()]
    hidden = torch.relu(torch.nn.functional.linear(x.flatten(1), plain, biases[0]))
    out = part.head(torch.relu(torch.nn.functional.linear(hidden, grown.weights[1].detach(), biases[1])))
    out.square().sum().backward()
    assert scores.grad is not None and plain.grad is not None and scores.grad.any()
    assert torch.allclose(scores.grad, torch.where(free, 0.0, plain.grad * first), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("backbone", ["mlp", "alexnet", "resnet18"])
def test_weights_are_shared_out(backbone: str) -> None:
    """Each task keeps the largest of those that were free, so many as the fraction says, picks among the earlier ones
    alone, and has a bit for each weight of its width; also where it grew."""
    grown, owned, bits = model(backbone), list[list[Tensor]](), 0
    for task in range(3):
        if task == 2:
            grown.begin(2)
            grown.grow(2)
        free, before = grown.free(task), [weight.detach().clone() for weight in grown.weights]
        learned(grown, 0.75)
        bits += sum(weight.numel() for weight in grown.weights)
        assert grown.mask_bits == bits and len(grown.packed_masks()) == task + 1
        assert grown.packed_masks()[task].numel() == -(-sum(weight.numel() for weight in grown.weights) // 8)
        kept = [was & ~now for was, now in zip(free, grown.free(task + 1), strict=True)]
        for own, room in zip(kept, free, strict=True):
            count = int(room.sum())
            assert int(own.sum()) == max(1, count - round(0.75 * count))
        for weight, own, room, old in zip(grown.weights, kept, free, before, strict=True):
            assert not weight[room & ~own].any() and weight[own].all()
            assert torch.equal(weight[~room], old[~room])
        for taken, own, room in zip(grown.part(task).taken(), kept, free, strict=True):
            assert bool((taken & own).sum() == own.sum()) and not (taken & room & ~own).any()
        owned.append(kept)
    taken = torch.cat([it.flatten() for it in grown.part(1).taken()])
    earlier = torch.cat([it.flatten() for it in owned[0]])
    assert 0 < int((taken & earlier).sum()) < int(earlier.sum())


def test_the_smallest_are_pruned() -> None:
    grown = model()
    grown.begin(0)
    grown.pick(0)
    grown.choose()
    sizes = [weight.detach().abs().flatten().sort().values for weight in grown.weights]
    for share in (0.3, 0.8):
        grown.prune(grown.free(0), share)
        for weight, taken, values in zip(grown.weights, grown.taken, sizes, strict=True):
            cut = values[round(share * len(values))]
            assert torch.equal(taken, weight.detach().abs() >= cut)


@pytest.mark.parametrize("backbone", ["alexnet", "conv4", "mlp", "simple_mlp", "resnet18", "resnet18_even", "resnet32"])
def test_narrow_networks_are_leading_blocks(backbone: str) -> None:
    """A wider network of ours, 0 outside of the block, computes the narrower one's features, and those first."""
    narrow, features = getattr(networks, backbone)(IMAGES, 0.2)
    wide, _ = getattr(networks, backbone)(IMAGES, 0.3)
    check_leading(narrow.state_dict(), wide.state_dict())
    block = dict(narrow.state_dict())
    for name, tensor in wide.state_dict().items():
        if tensor.dim():
            tensor.zero_() if tensor.dim() > 1 or name.endswith("bias") else None
            tensor[tuple(map(slice, block[name].shape))] = block[name]
    x = torch.randn(2, *IMAGES.shape)
    with torch.no_grad():
        expected, found = narrow.eval()(x), wide.eval()(x)
    assert torch.allclose(found[:, :features], expected, rtol=1e-4, atol=1e-6)
    assert expected.any()


def test_others_are_refused() -> None:
    with pytest.raises(RequestError, match=r"no leading blocks(.|\n)*max_size=1"):
        check_leading(nn.Linear(3, 2).state_dict(), nn.Linear(2, 3).state_dict())
    with pytest.raises(RequestError, match="has none"):
        build(stream(), "cpg", backbone="linear")


@pytest.mark.parametrize("options", [MLP, RESNET], ids=["mlp", "resnet18"])
def test_earlier_tasks_keep_their_bits(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a later task grows or not, with momentum and weight decay; and the network is then as large as it can be
    forecast, to the bit of a mask."""
    growing(monkeypatch, 1)
    source = stream()
    strategy, scenario = build(source, "cpg", **options, **DECAY), source.avalanche()
    logits: list[Tensor] = []
    for task, experience in enumerate(scenario.train_stream):
        strategy.train(experience, eval_streams=[scenario.streams["valid"]])
        for earlier, before in enumerate(logits):
            assert torch.equal(logits_of(strategy.model, source, earlier), before)
        logits.append(logits_of(strategy.model, source, task))
        assert torch.allclose(logits_of(strategy.model.alone(task), source, task), logits[task], atol=1e-5)
    assert strategy.model.architecture() == {"growths": [0, 1, 1], "learned": 3}
    cost = registry().strategies.find("cpg").factory.cost(context(source.plan, "cpg", options, device=CPU))
    assert sum(it.numel() for it in strategy.model.parameters()) == cost.params_total[2] > cost.params_total_min[2]
    assert strategy.model.mask_bits == cost.mask_bits[2] > cost.mask_bits_min[2]


def test_a_growth_begins_anew() -> None:
    """With what earlier tasks have and zeros beside, but for weights that are added; biases are the task's before."""
    grown = model("resnet18")
    learned(grown, 0.5)
    grown.begin(1)
    before = [weight.detach().clone() for weight in grown.weights]
    shared = {name: it.clone() for name, it in grown.part(0).backbone.state_dict().items()}
    with torch.no_grad():
        for it in (*grown.weights, *grown.part(1).parameters()):
            it.add_(1.0)
        for weight, old, free in zip(grown.weights, before, grown.free(1), strict=True):
            weight.copy_(torch.where(free, weight, old))
    grown.grow(1)
    for weight, old in zip(grown.weights, before, strict=True):
        inner = torch.zeros_like(weight, dtype=torch.bool)
        inner[tuple(map(slice, old.shape))] = True
        assert torch.equal(weight[inner].view(old.shape), old)
        assert weight[~inner].all() and weight.numel() > old.numel()
    for name, tensor in grown.part(1).backbone.state_dict().items():
        assert torch.equal(tensor[tuple(map(slice, shared[name].shape))], shared[name])


@pytest.mark.parametrize(("margin", "kept"), [(1.0, SPARSITIES[-1]), (0.0, 0.3), (0.0, 0.0)])
def test_compacting_keeps_the_sparsest_good_enough(margin: float, kept: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where one in between was not."""
    if not margin:
        accuracies = iter([0.0, 0.0, 1.0 if kept else 0.0, *[0.0] * 7])
        monkeypatch.setattr(CompactingStage, "accuracy", lambda _: next(accuracies))
    strategy = learn(stream(), build(stream(), "cpg", **MLP, goal_margin=margin), tasks=1)
    for free in strategy.model.free(1):
        assert int(free.sum()) == round(kept * free.numel())


def test_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network alone from the second task on, trainings until one is good enough, ten sparsities."""
    growing(monkeypatch, 2)
    ended: list[Any] = []
    strategy = build(stream(), "cpg", **MLP, on_progress=lambda it: ended.append(it) if it.done else None)
    learn(stream(), strategy)
    passed = [(it.task, it.stage, it.image_passes) for it in ended if it.image_passes]
    valid = [len(task.valid) for task in stream().tasks if task.valid]
    train = [len(task.train) for task in stream().tasks]
    one = [4 * train[task] + 5 * valid[task] for task in range(3)]
    assert passed == [
        (0, "picking", one[0]),
        (0, "compacting", 10 * (train[0] + valid[0])),
        *((1, name, one[1]) for name in ("individual", "picking")),
        (1, "compacting", 10 * (train[1] + valid[1])),
        *((2, name, one[2]) for name in ("individual", "picking", "growing_1")),
        (2, "compacting", 10 * (train[2] + valid[2])),
    ]
