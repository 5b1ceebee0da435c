"""The arithmetic of gates, beside direct computations in float64 and by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from seu_bench_methods.hat import GatedModel, compensated, passing, scale_of, used_anew


def doubles(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def tiny_model() -> GatedModel:
    """Two layers of 3 and 2 units on 4 pixels, two tasks of two classes, in float64."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2), nn.ReLU())
    return GatedModel(backbone, 2, (2, 2), 400.0).double()


# --- the factor within the gates ----------------------------------------------------------------------------------


def test_scale_grows_linearly_within_an_epoch() -> None:
    """From 1 / 400 in the first batch to 400 in the last."""
    found = [scale_of(batch, 5, 400.0) for batch in range(5)]
    step = (400 - 1 / 400) / 4
    assert found == pytest.approx([1 / 400 + step * batch for batch in range(5)], rel=1e-12)
    assert (found[0], found[-1]) == (1 / 400, 400.0)


# --- gates ----------------------------------------------------------------------------------------------------------


def test_logits_are_those_of_a_direct_computation() -> None:
    """``head(g2 * relu(W2 (g1 * relu(W1 x + b1)) + b2))``, each task by its own gates, in evaluation at the largest
    factor and in training at the batch's."""
    model = tiny_model()
    x = torch.randn(6, 1, 2, 2, dtype=torch.float64)
    first, second = model.backbone[1], model.backbone[3]
    for task in range(2):
        for training, scale in ((False, 400.0), (True, 1.7)):
            model.train(training)
            model.scale = 1.7
            one, two = (1 / (1 + torch.exp(-scale * e)) for e in model.embeddings[task])
            hidden = torch.relu(x.flatten(1) @ first.weight.T + first.bias) * one
            hidden = torch.relu(hidden @ second.weight.T + second.bias) * two
            expected = hidden @ model.heads[task].weight.T + model.heads[task].bias
            assert torch.allclose(model.forward_single_task(x, task), expected, rtol=0, atol=1e-9)
    assert not torch.allclose(*(model.forward_single_task(x, task) for task in range(2)))


def test_gate_of_a_channel_holds_for_all_of_its_pixels() -> None:
    """A closed channel of a convolution is silent at each pixel, also where its map is flattened."""
    backbone = nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 3), nn.ReLU()
    )
    model = GatedModel(backbone, 3, (2,), 400.0).eval()
    with torch.no_grad():
        for embedding in model.embeddings_of(0):
            embedding.fill_(6.0)
        model.embeddings_of(0)[0][1] = -6.0
        x = torch.randn(5, 1, 4, 4)
        before = model.forward_single_task(x, 0)
        backbone[0].weight[1] += 1.0  # of the closed channel
        backbone[4].weight[:, 4:] += 1.0  # what reads it
        assert torch.equal(model.forward_single_task(x, 0), before)
        backbone[0].weight[0] += 1.0
        assert not torch.equal(model.forward_single_task(x, 0), before)


# --- gradients ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1 / 400, 1.0, 20.0])
def test_compensation_is_the_direct_formula(scale: float) -> None:
    """``q' = s_max [cosh(s e) + 1] / (s [cosh(e) + 1]) q`` (Serra et al., section 2.5), to 1e-9 of it."""
    embedding = doubles(-2.0, -0.4, 0.0, 0.3, 1.9)
    gradient = doubles(0.5, -1.0, 2.0, 0.01, 3.0)
    for place in range(5):
        e, q = float(embedding[place]), float(gradient[place])
        expected = 400 * (math.cosh(scale * e) + 1) / (scale * (math.cosh(e) + 1)) * q
        assert float(compensated(gradient, embedding, scale, 400.0)[place]) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("scale", [1 / 400, 1.0, 5.0])
def test_compensation_undoes_the_slope_of_the_gate(scale: float) -> None:
    """The gradient through ``sigmoid(s e)`` becomes 400 times the one through ``sigmoid(e)``, by autograd."""
    embedding = doubles(-2.0, -0.4, 0.0, 0.3, 1.9).requires_grad_()
    (steep,) = torch.autograd.grad(torch.sigmoid(scale * embedding).sum(), embedding)
    (plain,) = torch.autograd.grad(torch.sigmoid(embedding).sum(), embedding)
    found = compensated(steep, embedding.detach(), scale, 400.0)
    assert torch.allclose(found, 400 * plain, rtol=1e-9, atol=0)


def test_passing_by_hand() -> None:
    """``1 - min(unit, input)`` for each weight; the first layer's by its units alone."""
    used, inputs = doubles(1.0, 0.25), doubles(1.0, 0.5, 0.0)
    assert passing(used, None, (2, 5)).tolist() == [[0.0], [0.75]]
    assert passing(used, inputs, (2, 3)).tolist() == [[0.0, 0.5, 1.0], [0.75, 0.75, 1.0]]


def test_passing_of_convolutions_and_flattened_maps() -> None:
    """One factor for all numbers of a kernel; a flattened channel's for each of its pixels, channels first."""
    used, inputs = doubles(1.0, 0.25), doubles(0.5, 0.0)
    assert passing(used, None, (2, 1, 3, 3)).shape == (2, 1, 1, 1)
    kernel = passing(used, inputs, (2, 2, 3, 3))
    assert kernel.shape == (2, 2, 1, 1)
    assert kernel.flatten(1).tolist() == [[0.5, 1.0], [0.75, 1.0]]
    assert passing(used, inputs, (2, 6), 3).tolist() == [[0.5] * 3 + [1.0] * 3, [0.75] * 3 + [1.0] * 3]


# --- the penalty ----------------------------------------------------------------------------------------------------


def test_penalty_by_hand() -> None:
    """Units that earlier tasks use are free of charge, those used in part cost the rest."""
    gates, used = [doubles(1.0, 0.5), doubles(0.25, 1.0)], [doubles(1.0, 0.0), doubles(0.5, 0.0)]
    expected = (1.0 * 0 + 0.5 * 1 + 0.25 * 0.5 + 1.0 * 1) / (0 + 1 + 0.5 + 1)
    assert float(used_anew(gates, used)) == pytest.approx(expected, abs=1e-12)


def test_penalty_without_free_units_is_zero() -> None:
    """No 0 / 0, which would be the end of the training; nor in the gradient."""
    gate = torch.tensor([0.5, 1.0], requires_grad=True)
    penalty = used_anew([gate], [torch.ones(2)])
    penalty.backward()
    assert float(penalty.detach()) == 0.0
    assert gate.grad is not None and gate.grad.tolist() == [0.0, 0.0]
