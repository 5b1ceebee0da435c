"""``.npz`` files: their layouts, and every fault of theirs."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from seu_bench.config.benchmark import NpzDefinition
from seu_bench.data.own_files import NpzSource
from seu_bench.errors import DataCorruptError, DataError, DataMissingError

Arrays = dict[str, NDArray[Any]]

IMAGES = np.arange(20 * 5 * 6, dtype=np.uint32).reshape(20, 5, 6).astype(np.uint8)
LABELS = np.arange(20) % 2


def source_of(path: Path, **arrays: NDArray[Any]) -> NpzSource:
    if arrays:
        np.savez(path, **arrays)  # type: ignore[arg-type]
    return NpzSource(NpzDefinition.model_validate({"kind": "npz", "path": path}), "mine")


@pytest.mark.parametrize(
    ("images", "shape"),
    [
        (IMAGES, (1, 5, 6)),
        (IMAGES[..., None], (1, 5, 6)),
        (np.repeat(IMAGES[..., None], 3, axis=3), (3, 5, 6)),
        (IMAGES[:, None], (1, 5, 6)),
        (np.repeat(IMAGES[:, None], 3, axis=1), (3, 5, 6)),
        (IMAGES.astype(np.float32) / 255, (1, 5, 6)),
        (IMAGES.astype(np.float64) / 255, (1, 5, 6)),
        (IMAGES.astype(np.int64), (1, 5, 6)),
        (IMAGES.astype(">u2"), (1, 5, 6)),
    ],
)
def test_npz_layouts(images: NDArray[Any], shape: tuple[int, int, int], tmp_path: Path) -> None:
    source = source_of(tmp_path / "x.npz", images=images, labels=LABELS[:, None])
    data = source.load(None)
    assert data.info == source.info(None)
    assert data.train.images.shape == (16, *shape) and data.test.images.shape == (4, *shape)
    assert data.info.num_classes == 2
    for image, label in zip(data.train.images, data.train.labels, strict=True):
        match = (IMAGES[np.flatnonzero(label == LABELS)] == image[-1]).all(axis=(1, 2))
        assert match.any()


def test_splits_and_names_of_the_file(tmp_path: Path) -> None:
    arrays = {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES[:6], "y_test": LABELS[:6]}
    data = source_of(tmp_path / "x.npz", **arrays, class_names=np.array(["ant", "eel"])).load(None)
    assert (data.info.class_names, data.info.test_per_class) == (("ant", "eel"), (3, 3))
    np.testing.assert_array_equal(data.train.images[:, 0], IMAGES)


@pytest.mark.parametrize("kind", ["U", "S"])
def test_labels_that_are_texts(kind: str, tmp_path: Path) -> None:
    """They name the classes, sorted, the same in training and test; ``[N, 1]`` is ``[N]``."""
    called, train, test = np.array(["fox", "ant", "eel"]), np.arange(20) % 3, np.arange(6) % 2
    arrays = {"x_train": IMAGES, "y_train": called[train].astype(kind)[:, None], "x_test": IMAGES[:6]}
    data = source_of(tmp_path / "x.npz", **arrays, y_test=called[test].astype(kind)).load(None)
    assert data.info.class_names == ("ant", "eel", "fox")
    assert data.train.labels.tolist() == np.array([2, 0, 1])[train].tolist()
    assert data.test.labels.tolist() == [2, 0] * 3


def test_archive_that_holds_less_than_it_says(tmp_path: Path) -> None:
    """Of its headers nothing is believed that the file does not hold."""
    for shape in ("(20, 5, 6)", "(2000000000, 500, 600)"):
        header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}}}\n".encode()
        source = source_of(tmp_path / "x.npz", labels=LABELS)
        with zipfile.ZipFile(tmp_path / "x.npz", "a") as archive:
            archive.writestr("images.npy", b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header + bytes(599))
        with pytest.raises(DataCorruptError, match="is not usable"):
            source.load(None)


def test_arrays_that_do_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are refused with their size before they are read."""
    source = source_of(tmp_path / "x.npz", images=IMAGES, labels=LABELS)
    monkeypatch.setattr("seu_bench.data.own_files.free_host_memory", lambda: 599)
    with pytest.raises(DataError, match=r"its arrays take 1,\d+ bytes of memory, and 599 are free"):
        source.load(None)


def test_path_that_is_a_pipe(tmp_path: Path) -> None:
    """It would wait for a writer for ever; a link to a file is followed."""
    os.mkfifo(tmp_path / "pipe.npz")
    source = source_of(tmp_path / "pipe.npz")
    for question in (lambda: source.load(None), source.checksum):
        with pytest.raises(DataError):
            question()
    source_of(tmp_path / "x.npz", images=IMAGES, labels=LABELS)
    (tmp_path / "link.npz").symlink_to(tmp_path / "x.npz")
    linked = source_of(tmp_path / "link.npz")
    assert len(linked.load(None).train) == 16 and linked.checksum()


SPLIT = {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES, "y_test": LABELS}
FAULTS: list[tuple[Arrays, str]] = [
    ({"images": IMAGES.astype(np.uint16) * 16}, r"images has dtype uint16 and values 0\.\.4080; .*in 0\.\.255"),
    ({"images": np.repeat(IMAGES[..., None], 4, axis=3)}, r"images has shape \(20, 5, 6, 4\): which axis"),
    ({"images": IMAGES[:, None, :, :1]}, r"images has shape \(20, 1, 5, 1\): which axis"),
    ({"images": IMAGES[0]}, r"images has shape \(5, 6\)"),
    ({"labels": LABELS * 0.5}, "labels of images are float64"),
    ({"labels": np.eye(2)[LABELS]}, r"of shape \(20, 2\); needed are \(20,\) integers"),
    ({"labels": np.array(["b", ""])[LABELS]}, "has an empty text"),
    ({"labels": np.array(["b", "a"])[LABELS], "class_names": np.array(["a", "b"])}, "leave class_names out"),
    (SPLIT | {"y_train": np.array(["b", "a"])[LABELS]}, r"y_test has labels that y_train has not: \['0', '1'\]"),
    ({"class_names": np.array(["b"])}, "class_names must be texts, one for each of the classes 0 to 1"),
    ({"labels": LABELS[:7]}, "of shape .7,.; needed"),
    ({"labels": LABELS - 1}, "labels -1 to 0"),
    ({"labels": LABELS + 1}, "labels begin at 1, and must begin at 0: subtract 1"),
    ({"labels": LABELS + 10**9}, "labels 1000000000 to 1000000001; they must"),
    ({"images": IMAGES[:0], "labels": LABELS[:0]}, "images has shape .0, 5, 6."),
    ({"images": np.asarray([None, "x"])}, "Object arrays cannot be loaded"),
    (SPLIT | {"y_test": LABELS + 1}, r"that y_train has not: \[2\]"),
]


@pytest.mark.parametrize(("arrays", "said"), FAULTS, ids=[said[:30] for _, said in FAULTS])
def test_npz_faults(arrays: Arrays, said: str, tmp_path: Path) -> None:
    given = arrays if "x_train" in arrays else {"images": IMAGES, "labels": LABELS, **arrays}
    source = source_of(tmp_path / "x.npz", **given)
    assert source.state(None).status == "corrupt"
    with pytest.raises(DataCorruptError, match=said) as caught:
        source.load(None)
    assert caught.value.where == str(tmp_path / "x.npz")
    assert "'mine'" in caught.value.what


def test_arrays_that_are_missing_or_of_another_shape(tmp_path: Path) -> None:
    for arrays, said in (
        ({"images": IMAGES}, "labels missing; it has images"),
        ({"x_train": IMAGES, "y_train": LABELS}, "x_test, y_test missing"),
        ({"pictures": IMAGES}, "it has pictures; give images, labels or x_train"),
        (SPLIT | {"x_test": IMAGES[:, 1:]}, r"\(1, 5, 6\) in training and \(1, 4, 6\) in test"),
    ):
        with pytest.raises(DataError, match=said):
            source_of(tmp_path / "x.npz", **arrays).load(None)


def test_npz_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    source = source_of(path)
    assert source.state(None).status == "missing"
    with pytest.raises(DataMissingError, match="'mine' is missing"):
        source.load(None)
    path.write_bytes(b"no archive at all")
    with pytest.raises(DataCorruptError):
        source.load(None)
    with path.open("wb") as file:
        np.save(file, IMAGES)
    with pytest.raises(DataCorruptError, match="single array"):
        source.load(None)
    np.savez(path, images=IMAGES, labels=LABELS)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataCorruptError):
        source.load(None)
