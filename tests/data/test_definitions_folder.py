"""Folders of images: their layouts, and every fault of theirs."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from support.official_formats import write_image
from support.plain_user import plain_user

from seu_bench.config.benchmark import FolderDefinition
from seu_bench.data.sources.definitions import definition_source
from seu_bench.errors import DataCorruptError, DataError, DataMissingError


def class_folders(root: Path, counts: dict[str, int]) -> None:
    for position, (name, count) in enumerate(counts.items()):
        for number in range(count):
            write_image(root / name / f"{number}.png", 50 * position + number)


def folder(path: Path, **values: Any) -> FolderDefinition:
    return FolderDefinition.model_validate({"kind": "folder", "path": path, "size": 4, **values})


def test_folder_that_is_split_here(tmp_path: Path) -> None:
    class_folders(tmp_path, {"ant": 10, "bee": 5, "cat": 2})
    write_image(tmp_path / ".hidden" / "0.png", 0)
    (tmp_path / "ant" / ".DS_Store").write_bytes(b"?")
    source = definition_source(folder(tmp_path, channels=1), "mine")
    data = source.load(None)
    assert data.info == source.info(None)
    assert (data.info.train_per_class, data.info.test_per_class) == ((8, 4, 1), (2, 1, 1))
    assert data.train.images.shape == (13, 1, 4, 4)
    grey = np.concatenate([data.train.images[:, 0, 0, 0], data.test.images[:, 0, 0, 0]])
    assert sorted(grey) == [*range(10), *range(50, 55), 100, 101]  # every image once, under its own class
    assert all(data.train.images[:, 0, 0, 0] // 50 == data.train.labels)
    assert data.checksum() == source.load(None).checksum()
    assert source.state(None).status == "complete"


def test_folder_with_train_and_test(tmp_path: Path) -> None:
    class_folders(tmp_path / "train", {"b": 3, "a": 2})
    class_folders(tmp_path / "test", {"b": 1, "a": 2})
    data = definition_source(folder(tmp_path, size=(5, 7)), "mine").load(None)
    assert data.train.images.shape == (5, 3, 5, 7)
    assert data.train.labels.tolist() == [0, 0, 1, 1, 1]  # a before b
    assert data.train.images[0, :, 0, 0].tolist() == [50, 50, 50]
    assert data.info.test_per_class == (2, 1)


def test_folder_takes_all_kinds_of_images(tmp_path: Path) -> None:
    """Each mode of Pillow with at most 8 bits, as the colours that it shows; transparency is dropped."""
    right = {"1": [255] * 3, "L": [76] * 3, "LA": [76] * 3, "P": [255, 0, 0], "RGBA": [255, 0, 0], "CMYK": [255, 0, 0]}
    for mode in right:
        image = Image.new("RGB", (8, 6), (255, 255, 255) if mode == "1" else (255, 0, 0)).convert(mode)
        if mode in ("LA", "RGBA"):
            image.putalpha(9)
        for split in ("train", "test"):
            (tmp_path / split / mode).mkdir(parents=True)
            image.save(tmp_path / split / mode / "0.tiff")
    data = definition_source(folder(tmp_path), "mine").load(None)
    assert data.info.class_names == tuple(sorted(right))
    for label, mode in enumerate(sorted(right)):
        assert data.train.images[label, :, 0, 0].tolist() == right[mode], mode


def deep_folders(root: Path, values: dict[str, list[Any]]) -> None:
    """Class folders of 4x4 images of 16 or 32 bits, each of one value but for a pixel of another."""
    for name, arrays in values.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for number, array in enumerate(arrays):
            Image.fromarray(np.asarray(array)).save(root / name / f"{number}.tiff")


def constant(value: float, kind: str = "uint16") -> NDArray[Any]:
    return np.full((4, 4), value, dtype=kind)


@pytest.mark.parametrize("cache", ["memory", "disk"])
@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [("uint16", 0, 1000), ("uint16", 31000, 33000), ("int32", -1000, 3000), ("float32", -0.5, 0.5)],
)
def test_images_of_more_than_8_bits(tmp_path: Path, kind: str, low: float, high: float, cache: str) -> None:
    """The range of all training images becomes 0 to 255; it is said, and what lies beyond is cut."""
    middle, beyond = low + (high - low) * 0.2, high + (high - low) / 2
    lowest, darker, highest, brighter = (constant(value, kind) for value in (low, middle, high, beyond))
    deep_folders(tmp_path / "own" / "train", {"a": [lowest], "b": [darker, highest]})
    deep_folders(tmp_path / "own" / "test", {"a": [darker], "b": [brighter]})
    source = definition_source(folder(tmp_path / "own", channels=1, cache=cache), "mine")
    said = rf"{low:g} to {high:g} in training images \(mean .*become 0 to 255; test .* to {beyond:g}, and are cut"
    with pytest.warns(UserWarning, match=said):
        data = source.load(tmp_path)
    assert data.train.images[:][:, 0, 0, 0].tolist() == [0, 51, 255]
    assert data.test.images[:][:, 0, 0, 0].tolist() == [51, 255]


def test_fingerprint_of_deep_images_is_that_of_what_is_learned(tmp_path: Path) -> None:
    """12 bits in files of 16 are learned as the same picture in 8 bits is."""
    pictures = np.random.default_rng(0).integers(0, 256, (8, 4, 4), dtype=np.uint16)
    pictures[0, 0, :2] = 0, 255
    for name, factor in (("deep", 16), ("flat", 1)):
        arrays = [(it * factor).astype(np.uint16 if factor > 1 else np.uint8) for it in pictures]
        for split in ("train", "test"):
            deep_folders(tmp_path / name / split, {"a": arrays[:4], "b": arrays[4:]})
    flat = definition_source(folder(tmp_path / "flat"), "mine").load(None)
    for cache in ("memory", "disk"):
        with pytest.warns(UserWarning, match="0 to 4080"):
            deep = definition_source(folder(tmp_path / "deep", cache=cache), "mine").load(tmp_path)
        assert deep.checksum() == flat.checksum()


DEEP_FAULTS: list[tuple[list[Any], str]] = [
    ([constant(7), constant(8, "uint8")], "pixels have 8 bits, and those of other images more"),
    (
        [constant(8, "uint8"), constant(700)],
        r"pixels are 700 to 700 \(mode I;16\): more than 8 bits are scaled",
    ),
    ([constant(0.1, "float32"), constant(np.nan, "float32")], "pixels that are no number"),
    ([constant(7), constant(7)], "has the value 7 in every pixel"),
]


@pytest.mark.parametrize(("arrays", "said"), DEEP_FAULTS, ids=[said[:20] for _, said in DEEP_FAULTS])
def test_ranges_that_cannot_be_known(tmp_path: Path, arrays: list[Any], said: str) -> None:
    for split in ("train", "test"):
        deep_folders(tmp_path / split, {"a": [arrays[0]], "b": arrays})
    with pytest.raises(DataError, match=said):
        definition_source(folder(tmp_path), "mine").load(None)


def test_colours_of_16_bits(tmp_path: Path) -> None:
    """Pillow would drop their lower half without a word, and with it all of a picture of 8 to 12 bits."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    class_folders(tmp_path, {"a": 2, "b": 2})
    rows = b"".join(b"\0" + struct.pack(">12H", *[700] * 12) for _ in range(4))
    head = struct.pack(">IIBBBBB", 4, 4, 16, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    (tmp_path / "a" / "0.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*it) for it in chunks))
    with pytest.raises(DataCorruptError, match="channels have 16 bits"):
        definition_source(folder(tmp_path), "mine").load(None)


def test_litter_is_left_out(tmp_path: Path) -> None:
    """What systems leave in folders is neither an image nor a reason for another run id; it is said once."""
    class_folders(tmp_path, {"a": 2, "b": 2})
    source = definition_source(folder(tmp_path), "mine")
    clean = source.checksum(), source.load(None).checksum()
    for name in ("a/Thumbs.db", "b/desktop.ini", "a/._0.png", "b/.DS_Store", "notes.txt"):
        (tmp_path / name).write_bytes(b"litter")
    with pytest.warns(UserWarning, match=r"leaves out 2 files .*: a/Thumbs\.db, b/desktop\.ini$"):
        data = source.load(None)
    assert (source.checksum(), data.checksum()) == clean


@pytest.mark.parametrize("cache", ["memory", "disk"])
def test_all_faulty_files_are_named_at_once(tmp_path: Path, cache: str) -> None:
    """Of training and test images, the first and the last included; of very many their number."""
    for split in ("train", "test"):
        class_folders(tmp_path / "own" / split, {"a": 3, "b": 30})
    faulty = [f"train/a/{n}.png" for n in range(3)] + ["train/b/29.png", "test/b/7.png"]
    for name in faulty:
        (tmp_path / "own" / name).write_bytes(b"no image")
    source = definition_source(folder(tmp_path / "own", cache=cache), "mine")
    with pytest.raises(DataCorruptError, match="has 5 files that are no usable images") as caught:
        source.load(tmp_path)
    assert all(f"{tmp_path / 'own' / name}: " in str(caught.value) for name in faulty)
    for number in range(30):
        (tmp_path / "own" / "train" / "b" / f"{number}.png").write_bytes(b"no image")
    with pytest.raises(DataCorruptError, match=r"has 34 files that(.|\n)*- and 14 more\n"):
        source.load(tmp_path)


def test_folder_absent_and_a_file(tmp_path: Path) -> None:
    source = definition_source(folder(tmp_path / "none"), "mine")
    assert source.state(None).status == "missing"
    with pytest.raises(DataMissingError, match=r"'mine' is missing(.|\n)*none(.|\n)*'path'"):
        source.load(None)
    with pytest.raises(DataMissingError):
        definition_source(folder(tmp_path / "none"), "mine").checksum()
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="is a file, not a folder"):
        definition_source(folder(tmp_path / "file"), "mine").info(None)


def layout_empty(root: Path) -> None:
    (root / "readme.txt").write_text("nothing here")


def layout_one_class(root: Path) -> None:
    class_folders(root, {"only": 3})


def layout_empty_class(root: Path) -> None:
    class_folders(root, {"a": 2, "b": 2})
    (root / "void").mkdir()


def layout_other_classes(root: Path) -> None:
    class_folders(root / "train", {"a": 2, "b": 2, "c": 1})
    class_folders(root / "test", {"a": 2, "b": 2, "d": 1})


def layout_splits(root: Path) -> None:
    class_folders(root / "train", {"a": 2, "b": 2})
    class_folders(root / "val", {"a": 2, "b": 2})


def layout_single(root: Path) -> None:
    class_folders(root, {"a": 2, "b": 1})


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (layout_empty, "has no images"),
        (layout_one_class, "has only one class folder.*: only"),
        (layout_empty_class, "class folders without images.*void"),
        (layout_other_classes, "only in train: c; only in test: d"),
        (layout_splits, "are called like splits: train, val"),
        (layout_single, "single image of class 'b'"),
    ],
)
def test_folder_layout_faults(layout: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    layout(tmp_path)
    source = definition_source(folder(tmp_path), "mine")
    state = source.state(None)
    assert state.status == "corrupt" and state.detail
    with pytest.raises(DataError, match=said) as caught:
        source.load(None)
    assert "'mine'" in caught.value.what and caught.value.remedy and str(tmp_path) in str(caught.value.where)


def test_folder_names_the_file_that_is_no_image(tmp_path: Path) -> None:
    class_folders(tmp_path, {"a": 2, "b": 2})
    broken = tmp_path / "a" / "notes.png"
    broken.write_text("no picture")
    with pytest.raises(DataCorruptError) as caught:
        definition_source(folder(tmp_path), "mine").load(None)
    assert caught.value.where == str(broken)
    broken.unlink()
    truncated = tmp_path / "b" / "0.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)).save(truncated)
    truncated.write_bytes(truncated.read_bytes()[:2000])
    with pytest.raises(DataCorruptError) as caught:
        definition_source(folder(tmp_path), "mine").load(None)
    assert caught.value.where == str(truncated)


def test_folder_checksum_sees_names_and_sizes(tmp_path: Path) -> None:
    class_folders(tmp_path / "one", {"a": 2, "b": 2})
    class_folders(tmp_path / "two", {"a": 2, "b": 2})
    first = definition_source(folder(tmp_path / "one"), "mine").checksum()
    assert len(first) == 64
    assert first == definition_source(folder(tmp_path / "two"), "mine").checksum()
    (tmp_path / "two" / "a" / "0.png").rename(tmp_path / "two" / "a" / "9.png")
    assert first != definition_source(folder(tmp_path / "two"), "mine").checksum()


def test_own_files_cannot_be_fetched(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'mine' is your own"):
        definition_source(folder(tmp_path), "mine").fetch(tmp_path)


@pytest.mark.parametrize("part", ["", "ant", "ant/inner"])
def test_unreadable_parts(tmp_path: Path, part: str) -> None:
    """No folder's images are passed over because they cannot be read."""
    root = tmp_path / "images"
    class_folders(root, {"ant": 4, "bee": 4, "ant/inner": 4})
    source = definition_source(folder(root), "mine")
    assert sum(source.info(None).train_per_class or ()) + sum(source.info(None).test_per_class or ()) == 12
    with plain_user(root):
        (root / part).chmod(0)
        with pytest.raises(DataError, match="cannot be read: Permission denied") as refused:
            source.info(None)
        assert source.state(None).status == "corrupt"
        (root / part).chmod(0o755)
    assert refused.value.where == str(root / part)


def test_links_between_folders(tmp_path: Path) -> None:
    """A linked folder's images count; one that leads back is refused, and so is what is no image file at all."""
    class_folders(tmp_path / "images", {"ant": 4, "bee": 4})
    class_folders(tmp_path / "more", {"x": 4})
    (tmp_path / "images" / "bee" / "more").symlink_to(tmp_path / "more" / "x")
    source = definition_source(folder(tmp_path / "images"), "mine")
    assert source.info(None).train_per_class == (3, 7)  # one of each is held out
    (tmp_path / "images" / "ant" / "loop").symlink_to(tmp_path / "images" / "ant")
    with pytest.raises(DataError, match="has a folder twice, by a link"):
        source.info(None)
    (tmp_path / "images" / "ant" / "loop").unlink()
    os.mkfifo(tmp_path / "images" / "ant" / "pipe.png")
    with pytest.raises(DataError, match="neither file nor folder"):
        source.info(None)


def test_formats_that_start_programs(tmp_path: Path) -> None:
    """PostScript under the name of a PNG is no image."""
    class_folders(tmp_path, {"ant": 4, "bee": 4})
    (tmp_path / "ant" / "0.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    with pytest.raises(DataCorruptError, match="is no usable image"):
        definition_source(folder(tmp_path), "mine").load(None)
