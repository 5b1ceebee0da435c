"""Methods with exemplars and a teacher: their formulas against direct computations on tiny runs, what they pass and
keep."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from support.tiny import benchmark, build, learn, raw_dataset
from torch import Tensor

import seu_bench_methods.bic
from seu_bench.config.protocol import ImageLimits
from seu_bench.data.streams import build_stream
from seu_bench.errors import RequestError
from seu_bench.testing import Trial
from seu_bench.testing.streams import class_split
from seu_bench.testing.trial import Learner

Array = NDArray[np.float64]


def learner(name: str, **options: Any) -> Learner:
    """One of them on three tiny tasks of two classes."""
    given = {"backbone": "mlp", "memory": 18, "learning_rate": 0.05, **options}
    return Trial(name, given, scenario="class").learner("tiny_three")


def array(tensor: Tensor) -> Array:
    return tensor.detach().double().numpy()


def log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def cross_entropy(logits: Array, labels: Array) -> float:
    return float(-log_softmax(logits)[np.arange(len(labels)), labels.astype(int)].mean())


def unit(rows: Array) -> Array:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def cosines(features: Array, embeddings: Array) -> Array:
    """One by one."""
    return np.array([[f @ w / np.linalg.norm(f) / np.linalg.norm(w) for w in embeddings] for f in features])


def watched_losses(known: Learner, expected: Any) -> list[tuple[float, float]]:
    """Pairs of the loss of each batch from now on, and of what ``expected(x, y)`` says."""
    pairs, own = [], type(known.strategy).batch_loss.__get__(known.strategy)

    def watched(x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        loss: Tensor = own(x, y, task, logits)
        pairs.append((float(loss.detach()), float(expected(x, array(y)))))
        return loss

    known.strategy.batch_loss = watched
    return pairs


@pytest.mark.parametrize("name", ["wa", "bic"])
def test_distillation(name: str) -> None:
    """In the third task, where both have changed their logits of the second one's classes."""
    known = learner(name)
    model, pairs = known.model, np.array([[1.0] * 6, [0.0] * 6])
    for task in range(3):
        before = copy.deepcopy(model.backbone).eval()
        state = {key: value.clone() for key, value in model.state_dict().items()}
        if name == "bic":
            pairs = array(state["pairs"])

        def logits_of(backbone: Any, weights: Any, x: Tensor, count: int, pairs: Array = pairs) -> Array:
            rows, shift = array(weights["heads.0.weight"])[:count], array(weights["heads.0.bias"])[:count]
            return np.asarray((array(backbone(x)) @ rows.T + shift) * pairs[0, :count] + pairs[1, :count])

        def expected(
            x: Tensor,
            y: Array,
            old: int = 2 * task,
            before: Any = before,
            state: Any = state,
            logits_of: Any = logits_of,
        ) -> float:
            now = logits_of(model.backbone, model.state_dict(), x, old + 2)
            if not old:
                return cross_entropy(now, y)
            taught = np.exp(log_softmax(logits_of(before, state, x, old) / 2))
            distance = -(taught * log_softmax(now[:, :old] / 2)).sum(axis=1).mean()
            return float(2 * cross_entropy(now, y) + old * distance) / (old + 2)

        found = watched_losses(known, expected)
        known.learn(task)
        assert found and np.allclose(*zip(*found, strict=True), rtol=1e-4)
    if name == "bic":
        assert not np.allclose(pairs[:, 2:4], [[1, 1], [0, 0]])


def test_aligned_rows() -> None:
    """The new rows' mean length is that of the old ones, which stay; no weight is negative."""
    known = learner("wa")
    head = known.model.heads[0]
    for task in range(3):
        trained: list[Array] = []
        known.strategy.pause = lambda stage, trained=trained: trained.append(array(head.weight).copy())
        known.learn(task)
        old, rows, after = 2 * task, trained[-1][: 2 * task + 2], array(head.weight)[: 2 * task + 2]
        assert (rows >= 0).all()
        lengths = [float(np.sqrt((row**2).sum())) for row in rows]
        factor = np.mean(lengths[:old]) / np.mean(lengths[old:]) if old else 1.0
        assert not old or abs(factor - 1) > 1e-3
        np.testing.assert_allclose(after, np.concatenate([rows[:old], factor * rows[old:]]), rtol=1e-5)


def test_bias_is_corrected_on_images_not_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the pair that scipy finds to be the best on as many images of each class; answers have it."""
    known, fits, seen = learner("bic", held_out=0.3), [], list[Tensor]()
    fit, loss = seu_bench_methods.bic.fitted_pair, known.strategy.batch_loss

    def watched(logits: Tensor, labels: Tensor, old: int) -> Tensor:
        fits.append((array(logits), array(labels), old, array(fit(logits, labels, old))))
        return fit(logits, labels, old)

    def noted(x: Tensor, *rest: Any) -> Tensor:
        seen.append(x)
        found: Tensor = loss(x, *rest)
        return found

    monkeypatch.setattr(seu_bench_methods.bic, "fitted_pair", watched)
    known.strategy.batch_loss, predict = noted, known.strategy.predict
    known.learn(0)
    assert not fits
    for task in (1, 2):
        seen.clear()
        held: list[Tensor] = []
        known.strategy.predict = lambda x, task, held=held: (held.append(x), predict(x, task))[1]
        known.learn(task)
        logits, labels, old, pair = fits[-1]
        # Of 9 and of 4 exemplars of each class.
        assert old == 2 * task and np.bincount(labels.astype(int)).tolist() == [{1: 2, 2: 1}[task]] * (old + 2)
        shown = {it.numpy().tobytes() for it in torch.cat(seen)}
        assert len(torch.cat(held)) == len(labels)
        assert not shown & {it.numpy().tobytes() for it in torch.cat(held)}

        def total(pair: Array, logits: Array = logits, labels: Array = labels, old: int = old) -> float:
            new = pair[0] * logits[:, old:] + pair[1]
            penalty = 1e-4 * ((pair[0] - 1) ** 2 + pair[1] ** 2)
            return float(cross_entropy(np.hstack([logits[:, :old], new]), labels) + penalty)

        best = minimize(
            total, [1.0, 0.0], method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-12, "maxiter": 5000}
        )
        assert total(pair) == pytest.approx(best.fun, rel=1e-5) and best.fun < total(np.array([1.0, 0.0])) - 1e-3
        np.testing.assert_allclose(pair, best.x, rtol=2e-2, atol=2e-2)
        pairs = array(known.model.pairs)
        np.testing.assert_allclose(pairs[:, old : old + 2], np.stack([pair, pair], axis=1), rtol=1e-6)
    images, model = known.test_images(0), known.model.eval()
    raw = array(model.heads[0](model.backbone(images)))
    np.testing.assert_allclose(array(model(images, 0)), raw * pairs[0] + pairs[1], rtol=1e-4, atol=1e-5)


def test_lucir_losses_and_logits() -> None:
    """Cosines one by one; the three terms of each batch; embeddings of old classes stay, those of new ones begin as
    mean features."""
    known = learner("lucir", less_forget=3.0)
    model, strategy = known.model, known.strategy
    head = model.heads[0]

    def embeddings() -> Array:
        return np.concatenate([array(part.weight) for part in head.begun])

    for task in range(3):
        before, old = copy.deepcopy(model.backbone).eval(), 2 * task
        frozen = embeddings() if task else np.zeros((0, model.features))
        begins: list[Array] = []
        make_teacher = strategy.before_task
        strategy.before_task = lambda task, make=make_teacher, begins=begins: (begins.append(embeddings()), make(task))[
            1
        ]

        def expected(x: Tensor, y: Array, old: int = old, before: Any = before) -> float:
            now, rows = array(model.backbone(x)), embeddings()
            near = cosines(now, rows)
            loss = cross_entropy(head.scale.detach().item() * near, y)
            if not old:
                return loss
            turned = np.mean(
                [1 - unit(a[None])[0] @ unit(b[None])[0] for a, b in zip(now, array(before(x)), strict=True)]
            )
            short = [
                max(0.0, 0.5 - near[image, int(label)] + new)
                for image, label in enumerate(y)
                if label < old
                for new in sorted(near[image, old:])[::-1][:2]
            ]
            return float(loss + 3 * np.sqrt(old / 2) * turned + (np.mean(short) if short else 0.0))

        found = watched_losses(known, expected)
        known.learn(task)
        strategy.before_task = make_teacher
        assert found and np.allclose(*zip(*found, strict=True), rtol=1e-4, atol=1e-6)
        assert np.array_equal(embeddings()[:old], frozen)
        if task:
            x, y = known.stream.tasks[task].train.gather(torch.arange(len(known.stream.tasks[task].train)))
            means = [unit(array(before(x[y == label]))).mean(axis=0)[None] for label in (old, old + 1)]
            length = np.linalg.norm(frozen, axis=1).mean()
            np.testing.assert_allclose(begins[0][old:], length * unit(np.concatenate(means)), rtol=1e-4, atol=1e-6)
            assert not np.allclose(embeddings()[old:], begins[0][old:])
    images = known.test_images(0)
    logits = head.scale.detach().item() * cosines(array(model.eval().backbone(images)), embeddings())
    np.testing.assert_allclose(array(model(images, 0)), logits, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["wa", "bic", "lucir"])
def test_passes_and_what_is_kept(name: str) -> None:
    """Two tasks of two classes of 30 images, a memory of 20: counted by hand. The teacher is not kept between tasks."""
    spec = benchmark(class_split([[0, 1], [2, 3]]) | {"scenario": "class"})
    data = raw_dataset([40] * 4, [12] * 4, channels=1, size=8)
    stream = build_stream(spec, lambda _: data, ImageLimits(), 0)
    found: dict[tuple[str, int], int] = {}
    strategy = build(
        stream,
        name,
        on_progress=lambda told: found.update({(told.stage, told.task): told.image_passes}),
        **{"backbone": "mlp", "memory": 20, "epochs": 5, "benchmark__stream__scenario": "class"},
    )
    learn(stream, strategy)
    held_out = 4 if name == "bic" else 0  # a tenth of the ten exemplars of each of two classes, and as many new images
    assert found == {
        ("training", 0): 5 * 60,
        ("exemplars", 0): 60,
        **({("imprinting", 1): 60} if name == "lucir" else {}),
        ("training", 1): 5 * 2 * (60 + 20 - held_out),
        ("exemplars", 1): 60 + held_out,
    }
    kept = strategy.kept()
    assert not kept["teacher"] and not len(kept.get("held_out", ()))


def test_a_class_needs_two_exemplars_of_which_one_is_held_out() -> None:
    with pytest.raises(RequestError, match="6 classes have no 2 exemplars each in a memory of 11") as error:
        learner("bic", memory=11)
    assert "give 12 at least" in str(error.value.remedy)
    learner("bic", memory=12)
