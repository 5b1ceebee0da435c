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
from seu_bench.data.dataset import DatasetInfo
from seu_bench.data.sources import definition_source
from seu_bench.errors import DataCorruptError, DataError, DataMissingError

Arrays = dict[str, NDArray[Any]]


def npz(path: Path, **arrays: NDArray[Any]) -> NpzDefinition:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return NpzDefinition.model_validate({"kind": "npz", "path": path})


IMAGES = np.arange(20 * 5 * 6, dtype=np.uint32).reshape(20, 5, 6).astype(np.uint8)
LABELS = np.arange(20) % 2


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
    source = definition_source(npz(tmp_path / "x.npz", images=images, labels=LABELS), "mine")
    data = source.load(None)
    assert data.info == source.info(None)
    assert data.train.images.shape == (16, *shape) and data.test.images.shape == (4, *shape)
    assert data.info.num_classes == 2
    for image, label in zip(data.train.images, data.train.labels, strict=True):
        match = (IMAGES[np.flatnonzero(label == LABELS)] == image[-1]).all(axis=(1, 2))
        assert match.any()


@pytest.mark.parametrize("kind", ["U", "S"])
def test_labels_that_are_texts(kind: str, tmp_path: Path) -> None:
    """They name the classes, sorted, the same in training and test; ``[N, 1]`` is ``[N]``."""
    called = np.array(["fox", "ant", "eel"])
    train, test = np.arange(20) % 3, np.arange(6) % 2
    definition = npz(
        tmp_path / "x.npz",
        **{"x_train": IMAGES, "y_train": called[train].astype(kind)[:, None], "x_test": IMAGES[:6]},
        y_test=called[test].astype(kind),
    )
    data = definition_source(definition, "mine").load(None)
    assert data.info.class_names == ("ant", "eel", "fox")
    assert data.train.labels.tolist() == np.array([2, 0, 1])[train].tolist()
    assert data.test.labels.tolist() == [2, 0] * 3
    np.testing.assert_array_equal(data.train.images[:, 0], IMAGES)


def member(shape: str, holds: int, version: int = 1) -> bytes:
    """A member of an archive whose header says that it has ``shape``, with so many bytes behind it."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    length = len(header).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + header + bytes(holds)


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (member("(20, 5, 6)", 10**7), "says that it has 600 bytes, and holds 10,000,000"),
        (member("(20, 5, 6)", 599), "says that it has 600 bytes, and holds 599"),
        (member("(20, 5, 6)", 600, version=2), r"has format \(2, 0\)"),
    ],
)
def test_archive_that_holds_other_than_it_says(images: bytes, said: str, tmp_path: Path) -> None:
    """It is refused by its headers; a header itself, which is read as a whole, cannot be long."""
    definition = npz(tmp_path / "x.npz", labels=LABELS)
    with zipfile.ZipFile(tmp_path / "x.npz", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images.npy", images)
    with pytest.raises(DataCorruptError, match=said):
        definition_source(definition, "mine").load(None)


def test_arrays_that_do_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are refused with their size before they are read."""
    definition = npz(tmp_path / "x.npz", images=IMAGES, labels=LABELS)
    monkeypatch.setattr("seu_bench.data.dataset.free_host_memory", lambda: 599)
    with pytest.raises(DataError, match=r"20 images of 5 x 6 take 600 bytes, and 599 are free"):
        definition_source(definition, "mine").load(None)


def test_path_that_is_a_pipe(tmp_path: Path) -> None:
    """It would wait for a writer for ever; a link to a file is followed."""
    os.mkfifo(tmp_path / "pipe.npz")
    source = definition_source(NpzDefinition.model_validate({"kind": "npz", "path": tmp_path / "pipe.npz"}), "mine")
    for question in (lambda: source.load(None), source.checksum):
        with pytest.raises(DataError, match="is neither a file nor a folder"):
            question()
    npz(tmp_path / "x.npz", images=IMAGES, labels=LABELS)
    (tmp_path / "link.npz").symlink_to(tmp_path / "x.npz")
    linked = definition_source(NpzDefinition.model_validate({"kind": "npz", "path": tmp_path / "link.npz"}), "mine")
    assert len(linked.load(None).train) == 16 and linked.checksum()


FAULTS: list[tuple[Arrays, str]] = [
    (
        {"images": IMAGES.astype(np.uint16) * 16, "labels": LABELS},
        r"images has dtype uint16 and values 0\.\.4080; .*in 0\.\.255",
    ),
    (
        {"images": np.repeat(IMAGES[..., None], 4, axis=3), "labels": LABELS},
        r"images has shape \(20, 5, 6, 4\): which axis",
    ),
    ({"images": IMAGES[:, None, :, :1], "labels": LABELS}, r"images has shape \(20, 1, 5, 1\): which axis"),
    ({"images": IMAGES[0], "labels": LABELS}, r"images has shape \(5, 6\)"),
    ({"images": IMAGES, "labels": LABELS * 0.5}, "labels has dtype float64, needed are integers"),
    ({"images": IMAGES, "labels": np.eye(2)[LABELS]}, r"labels has shape \(20, 2\), needed is \(20,\)"),
    ({"images": IMAGES, "labels": np.array(["b", ""])[LABELS]}, "has an empty text"),
    (
        {"images": IMAGES, "labels": np.array(["b", "a"])[LABELS], "class_names": np.array(["b", "a"])},
        "labels that are texts name the classes",
    ),
    (
        {"x_train": IMAGES, "y_train": np.array(["b", "a"])[LABELS], "x_test": IMAGES, "y_test": LABELS},
        "labels that are texts name the classes: no numbers",
    ),
    (
        {"x_train": IMAGES, "y_train": np.array(["b", "a"])[LABELS], "x_test": IMAGES, "y_test": np.array(["c"] * 20)},
        r"y_test has labels that y_train has not: \['c'\]",
    ),
    ({"images": IMAGES, "labels": LABELS[:7]}, "labels has shape .7,., needed is"),
    ({"images": IMAGES, "labels": LABELS - 1}, "labels has labels -1 to 0"),
    ({"images": IMAGES, "labels": LABELS + 10**9}, "labels 1000000000 to 1000000001; they must"),
    ({"images": IMAGES[:0], "labels": LABELS[:0]}, "images has shape .0, 5, 6."),
    ({"images": IMAGES}, "labels missing; it has images"),
    ({"x_train": IMAGES, "y_train": LABELS}, "x_test, y_test missing"),
    ({"pictures": IMAGES}, "it has pictures; give either images, labels or x_train"),
    (
        {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES[:, 1:], "y_test": LABELS},
        r"x_train has images \(1, 5, 6\), x_test \(1, 4, 6\)",
    ),
    ({"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES, "y_test": LABELS + 1}, r"that y_train has not: \[2\]"),
    ({"images": np.asarray([None, "x"]), "labels": LABELS}, "Object arrays cannot be loaded"),
]


@pytest.mark.parametrize(("arrays", "said"), FAULTS, ids=[said[:30] for _, said in FAULTS])
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_npz_faults(arrays: Arrays, said: str, tmp_path: Path) -> None:
    source = definition_source(npz(tmp_path / "x.npz", **arrays), "mine")
    assert source.state(None).status == "corrupt"
    with pytest.raises(DataCorruptError, match=said) as caught:
        source.load(None)
    assert caught.value.where == str(tmp_path / "x.npz")
    assert "'mine'" in caught.value.what


def test_npz_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    source = definition_source(NpzDefinition.model_validate({"kind": "npz", "path": path}), "mine")
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


def test_labels_that_begin_at_one(tmp_path: Path) -> None:
    """They are told so, with what to do; an offset, or 0 where there is no class 0, is taken at its word."""
    path = tmp_path / "x.npz"
    np.savez(path, images=IMAGES, labels=LABELS + 1)
    source = definition_source(NpzDefinition.model_validate({"kind": "npz", "path": path}), "mine")
    with pytest.raises(DataCorruptError) as caught:
        source.load(None)
    assert "labels begin at 1, and must begin at 0: subtract 1, or set label_offset = 1 in [datasets.mine]" in str(
        caught.value
    )
    assert caught.value.where == str(path)

    def offset(number: int) -> DatasetInfo:
        given = {"kind": "npz", "path": path, "label_offset": number}
        return definition_source(NpzDefinition.model_validate(given), "mine").info(None)

    shifted, kept = offset(1), offset(0)
    assert (shifted.num_classes, kept.num_classes) == (1 + int(LABELS.max()), 2 + int(LABELS.max()))
    assert (kept.train_per_class or ())[0] == 0
    with pytest.raises(DataCorruptError, match="labels begin at 1, below label_offset = 2"):
        offset(2)
