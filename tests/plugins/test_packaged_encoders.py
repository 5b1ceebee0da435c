"""Encoders with real weights that packages carry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from sklearn.datasets import load_sample_images

from seu_bench.data.images import resize_pixels
from seu_bench.errors import RequestError
from seu_bench.testing.trial import load_registry
from seu_bench_timm import encoders

FACTORY: Any = load_registry().encoders.find("lite0").factory


def classify(images: torch.Tensor) -> list[int]:
    """Classes of ImageNet by the whole network, its tensors placed as those of the encoder are."""
    model = timm.create_model("tf_efficientnet_lite0", pretrained=False).eval()
    given = torch.load(encoders.weights_file(FACTORY.package), weights_only=True)
    model.load_state_dict(dict(zip(model.state_dict(), given.values(), strict=True)))
    with torch.no_grad():
        features = model.forward_head(model.forward_features(images), pre_logits=True)
        assert torch.equal(FACTORY.load()(images), features)
        answers: list[int] = model(images).argmax(dim=1).tolist()
    return answers


def test_real_pictures_are_what_they_show() -> None:
    """A temple's tower or roof, and a daisy: the places of tensors are right."""
    pictures = [torch.from_numpy(it.copy()).permute(2, 0, 1)[None] / 255 for it in load_sample_images().images]
    images = torch.cat([resize_pixels(it, 224) for it in pictures])
    china, flower = classify((images - 0.5) / 0.5)
    assert flower == 985 and china in (442, 663, 698, 832)  # bell cote, monastery, palace, stupa


def test_file_with_two_tensors_swapped_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where shapes and the last parts of names agree."""
    path = encoders.weights_file(FACTORY.package)
    given = torch.load(path, weights_only=True)
    one, other = "_bn0.weight", "_blocks.0._bn1.weight"
    given[one], given[other] = given[other], given[one]
    torch.save(given, tmp_path / path.name)
    monkeypatch.setattr(encoders, "weights_file", lambda package: tmp_path / path.name)
    encoders.describe.cache_clear()
    with pytest.raises(RequestError, match="others than those known"):
        FACTORY.load()
    monkeypatch.undo()
    assert FACTORY.info().sha256 == FACTORY.sha256
