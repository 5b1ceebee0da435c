"""A set of ``torchvision.datasets`` that can be described without its files."""

from __future__ import annotations

from pathlib import Path

from seu_bench.config.benchmark import TorchvisionDefinition
from seu_bench.config.commands import command
from seu_bench.data.dataset import DatasetInfo, RawDataset
from seu_bench.data.sources.common import default_data_root
from seu_bench.data.sources.torchvision_class import TorchvisionClassSource
from seu_bench.errors import DataCorruptError


class KnownClassSource(TorchvisionClassSource):
    """A set of :class:`TorchvisionClassSource` that can be described without its files.

    Args:
        definition: how it is read.
        known: name, shape and sizes of its files.
    """

    def __init__(self, definition: TorchvisionDefinition, known: DatasetInfo) -> None:
        super().__init__(definition, known.name)
        self.known = known

    def info(self, root: Path | None) -> DatasetInfo:
        """Shape and sizes, as they are known."""
        return self.known

    def load(self, root: Path | None) -> RawDataset:
        """Read the set into memory.

        Raises:
            DataCorruptError: its files are others.
        """
        data = super().load(root)
        if data.info != self.known:
            have, known = ((it.num_classes, it.num_train, it.num_test) for it in (data.info, self.known))
            raise self._unfit(
                f"has {have} classes, training and test images, not {known}",
                "delete the set's files and fetch it again",
                default_data_root(root),
                DataCorruptError,
            )
        return data

    def _download_command(self, folder: Path) -> str:
        """Registered sets are fetched by their name."""
        return command("data", "fetch", self.name, data_root=folder)
