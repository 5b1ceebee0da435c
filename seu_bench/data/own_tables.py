"""Numbers and tokens of the user's own: ``.npz``, ``.csv`` and ``.parquet`` files."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seu_bench.config.options import did_you_mean
from seu_bench.config.streams import InputKind
from seu_bench.data.dataset import RawSplit, as_features, as_tokens
from seu_bench.data.own_files import NpzSource
from seu_bench.errors import DataError
from seu_bench.utils.hardware import free_host_memory
from seu_bench.utils.reading import open_file
from seu_bench.utils.text import some


class FeaturesSource(NpzSource):
    """A ``.csv`` or ``.parquet`` with a column of labels, or an ``.npz`` with ``features`` ``[N, D]`` and ``labels``.

    All other columns are features. Labels are as those of :class:`~seu_bench.data.own_files.NpzSource`.
    """

    kind: InputKind = "features"
    whole = ("features", "labels")
    _columns: Sequence[str] = ()

    def samples(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """Features as float32."""
        try:
            return as_features(values, self._columns)
        except ValueError as error:
            raise ValueError(f"{name} {error}") from error

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Read the arrays, or the columns of the table."""
        if self.path.suffix.lower() == ".npz":
            return super().arrays()
        frame, label = self._table(), self.definition.label
        columns = [str(name) for name in frame.columns]
        frame.columns = columns
        if not len(frame):
            raise ValueError("it has no rows")
        if label not in columns:
            hint = did_you_mean(label, columns)
            raise ValueError(f"it has no column {label!r}{hint}; its columns are {some(columns)}")
        if nameless := [place for place, name in enumerate(columns) if not name or name.startswith("Unnamed: ")]:
            raise ValueError(f"column {nameless[0]} (from 0) has no name: name it, or remove it if it counts the rows")
        if len(at := np.argwhere(frame.isna().to_numpy())):
            raise ValueError(f"a value is missing in row {at[0][0]} (from 0), column {columns[at[0][1]]!r}")
        labels, numbers = frame[label], frame.drop(columns=label)
        if other := [f"{name!r} is {kind}" for name, kind in numbers.dtypes.items() if not _is_number(kind)]:
            raise ValueError(f"columns must be numbers, and {', '.join(other[:10])}: encode or remove them")
        self._columns = list(numbers.columns)
        is_text = labels.dtype.kind not in "iuf"
        found = labels.astype(str).to_numpy(dtype=str) if is_text else labels.to_numpy(labels.dtype.kind + "8")
        return {"features": numbers.to_numpy(dtype=np.float64), "labels": found}

    def _table(self) -> Any:
        import pandas as pd

        with open_file(self.path.resolve()) as opened:
            if (size := self.path.stat().st_size) > (free := free_host_memory()):
                raise ValueError(f"it takes {size:,} bytes of memory, and {free:,} are free")
            if self.path.suffix.lower() == ".csv":
                with warnings.catch_warnings():
                    # By default the first column of such a table would be taken for the names of rows.
                    warnings.simplefilter("error", pd.errors.ParserWarning)
                    try:
                        # pandas would call a second column ``y`` ``y.1``: a copy of the labels is no feature.
                        header = pd.read_csv(opened, header=None, nrows=1, dtype=str, index_col=False).iloc[0].dropna()
                        if len(twice := header[header.duplicated()]):
                            raise ValueError(f"two columns are called {twice.iloc[0]!r}: rename or remove one")
                        opened.seek(0)
                        return pd.read_csv(opened, low_memory=False, index_col=False)
                    except pd.errors.ParserWarning as error:
                        raise ValueError("its rows have more values than the header has names") from error
            try:
                frame = pd.read_parquet(opened, engine="pyarrow")
            except ImportError as error:
                remedy = "pip install pyarrow, or save the table as .csv"
                raise self.fault("cannot be read: .parquet needs pyarrow", remedy, DataError) from error
            if names := [name for name in frame.index.names if name is not None]:
                raise ValueError(f"{names[0]!r} is its index, no column: save it after reset_index()")
            return frame


def _is_number(dtype: Any) -> bool:
    return dtype.kind in "buif"


class TokensSource(NpzSource):
    """An ``.npz`` with ``tokens`` ``[N, L]``, ids from 0, and ``labels``; all texts are of one length."""

    kind: InputKind = "tokens"
    whole = ("tokens", "labels")

    def samples(self, name: str, values: NDArray[Any]) -> NDArray[Any]:
        """Ids as int32."""
        try:
            return as_tokens(values, self.definition.vocabulary or 2**31 - 1)
        except ValueError as error:
            raise ValueError(f"{name} {error}") from error

    def vocabulary(self, splits: Sequence[RawSplit]) -> int:
        """The benchmark's, or one more than the greatest id."""
        return int(self.definition.vocabulary or 1 + max(int(split.images.max()) for split in splits))
