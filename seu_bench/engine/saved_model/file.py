"""A finished run's model on disk: weights, architecture and what was measured of them, written and read.

``model.safetensors`` lies beside the record, as data that nothing executes. Its metadata is one JSON text under the key
``seu_bench``: several keys would come out in random order, and two equal runs are to leave equal bytes.
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

from seu_bench.config.validation_errors import format_errors
from seu_bench.errors import PluginError, ResultsError
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.results.record import Record
from seu_bench.results.record_files import MODEL_NAME
from seu_bench.results.record_parts import FileName
from seu_bench.utils.files import write_atomic
from seu_bench.utils.reading import announced_bytes, read_file

#: What the file says that it is, and in which form; the only key of its metadata.
FORMAT: Final = "seu-bench model"
SCHEMA_VERSION: Final = 1
KEY: Final = "seu_bench"
#: Bytes that are read of a file whose header cannot be: its checksum is told all the same.
_UNANNOUNCED: Final = 2**26

#: Sizes of the model in a record, and all fields of the record that the file has a copy of.
SIZES: Final = ("params_total", "mask_bits", "params_active", "macs")
SEALED: Final = {"accuracy_matrix", *SIZES, "genotypes", "paths", "choices", "unit_tasks"}

#: What to do where record and weights do not belong together.
MAKE_AGAIN: Final = "run it again with --restart, or put the file back as it was"


def known_fields(record: Record) -> tuple[list[str], set[str]]:
    """Sizes that a record has, and fields that its file has a copy of: earlier versions knew no masks."""
    older = set() if record.mask_bits else {"mask_bits"}
    return [name for name in SIZES if name not in older], SEALED - older


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
    """Content of a model file: metadata, and tensors by their names in the model."""

    path: Path
    seal: Seal
    tensors: Mapping[str, Tensor]


def unusable(path: Path, what: str, remedy: str = MAKE_AGAIN) -> ResultsError:
    """The error of a file that cannot be used, or does not belong to its record."""
    return ResultsError(what, where=str(path), remedy=remedy)


def save_model(path: Path, model: MultiHeadModel, record: Record) -> str:
    """Write a model atomically, with a copy of parts of its finished run's record; returns the SHA-256 of the file."""
    content = model_bytes(model, record)
    write_atomic(path, content)
    return hashlib.sha256(content).hexdigest()


def model_bytes(model: MultiHeadModel, record: Record) -> bytes:
    """A model as it is written, with a copy of parts of its finished run's record."""
    tensors, shared = _stored(model.state_dict())
    document = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "run_id": record.run_id,
        "architecture": model.architecture(),
        "shared": shared,
        "record": record.model_dump(mode="json", include=SEALED),
    }
    try:
        text = json.dumps(document, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise PluginError(
            f"the architecture of strategy {record.strategy!r} cannot be saved: {error}",
            where=f"{type(model).__name__}.architecture",
            remedy="it may have dictionaries with text for keys, lists, text and finite numbers",
        ) from error
    return save(tensors, {KEY: text})


def read_weights(folder: Path, record: Record) -> bytes:
    """Read the file of a run's folder, unchecked."""
    path = folder / MODEL_NAME
    if record.weights_sha256 is None:
        why = f"it is {record.status}" if record.status != "finished" else "its record names none"
        remedy = "run it to its end, without --no-weights (a finished one: with --restart)"
        raise unusable(path, f"run {record.run_id} saved no weights: {why}", remedy)
    try:
        return read_file(path, max(announced_bytes(path), _UNANNOUNCED))
    except OSError as error:
        raise unusable(path, f"the weights cannot be read: {error.strerror or error}") from error


def parse_weights(content: bytes, path: Path) -> ModelFile:
    """Read the content of a model file, or refuse it by a ResultsError that names ``path``."""
    try:
        stored = load(content)
        # The library has checked the header; its own reader of metadata takes files only.
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        seal = Seal.model_validate_json(header["__metadata__"][KEY])
        tensors = stored | {name: stored[first] for name, first in seal.shared.items()}
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        what = "; ".join(format_errors(error)[:3]) if isinstance(error, ValidationError) else f"{error}"
        raise unusable(path, f"the weights cannot be read: {type(error).__name__}: {what}") from error
    if (seal.format, seal.schema_version) != (FORMAT, SCHEMA_VERSION):
        raise unusable(
            path,
            f"the file's form is {seal.format!r}, version {seal.schema_version}; "
            f"this is for {FORMAT!r}, version {SCHEMA_VERSION}",
            "use the version of seu-bench that wrote it, or run it again with --restart",
        )
    return ModelFile(path, seal, tensors)


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
