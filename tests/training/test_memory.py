"""What is kept from task to task, in bytes by kind."""

from __future__ import annotations

import torch
from support.tiny import class_stream, task_of
from torch import nn

from seu_bench.config.protocol import Schedule
from seu_bench.models.backbone import BackboneModel
from seu_bench.training import KeptImages, bytes_by_kind, memory_of
from seu_bench.training.strategy import StagedStrategy


def test_nested_values() -> None:
    """Tensors, modules and images in any nesting; other values take nothing that counts, and no kind is empty."""
    images = task_of(class_stream([(0, 1)]))
    found = bytes_by_kind(
        {
            "plain": {"tensor": torch.zeros(3), "list": [(torch.zeros(2, dtype=torch.float64),)], "name": "x", "n": 3},
            "module": [nn.Linear(2, 1)],
            "images": [images, KeptImages(2, (3, 4, 5))],
            "nothing": [None, 1.5, "text", torch.zeros(0)],
        }
    )
    assert found == {"plain": 12 + 16, "module": 12, "images": len(images) * (64 + 2) + 2 * (60 + 2)}


def test_shared_memory_counts_for_the_first() -> None:
    """A copy counts again, another name does not."""
    layer = nn.Linear(3, 1)
    kept = {"parameters": list(layer.parameters()), "same": layer, "anchor": layer.weight.detach().clone()}
    assert bytes_by_kind(kept) == {"parameters": 16, "anchor": 12}


def test_default_is_all_that_resumes() -> None:
    """A strategy that lists its state need not say more."""

    class Anchored(StagedStrategy):
        state_attributes = ("anchor", "steps")
        anchor = (torch.zeros(5), torch.zeros(2))
        steps = 3

    anchored = Anchored(model=BackboneModel(nn.Flatten(), 64, (2,)), schedule=Schedule())
    assert memory_of(anchored) == {"parameters": 4 * (64 + 1) * 2, "anchor": 28}
    anchored.resumable = False
    assert memory_of(anchored) is None
