"""Training and evaluation mode of a network's modules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def modes_kept(model: nn.Module) -> Iterator[None]:
    """Restore the mode of every module at the end of a ``with`` block.

    Frozen modules may refuse to train, and others stay in evaluation mode on purpose, so that ``train()`` would not
    restore what was there.

    Args:
        model: whose modules' modes are restored.

    Example:
        ::

            with modes_kept(model):
                model.eval()
                logits = model(images)
    """
    before = [(module, module.training) for module in model.modules()]
    try:
        yield
    finally:
        for module, training in before:
            module.training = training
