"""The data sets that a benchmark file defines under ``[datasets.NAME]``."""

from __future__ import annotations

from seu_bench.config.benchmark import DatasetDefinition, FolderDefinition, TorchvisionDefinition
from seu_bench.data.dataset import DatasetSource
from seu_bench.data.sources.folder import FolderSource
from seu_bench.data.sources.npz import NpzSource
from seu_bench.data.sources.torchvision_class import TorchvisionClassSource


def definition_source(definition: DatasetDefinition, name: str) -> DatasetSource:
    """Source of a benchmark's table ``[datasets.NAME]``, whose paths are absolute."""
    if isinstance(definition, TorchvisionDefinition):
        return TorchvisionClassSource(definition, name)
    return (FolderSource if isinstance(definition, FolderDefinition) else NpzSource)(definition, name)


def checksum_of_definition(definition: DatasetDefinition) -> str:
    """Identify the user's own files, without decoding them.

    Returns:
        SHA-256 in hexadecimal: of an ``.npz``'s bytes; of a folder's sorted relative paths and sizes. Empty for
        torchvision's classes, whose files are not the user's own.

    Raises:
        DataMissingError: the file or folder does not exist.
    """
    if isinstance(definition, TorchvisionDefinition):
        return ""
    source = FolderSource if isinstance(definition, FolderDefinition) else NpzSource
    return source(definition, definition.path.name).checksum()
