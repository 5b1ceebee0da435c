"""Features of images by a pretrained network: computed once for each image, and kept in a file that runs share.

The file has the pooled outputs of all layers, a row per image of a data set, and a checksum for each row, which is 0
until the row is computed. What makes them (weights, normalisation, data, versions) is the name of the file.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray
from torch import Tensor

from seu_bench.data.images import FileStore
from seu_bench.errors import DataError, RequestError
from seu_bench.utils.progress import track

Rows: TypeAlias = NDArray[np.int64]
#: Images that are computed at once, always: sums over other numbers of images may be rounded otherwise.
CHUNK: Final = 64
#: Changed whenever inputs are made of images, or features of inputs, in another way: older files are not read then.
FORMAT: Final = 1


@dataclass(frozen=True)
class EncoderInfo:
    """Description of a pretrained network, known without building it.

    Attributes:
        name: what benchmarks call it (``[stream.input] encoder``).
        network: name of its architecture.
        sha256: 16 digits of the SHA-256 of the file of its weights.
        pretrained_on: data that the weights were trained on.
        licence: of the weights, as their source states it.
        source: where the weights come from.
        mean, std: ``[3]``, by which pixels in [0, 1] are normalised.
        size: height and width of the images that it was trained on, in pixels.
        widths: channels of the output of each layer, in order.
    """

    name: str
    network: str
    sha256: str
    pretrained_on: str
    licence: str
    source: str
    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int
    widths: tuple[int, ...]

    def document(self) -> dict[str, Any]:
        """Return plain values that say all of it."""
        return asdict(self)


@dataclass(frozen=True)
class StreamEncoder:
    """The pretrained network of a stream.

    Attributes:
        info: its description.
        load: builds it, an :class:`~seu_bench.models.encoder.Encoder`.
        makes_samples: whether learners get its features; otherwise images, for the learner has the network itself.
        folder: where files of features are kept.
    """

    info: EncoderInfo
    load: Callable[[], Any]
    makes_samples: bool
    folder: Path

    @cached_property
    def network(self) -> Any:
        """The network, built when it is first asked for."""
        return self.load()

    def layers(self, asked: Sequence[int] | None) -> tuple[int, ...]:
        """The layers that are read, by default the last one; a RequestError: there are not so many."""
        widths = self.info.widths
        found = tuple(asked or (len(widths) - 1,))
        if max(found) >= len(widths) or len(set(found)) < len(found):
            what = f"the layers {', '.join(map(str, found))} of encoder {self.info.name!r}, which has {len(widths)}"
            raise RequestError(what, where="input.layers", remedy=f"name some of 0 to {len(widths) - 1}, each once")
        return found

    def document(self, asked: Sequence[int] | None) -> dict[str, Any]:
        """Plain values that say which layers samples are made of; empty: they are images."""
        return {"layers": self.layers(asked)} if self.makes_samples else {}

    def columns(self, asked: Sequence[int] | None) -> NDArray[np.int64]:
        """Places of the features of layers among those of all."""
        return layer_columns(self.info.widths, self.layers(asked))

    def features(
        self, store: FileStore, rows: Rows, absent: int, layers: Sequence[int] | None, made: Mapping[str, Any]
    ) -> Tensor:
        """Features ``[len(rows), D]`` of images of a data set, read from its file, or computed where they are missing.

        Args:
            store: images of the data set.
            rows: numbers of those that are asked for.
            absent: how many images the store does not have; they go before its own.
            layers: whose features; ``None``: of the last one.
            made: plain values that tell the inputs of the data set from any others.

        Raises:
            DataError: the file cannot be written or read.
        """
        key = json.dumps(
            {**made, "encoder": self.info.document(), "torch": torch.__version__, "format": FORMAT}, sort_keys=True
        )
        name = hashlib.sha256(key.encode()).hexdigest()[:20]
        table = FeatureFile(self.folder / name, absent + store.shape[0], sum(self.info.widths))

        def compute(numbers: Rows) -> NDArray[np.float32]:
            padded = torch.from_numpy(np.resize(numbers - absent, CHUNK))
            images = store.index_select(0, padded)
            network = self.network.to(store.device)
            with torch.no_grad():
                found: Tensor = network.readings(images)[: len(numbers)]
            return found.float().cpu().numpy()

        return torch.from_numpy(table.read(rows, self.columns(layers), compute)).to(store.device)


def layer_columns(widths: Sequence[int], layers: Sequence[int]) -> NDArray[np.int64]:
    """Places of the features of some layers among those of all, given the width of each."""
    ends = list(pairwise(np.cumsum([0, *widths]).tolist()))
    return np.concatenate([np.arange(*ends[layer]) for layer in layers])


class FeatureFile:
    """Rows of numbers in a file, each with a checksum, that several processes read and fill.

    Args:
        path: of the rows, without its suffix.
        count, width: rows, and numbers of each.
    """

    def __init__(self, path: Path, count: int, width: int) -> None:
        self.path, self.shape = path, (count, width)

    def read(
        self, rows: Rows, columns: NDArray[np.int64], compute: Callable[[Rows], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """Columns of rows, ``[len(rows), len(columns)]``; ``compute`` gives the rows that are missing or damaged."""
        found = np.empty((len(rows), len(columns)), dtype=np.float32)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self.path.with_suffix(".lock")):
                table, sums = self._open(".f32", np.float32, self.shape), self._open(".crc", np.uint32, self.shape[:1])
                missing = []
                for place, row in enumerate(rows.tolist()):
                    values = np.array(table[row])
                    if sums[row] == checksum(values):
                        found[place] = values[columns]
                    else:
                        missing.append(place)
                starts = range(0, len(missing), CHUNK)
                for start in track(starts, "computing features") if missing else ():
                    places = np.array(missing[start : start + CHUNK])
                    computed = compute(rows[places])
                    found[places] = computed[:, columns]
                    table[rows[places]] = computed
                    sums[rows[places]] = [checksum(values) for values in computed]
        except OSError as error:
            raise DataError(
                f"the file of features cannot be used: {error.strerror or error}",
                where=str(self.path.with_suffix(".f32")),
                remedy="make room there, or give another folder of data sets: --data-root FOLDER",
            ) from error
        return found

    def _open(self, suffix: str, kind: type, shape: tuple[int, ...]) -> NDArray[Any]:
        path = self.path.with_suffix(suffix)
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        fits = path.exists() and path.stat().st_size == size
        return np.memmap(path, dtype=kind, mode="r+" if fits else "w+", shape=shape)


def checksum(values: NDArray[np.float32]) -> int:
    """CRC-32 of a row, which is never 0."""
    return zlib.crc32(values.tobytes()) or 1
