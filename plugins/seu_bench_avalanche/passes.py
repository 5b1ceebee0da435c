"""What passes through a network and all copies of it: images, and the operations of its layers.

Teachers and look-ahead models are copies made by ``deepcopy``; the hooks are plain functions, which such copies share,
so their passes are counted too. Batches of these strategies differ (memories, mixtures of tasks), so that every call of
a layer is counted by itself, when it is called and, for gradients, when one arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from seu_bench.models import BackboneModel, counted_as


class PassCounter:
    """Images that pass through a model's backbone, and operations of its convolutions and linear layers.

    Args:
        model: hooks are put on its layers, for as long as it lives.
    """

    def __init__(self, model: BackboneModel) -> None:
        self.on_images: Callable[[int], None] | None = None
        self.flops = 0

        def count_images(_module: nn.Module, arguments: tuple[Tensor, ...], _output: object) -> None:
            if self.on_images is not None:
                self.on_images(len(arguments[0]))

        def count_flops(layer: Any, arguments: tuple[Tensor, ...], output: Tensor) -> None:
            if self.on_images is None:
                return
            x = arguments[0]
            # Each number of the output is a sum over all of a filter.
            forward = 2 * output.numel() * layer.weight[0].numel()
            self.flops += forward
            if output.requires_grad:
                backward = forward * (x.requires_grad + layer.weight.requires_grad)

                def count_gradients(_gradient: Tensor) -> None:
                    self.flops += backward

                output.register_hook(count_gradients)

        model.backbone.register_forward_hook(count_images)
        for module in model.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                module.register_forward_hook(count_flops)

    @contextmanager
    def reporting_to(self, on_images: Callable[[int], None]) -> Iterator[None]:
        """Report images to ``on_images`` within a ``with`` block, and operations to the counter that is active."""
        self.on_images, before = on_images, self.flops
        try:
            with counted_as(lambda: self.flops - before):
                yield
        finally:
            self.on_images = None
