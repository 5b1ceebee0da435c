"""Weights of a network from a file: of torch (``.pt``, ``.pth``), of which nothing is executed, or safetensors."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import torch
from safetensors.torch import load
from torch import Tensor, nn

from seu_bench.config.common_options import Weights, digest_of
from seu_bench.errors import RequestError
from seu_bench.utils.reading import read_file

#: Where published files have the tensors, if not at the top.
_INNER: Final = ("state_dict", "model", "model_state_dict")
#: What names of tensors begin with where a whole model was saved, or one that computed on several devices.
_PREFIXES: Final = ("module.", "backbone.")


def load_pretrained(network: nn.Module, weights: Weights) -> None:
    """Fill a network from a file; tensors that the network has not, such as those of a head, are left out.

    Raises:
        RequestError: the file is not at hand or was changed, is of another kind, or does not fit the network.
    """
    if weights.path is None:
        raise _fault("weights are known by their checksum only", str(weights), "give their file: -o weights=PATH")
    tensors = _read(weights.path, weights.sha256)
    wanted = network.state_dict()
    found = max((_strip_prefix(tensors, prefix) for prefix in ("", *_PREFIXES)), key=lambda it: len(it.keys() & wanted))
    missing = [name for name in wanted if name not in found]
    other = [name for name in wanted if name in found and found[name].shape != wanted[name].shape]
    if missing or other:
        if missing:
            what = f"{len(missing)} of {len(wanted)} tensors are missing, the first of which is {missing[0]!r}"
        else:
            theirs, own = (tuple(it[other[0]].shape) for it in (found, wanted))
            what = f"{len(other)} tensors are of another shape, e.g. {other[0]!r}: {theirs}, and the network's is {own}"
        raise _fault(
            f"the weights do not fit the backbone: {what}",
            str(weights.path),
            "give weights of this very network; its width is set by -o width=1, its size by that of the images",
        )
    network.load_state_dict({name: found[name] for name in wanted})


def _read(path: Path, sha256: str) -> Mapping[str, Tensor]:
    try:
        file = io.BytesIO(read_file(path))
        digest = digest_of(file)
        if path.suffix == ".safetensors":
            document: Any = load(file.getvalue())
        else:
            _refuse_compressed(file)
            document = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # of what a stranger's file makes of them, both libraries raise many kinds
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise _fault(
            f"the file of weights cannot be read: {reason[0]}",
            str(path),
            "give a file of tensors that torch.save or safetensors wrote; whole models, which are code, are not loaded",
        ) from error
    if digest != sha256:
        raise _fault("the file of weights was changed while it was read", str(path), "give the command again")
    for name in _INNER:
        if isinstance(document, Mapping) and isinstance(document.get(name), Mapping):
            document = document[name]
    named = document.items() if isinstance(document, Mapping) else ()
    tensors = {str(name): value for name, value in named if isinstance(value, Tensor)}
    if not tensors:
        raise _fault("the file of weights has no named tensors", str(path), "save the network's state_dict()")
    return tensors


def _refuse_compressed(file: BinaryIO) -> None:
    """Refuse an archive that says less than it unpacks to; torch writes none. Rewinds the file."""
    if zipfile.is_zipfile(file):
        members = zipfile.ZipFile(file).infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("it is compressed, as torch.save never does")
    file.seek(0)


def _strip_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def _fault(what: str, where: str, remedy: str) -> RequestError:
    return RequestError(what, where=where, remedy=remedy)
