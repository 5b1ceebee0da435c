"""Data sets of numbers and of tokens: read, checked, standardised, cut into tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from support.streams import ALL, everything
from support.tiny import benchmark

from seu_bench.config.benchmark import DatasetDefinition
from seu_bench.data import DatasetInfo, RawDataset, RawSplit, build_stream
from seu_bench.data.planning import plan_stream
from seu_bench.data.sources import definition_source
from seu_bench.data.synthetic import synthetic_dataset
from seu_bench.errors import DataError, RequestError

DRAWS = np.random.default_rng(0)
LABELS = np.arange(60) % 4
FEATURES = DRAWS.normal(size=(60, 5)) * [1, 10, 0.1, 3, 0] + [0, 1000, 0, -2, 7] + LABELS[:, None]
FEATURES[:, 4] = 7.0
TOKENS = DRAWS.integers(20, size=(60, 6))


def load(path: Path, **keys: Any) -> RawDataset:
    """The data set of a table ``[datasets.mine]``."""
    definition: Any = TypeAdapter(DatasetDefinition).validate_python({"path": path, **keys})
    return definition_source(definition, "mine").load(None).check()


def npz(folder: Path, kind: str = "features", *, vocabulary: int | None = None, **arrays: NDArray[Any]) -> RawDataset:
    path = folder / "x.npz"
    np.savez(path, allow_pickle=True, **arrays)
    return load(path, kind=kind, **({} if vocabulary is None else {"vocabulary": vocabulary}))


def csv(folder: Path, text: str) -> RawDataset:
    (folder / "x.csv").write_text(text)
    return load(folder / "x.csv", kind="features", label="y")


def table(**columns: Any) -> pd.DataFrame:
    names = np.array(["fox", "ant", "eel", "bee"])[LABELS]
    return pd.DataFrame({"a": FEATURES[:, 0], "y": names, "count": np.arange(60), "flag": LABELS > 1, **columns})


def of(data: RawDataset, scenario: str = "task", **keys: Any) -> Any:
    """The stream of two tasks of two classes."""
    stream = {"kind": "classes", "dataset": "mine", "classes_per_task": 2, "order": "fixed", "scenario": scenario}
    return build_stream(benchmark({**stream, **keys}), lambda _: data, ALL, 0)


# ------------------------------------------------------------------ what is read


@pytest.mark.parametrize("dtype", [np.float64, np.float32, ">f4", np.float16])
def test_features_of_an_npz(dtype: Any, tmp_path: Path) -> None:
    """Of any width, as float32; the last quarter of each class is held out as of images."""
    data = npz(tmp_path, features=FEATURES.astype(dtype), labels=LABELS)
    assert (data.info.input.kind, data.info.input.shape, data.info.num_classes) == ("features", (5,), 4)
    assert data.train.images.dtype == np.float32 and data.train.images.shape == (48, 5)
    rows = np.concatenate([data.train.images, data.test.images])
    assert np.array_equal(np.sort(rows[:, 3]), np.sort(FEATURES.astype(dtype).astype(np.float32)[:, 3]))


def test_split_of_an_npz(tmp_path: Path) -> None:
    arrays = {"x_train": FEATURES[:40], "y_train": LABELS[:40], "x_test": FEATURES[40:], "y_test": LABELS[40:]}
    data = npz(tmp_path, **arrays)
    np.testing.assert_array_equal(data.test.images, FEATURES[40:].astype(np.float32))


def test_columns_of_a_csv(tmp_path: Path) -> None:
    """All but the labels are features, whole numbers and truth values too; texts are classes in sorted order."""
    table().to_csv(tmp_path / "x.csv", index=False)
    data = load(tmp_path / "x.csv", kind="features", label="y")
    assert data.info.class_names == ("ant", "bee", "eel", "fox")
    place = data.train.images[:, 1].astype(int)
    np.testing.assert_array_equal(data.train.images[:, 2], LABELS[place] > 1)
    np.testing.assert_array_equal(data.train.labels, np.array([3, 0, 2, 1])[LABELS[place]])


def test_parquet(tmp_path: Path) -> None:
    """As a csv; without pyarrow it is refused, and told how to get it."""
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        with pytest.raises(DataError, match="needs pyarrow") as caught:
            load(tmp_path / "x.parquet", kind="features", label="y")
        assert "pip install" in str(caught.value.remedy)
        return
    table().to_parquet(tmp_path / "x.parquet")
    table().to_csv(tmp_path / "x.csv", index=False)
    one, other = (load(tmp_path / f"x.{ending}", kind="features", label="y") for ending in ("parquet", "csv"))
    assert one.checksum() == other.checksum()
    table().set_index("count").to_parquet(tmp_path / "x.parquet")
    with pytest.raises(DataError, match="'count' is its index"):
        load(tmp_path / "x.parquet", kind="features", label="y")


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.int32])
def test_tokens(dtype: Any, tmp_path: Path) -> None:
    """The vocabulary is given, or ends at the greatest id of both splits."""
    data = npz(tmp_path, "tokens", tokens=TOKENS.astype(dtype), labels=LABELS)
    assert (data.info.input.shape, data.info.vocabulary) == ((6,), 20)
    assert npz(tmp_path, "tokens", tokens=TOKENS, labels=LABELS, vocabulary=99).info.vocabulary == 99
    task = of(data).tasks[0]
    x, _ = task.train.gather(torch.arange(3))
    assert x.dtype == torch.int64 and set(x.flatten().tolist()) <= set(range(20))
    assert of(data).plan.input.zeros(2).dtype == torch.int64


# ------------------------------------------------------------------ what is refused

HOLE = FEATURES.copy()
HOLE[3, 2] = np.nan
WIDE = FEATURES.copy()
WIDE[5, 1] = 1e300
LATE = FEATURES.copy()
LATE[:, 0] = 1.7e9 + np.arange(60)


@pytest.mark.parametrize(
    ("arrays", "kind", "said"),
    [
        ({"features": HOLE}, "features", r"features has nan in row 3 \(from 0\), column 2"),
        ({"features": WIDE}, "features", r"1e\+300 in row 5 \(from 0\), column 1; .* float32 can hold"),
        ({"features": LATE}, "features", "column 0 that differ too little for float32: subtract their mean"),
        ({"features": FEATURES.astype(str)}, "features", "has dtype <U32"),
        (
            {"features": FEATURES.astype(object)},
            "features",
            r"Object arrays(.|\n)*numbers with \.astype\(float\)",
        ),
        (
            {"features": FEATURES, "labels": LABELS.astype(str).astype(object)},
            "features",
            r"texts with \.astype\(str\)",
        ),
        (
            {"features": FEATURES[:0], "labels": LABELS[:0]},
            "features",
            r"labels of features .* shape \(0,\).* one at least",
        ),
        ({"features": FEATURES.astype(complex)}, "features", "has dtype complex128"),
        ({"features": FEATURES[:, 0]}, "features", r"has dtype float64 and shape \(60,\); needed are numbers \[N, D\]"),
        ({"tokens": TOKENS * 1.0}, "tokens", r"has dtype float64 and shape \(60, 6\); needed are integers \[N, L\]"),
        ({"tokens": TOKENS - 1}, "tokens", "from -1 to 18"),
        ({"tokens": TOKENS.astype(bool)}, "tokens", "has dtype bool"),
        ({"images": FEATURES}, "npz", "has dtype float64 and values .* tables of numbers are kind = 'features'"),
        ({"images": TOKENS.astype(np.uint8)}, "npz", r"has shape \(60, 6\).* kind = 'features'"),
    ],
)
def test_arrays_that_are_no_such_samples(arrays: dict[str, Any], kind: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said):
        npz(tmp_path, kind, **{"labels": LABELS} | arrays)


def test_ids_beyond_the_vocabulary(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="from 0 to 19; for a vocabulary of 19 they are from 0 to 18"):
        npz(tmp_path, "tokens", tokens=TOKENS, labels=LABELS, vocabulary=19)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,y\n1,x\n2,x\n3,z\n", "a single sample of class 'z'"),
        ("a,y\n1,x\n,z\n", r"a value is missing in row 1 \(from 0\), column 'a'"),
        ("a,y\n1,x\n2,\n", r"a value is missing in row 1 \(from 0\), column 'y'"),
        ("a,b,y\n1,u,x\n2,v,z\n", "columns must be numbers, and 'b' is (object|str)"),
        ('a,y\n"1,5",x\n"2,5",z\n', "'a' is (object|str)"),
        (",a,y\n0,1,x\n1,2,z\n", "column 0 .* has no name"),
        ("a,y\n1,x,9\n2,z,9\n", "more values than the header"),
        ("a;y\n1;x\n2;z\n", "it has no column 'y'; its columns are a;y"),
        ("a,y\n1,x\ninf,z\n", "has inf in row 1 .*, column 'a'"),
        ("a,y\n1,0.5\n2,1.5\n", "labels of features are float64"),
        ("a,y\n1,1\n2,2\n", "labels begin at 1"),
        ("y\nx\nz\n", r"shape \(2, 0\)"),
        ("", "No columns"),
        ("a,y\n", "no rows"),
        ("a,y,y\n1,x,x\n2,z,z\n", "two columns are called 'y'"),
    ],
)
def test_tables_that_would_be_misread(text: str, said: str, tmp_path: Path) -> None:
    """With the row and the column, or the column and its type."""
    with pytest.raises(DataError, match=said):
        csv(tmp_path, text)


@pytest.mark.parametrize(
    ("kind", "samples", "said"),
    [
        ("image", FEATURES.astype(np.float32), r"images are float32 of shape .*; needed are uint8 of \(60, 5, 1, 1\)"),
        ("features", FEATURES.astype(str), "array of train features has dtype <U32"),
        ("features", HOLE, r"has nan in row 3 \(from 0\), column 2"),
        ("features", FEATURES[:, :3], r"features are float32 of shape \(60, 3\); needed are \(60, 5\)"),
        ("tokens", TOKENS[:, :5], "from 0 to 19; for a vocabulary of 9"),
        ("tokens", FEATURES, "array of train tokens has dtype float64"),
    ],
)
def test_sources_that_return_something_else(kind: Any, samples: NDArray[Any], said: str) -> None:
    """What a plugin returns is checked against what it said."""
    info = DatasetInfo("mine", 5, 1, 1, 4, 60, 60, kind=kind, vocabulary=9)
    with pytest.raises(DataError, match=said):
        RawDataset(info, RawSplit(samples, LABELS), RawSplit(samples, LABELS)).check()


# ------------------------------------------------------------------ what is made of it


def features(tmp_path: Path) -> RawDataset:
    return npz(tmp_path, features=FEATURES, labels=LABELS)


def test_columns_are_standardised(tmp_path: Path) -> None:
    """By mean and deviation of all training samples; a constant column is 0."""
    data = features(tmp_path)
    raw = data.train.images.astype(np.float64)
    deviation = raw.std(axis=0)
    deviation[4] = 1
    expected = (raw - raw.mean(axis=0)) / deviation
    found = torch.cat([everything(part)[0] for task in of(data).tasks for part in (task.train, task.valid)])
    assert found.dtype == torch.float32
    np.testing.assert_allclose(np.sort(found.numpy(), axis=0), np.sort(expected, axis=0), atol=1e-5)
    given = of(data, input={"mean": [1.0], "std": [2.0]}).tasks[0].train
    np.testing.assert_allclose(np.sort(given.store.numpy(), axis=0)[:, 3].max(), (FEATURES[:, 3].max() - 1) / 2, 1e-6)


def test_labels_count_the_classes_of_the_stream(tmp_path: Path) -> None:
    """Class-incremental; in the other scenarios within a task."""
    data = features(tmp_path)
    assert [everything(task.test)[1].unique().tolist() for task in of(data, "class").tasks] == [[0, 1], [2, 3]]
    assert [everything(task.test)[1].unique().tolist() for task in of(data, "domain").tasks] == [[0, 1], [0, 1]]


def test_permutation_and_drawn_tasks(tmp_path: Path) -> None:
    """Columns are permuted; tasks are drawn as of images."""
    data = features(tmp_path)
    spec = benchmark({"kind": "permutation", "dataset": "mine", "tasks": 2})
    stream = build_stream(spec, lambda _: data, ALL, 0)
    one, other = (everything(task.test)[0] for task in stream.tasks)
    assert not torch.equal(one, other) and torch.equal(one.sort(1)[0], other.sort(1)[0])
    sizes = {"train_per_class": 5, "valid_per_class": 2}
    drawn = {
        "kind": "drawn",
        "tasks": 3,
        "classes_per_task": 2,
        "sources": {"mine": {}},
        "large": sizes,
        "small": sizes,
    }
    assert [len(task.train) for task in build_stream(benchmark(drawn), lambda _: data, ALL, 0).tasks] == [10] * 3


@pytest.mark.parametrize("keys", [{"pad": 2}, {"channels": 3}, {"color": "random"}, {"augment": {"flip": True}}])
def test_what_is_for_images(keys: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=f"has 5 features, and input.{next(iter(keys))} cannot"):
        of(features(tmp_path), input=keys)
    with pytest.raises(RequestError, match="has 6 tokens"):
        of(npz(tmp_path, "tokens", tokens=TOKENS, labels=LABELS), input=keys)


def test_what_tokens_have_not(tmp_path: Path) -> None:
    """An order that could be permuted, a mean, and another vocabulary in another task."""
    data = npz(tmp_path, "tokens", tokens=TOKENS, labels=LABELS)
    with pytest.raises(RequestError, match=r"input\.mean, input\.std cannot be done"):
        of(data, input={"mean": [0.0], "std": [1.0]})
    with pytest.raises(RequestError, match="permutes samples that are tokens"):
        build_stream(benchmark({"kind": "permutation", "dataset": "mine", "tasks": 2}), lambda _: data, ALL, 0)
    infos = {
        name: DatasetInfo(name, 6, 1, 1, 2, 60, 60, kind="tokens", vocabulary=of) for name, of in (("a", 9), ("b", 8))
    }
    spec = benchmark({"kind": "datasets", "tasks": {name: {"dataset": name} for name in infos}})
    with pytest.raises(RequestError, match="a 6 tokens, vocabulary 9, b 6 tokens, vocabulary 8"):
        plan_stream(spec, infos, ALL, 0)


@pytest.mark.parametrize("kind", ["features", "tokens"])
def test_made_up_samples(kind: Any) -> None:
    """Of the shape and the classes of the real ones, and learnable: the nearest mean of counts or numbers is right."""
    info = DatasetInfo("mine", 16, 1, 1, 4, 400, 400, kind=kind, vocabulary=40)
    data = synthetic_dataset(info, 0).check()
    assert data.checksum() == synthetic_dataset(info, 0).check().checksum() != synthetic_dataset(info, 1).checksum()

    def numbers(split: RawSplit) -> NDArray[Any]:
        counts = (split.images[:, :, None] == np.arange(40)).sum(axis=1)
        return split.images if kind == "features" else counts

    means = np.stack([numbers(data.train)[data.train.labels == label].mean(axis=0) for label in range(4)])
    distances = ((numbers(data.test)[:, None] - means) ** 2).sum(axis=2)
    assert (distances.argmin(axis=1) == data.test.labels).mean() > 0.9
