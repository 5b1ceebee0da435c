"""A run's model on disk: weights, architecture and what was measured of them, as data that nothing executes.

``model.safetensors`` lies beside the record. Its metadata is one JSON text under the key ``seu_bench``: several keys
would come out in random order, and two equal runs are to leave equal bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from seu_bench.config.options import fault_lines
from seu_bench.engine.run_folder import MODEL_NAME
from seu_bench.errors import PluginError, ResultsError
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.results.record import FileName, Record
from seu_bench.utils.files import write_atomic

#: What the file says that it is, and in which form.
FORMAT: Final = "seu-bench model"
SCHEMA_VERSION: Final = 1

#: The only key of the file's metadata.
KEY: Final = "seu_bench"

#: Fields of the record that the file has a copy of.
SEALED: Final = (
    "accuracy_matrix",
    "params_total",
    "params_active",
    "macs",
    "genotypes",
    "paths",
    "choices",
    "unit_tasks",
)

#: What to do where record and weights do not belong together.
MAKE_AGAIN: Final = "run it again with --restart, or put the file back as it was"


class Seal(BaseModel):
    """The metadata of a file.

    Attributes:
        architecture: what :meth:`~seu_bench.models.multihead.MultiHeadModel.load_architecture` is given.
        shared: names of tensors that are another one by another name, with that name; the file has each once.
        record: the fields :data:`SEALED` of the record as they were when the run was finished.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    format: str
    schema_version: int
    run_id: FileName
    architecture: dict[str, Any]
    shared: dict[str, str] = Field(default_factory=dict)
    record: dict[str, Any]


@dataclass(frozen=True)
class ModelFile:
    """Content of a model file: SHA-256, metadata, and tensors by their names in the model."""

    path: Path
    sha256: str
    seal: Seal
    tensors: Mapping[str, Tensor]


def save_model(path: Path, model: MultiHeadModel, record: Record) -> str:
    """Write a model atomically.

    Args:
        path: of the file.
        record: of the finished run; parts of it are saved in the file.

    Returns:
        The SHA-256 of the file, in hexadecimal.

    Raises:
        ResultsError: it cannot be written.
        PluginError: the model's architecture is not plain values.
    """
    tensors, shared = _stored(model.state_dict())
    document = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "run_id": record.run_id,
        "architecture": model.architecture(),
        "shared": shared,
        "record": record.model_dump(mode="json", include=set(SEALED)),
    }
    try:
        text = json.dumps(document, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise PluginError(
            f"the architecture of strategy {record.strategy!r} cannot be saved: {error}",
            where=f"{type(model).__name__}.architecture",
            remedy="it may have dictionaries with text for keys, lists, text and finite numbers",
        ) from error
    content = save(tensors, {KEY: text})
    write_atomic(path, content)
    return hashlib.sha256(content).hexdigest()


def read_weights(folder: Path, record: Record) -> bytes:
    """Read the file of a run's folder, unchecked."""
    path = folder / MODEL_NAME
    if record.weights_sha256 is None:
        raise ResultsError(
            f"run {record.run_id} saved no weights: "
            + ("it is " + record.status if record.status != "finished" else "its record names none"),
            where=str(path),
            remedy="run it to its end, without --no-weights (a finished one: with --restart)",
        )
    try:
        return path.read_bytes()
    except OSError as error:
        raise ResultsError(
            f"the weights cannot be read: {error.strerror or error}", where=str(path), remedy=MAKE_AGAIN
        ) from error


def parse_weights(content: bytes, path: Path) -> ModelFile:
    """Read the content of a model file.

    Args:
        path: for messages.

    Raises:
        ResultsError: it is no file of ours, or a corrupt one.
    """
    try:
        stored = load(content)
        # The library has checked the header; its own reader of metadata takes files only.
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        seal = Seal.model_validate_json(header["__metadata__"][KEY])
        tensors = stored | {name: stored[first] for name, first in seal.shared.items()}
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        what = "; ".join(fault_lines(error)[:3]) if isinstance(error, ValidationError) else f"{error}"
        raise ResultsError(
            f"the weights cannot be read: {type(error).__name__}: {what}", where=str(path), remedy=MAKE_AGAIN
        ) from error
    if (seal.format, seal.schema_version) != (FORMAT, SCHEMA_VERSION):
        raise ResultsError(
            f"the file's form is {seal.format!r}, version {seal.schema_version}; this is for {FORMAT!r}, version "
            f"{SCHEMA_VERSION}",
            where=str(path),
            remedy="use the version of seu-bench that wrote it, or run it again with --restart",
        )
    return ModelFile(path, hashlib.sha256(content).hexdigest(), seal, tensors)


def _stored(state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Each tensor once, on the CPU, row by row and in memory of its own; and names that mean another one's."""
    tensors: dict[str, Tensor] = {}
    shared: dict[str, str] = {}
    known: dict[tuple[object, ...], str] = {}
    for name, tensor in state.items():
        place = (tensor.device, tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        # An empty tensor has no place.
        first = known.setdefault(place, name) if tensor.numel() else name
        if first != name:
            shared[name] = first
        else:
            tensors[name] = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
    return tensors, shared
