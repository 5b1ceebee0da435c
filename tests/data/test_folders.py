"""Folders of images: their layouts, and every fault of theirs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.official_formats import write_image
from support.plain_user import plain_user

from seu_bench.config.benchmark import FolderDefinition
from seu_bench.data.sources import definition_source
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
    with pytest.raises(DataCorruptError, match="no usable images, 5 in all") as caught:
        source.load(tmp_path)
    assert all(f"{tmp_path / 'own' / name}: " in str(caught.value) for name in faulty)
    for number in range(30):
        (tmp_path / "own" / "train" / "b" / f"{number}.png").write_bytes(b"no image")
    with pytest.raises(DataCorruptError, match=r"34 in all(.|\n)*- and 14 more\n"):
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


LAYOUTS: dict[str, tuple[list[str], str]] = {
    "empty": (["readme.txt"], "has no images"),
    "one folder too many": (["all/a/0.png", "all/b/1.png"], "all of them in folders of one class folder"),
    "empty class": (["a/0.png", "a/1.png", "b/0.png", "b/1.png", "void/readme.txt"], "without images.*void"),
    "other classes": (
        [f"{it}/0.png" for it in ("train/a", "train/b", "train/c", "test/a", "test/d")],
        "b, c, d in one",
    ),
    "splits": ([f"{it}/0.png" for it in ("train/a", "val/b")], "are called like splits: train, val"),
    "single": (["a/0.png", "a/1.png", "b/0.png"], "single sample of class 'b'"),
}


@pytest.mark.parametrize(("paths", "said"), LAYOUTS.values(), ids=LAYOUTS)
def test_folder_layout_faults(paths: list[str], said: str, tmp_path: Path) -> None:
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    source = definition_source(folder(tmp_path), "mine")
    assert source.state(None).status == "corrupt" and source.state(None).detail
    with pytest.raises(DataError, match=said) as caught:
        source.load(None)
    assert "'mine'" in caught.value.what and caught.value.remedy and str(tmp_path) in str(caught.value.where)


def test_folder_checksum_sees_names_and_sizes(tmp_path: Path) -> None:
    class_folders(tmp_path, {"a": 2, "b": 2})
    first = definition_source(folder(tmp_path), "mine").checksum()
    assert len(first) == 64
    (tmp_path / "a" / "0.png").rename(tmp_path / "a" / "9.png")
    assert first != definition_source(folder(tmp_path), "mine").checksum()


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
    assert str(refused.value.where).startswith(str(root / part))


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
    with pytest.raises(DataCorruptError, match="are no usable images"):
        definition_source(folder(tmp_path), "mine").load(None)
