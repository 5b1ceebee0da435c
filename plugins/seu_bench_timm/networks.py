"""timm's networks without their heads. No weights are fetched: they come from a file, by ``-o weights=PATH``."""

from __future__ import annotations

from typing import Any

import timm
import torch
from torch import nn

from seu_bench.config.options import did_you_mean
from seu_bench.errors import RequestError


def check_name(name: str) -> None:
    """Refuse what is none of timm's names; a tag of weights (``.augreg_in21k``) is none either."""
    if name not in (known := timm.list_models()):
        raise RequestError(
            f"timm {timm.__version__} has no network {name!r}{did_you_mean(name, known)}",
            where="backbone",
            remedy="timm.list_models() lists its networks; leave out a tag of weights, which come by -o weights=PATH",
        )


def build(name: str, channels: int, height: int, width: int) -> tuple[nn.Module, int]:
    """Build a network for images of a size, and say how wide its features are.

    Raises:
        RequestError: it does not fit such images.
    """
    options: dict[str, Any] = {"pretrained": False, "in_chans": channels, "num_classes": 0}
    try:
        try:
            network = timm.create_model(name, img_size=(height, width), **options)
        except TypeError:  # those whose size is that of the image
            network = timm.create_model(name, **options)
        device = next((parameter.device for parameter in network.parameters()), torch.device("cpu"))
        network.eval()
        with torch.no_grad():
            found = network(torch.zeros(1, channels, height, width, device=device))
    except (AssertionError, RuntimeError, ValueError, TypeError) as error:
        raise RequestError(
            f"timm's {name} does not fit images of {channels}x{height}x{width}: {' '.join(str(error).split())[:200]}",
            where="backbone",
            remedy="choose another network, or images of another size, e.g. by input.pad or the data set's size",
        ) from error
    if found.dim() != 2:
        raise RequestError(
            f"timm's {name} gives no features per image, but {tuple(found.shape[1:])}",
            where="backbone",
            remedy="choose one that classifies images",
        )
    return network.train(), int(found.shape[1])
