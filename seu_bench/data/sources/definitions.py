"""The data sets that a benchmark file defines under ``[datasets.NAME]``."""

from __future__ import annotations

from pathlib import Path

from seu_bench.config.benchmark import DatasetDefinition, FolderDefinition, TorchvisionDefinition
from seu_bench.data.sources.folders import FolderSource, known_folder
from seu_bench.data.sources.npz import NpzSource
from seu_bench.data.sources.own_files import OwnFiles
from seu_bench.data.sources.torchvision_class import TorchvisionClassSource


def definition_source(
    definition: DatasetDefinition, name: str, root: Path | None = None
) -> OwnFiles | TorchvisionClassSource:
    """Source of a benchmark's table ``[datasets.NAME]``, whose paths are absolute.

    Args:
        definition: the table.
        name: of the data set.
        root: folder of data sets, where a well-known one lies if the table has no path.
    """
    if isinstance(definition, TorchvisionDefinition):
        return TorchvisionClassSource(definition, name)
    if not isinstance(definition, FolderDefinition):
        return NpzSource(definition, name)
    if definition.layout == "class_folders":
        return FolderSource(definition, name)
    return known_folder(definition, name, root)
