"""Folders of images, of the user's own and of well-known sets: their layouts, and every fault of theirs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.commands import Command
from support.official_formats import write_image
from support.plain_user import plain_user
from support.tiny import registry

from seu_bench.config.benchmark import FolderDefinition
from seu_bench.config.run import Request
from seu_bench.data.folders import LAYOUTS
from seu_bench.data.sources import definition_source
from seu_bench.engine.resolve import resolve
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
        (layout_other_classes, "c, d in one only"),
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


def test_folder_checksum_sees_names_and_sizes(tmp_path: Path) -> None:
    class_folders(tmp_path / "one", {"a": 2, "b": 2})
    class_folders(tmp_path / "two", {"a": 2, "b": 2})
    first = definition_source(folder(tmp_path / "one"), "mine").checksum()
    assert len(first) == 64
    assert first == definition_source(folder(tmp_path / "two"), "mine").checksum()
    (tmp_path / "two" / "a" / "0.png").rename(tmp_path / "two" / "a" / "9.png")
    assert first != definition_source(folder(tmp_path / "two"), "mine").checksum()


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
    with pytest.raises(DataCorruptError, match="are no usable images"):
        definition_source(folder(tmp_path), "mine").load(None)


#: Classes of each task of the benchmark of each set.
TASKS = {
    "core50": [5] * 10,
    "cub200": [20] * 10,
    "dtd": [9] * 3 + [10] * 2,
    "eurosat": [2] * 5,
    "imagenet_r": [20] * 10,
    "tiny_imagenet": [20] * 10,
}

#: Texts of a set, its other files, and the class and split of those that are images.
PLACED: list[tuple[str, dict[str, str], dict[str, tuple[int, bool | None]]]] = [
    (
        "tiny_imagenet",
        {
            "val/val_annotations.txt": "val_0.JPEG\tn2\t0\t0\t5\t5\nval_1.JPEG\tn1\t0\t0\t5\t5\n",
            "test/images/x.JPEG": "",
        },
        {
            "train/n1/images/n1_7.JPEG": (0, False),
            "train/n2/images/n2_0.JPEG": (1, False),
            "val/images/val_0.JPEG": (1, True),
            "val/images/val_1.JPEG": (0, True),
        },
    ),
    (
        "tiny_imagenet",  # sorted, as scripts of the field leave it
        {},
        {
            "train/n1/images/n1_7.JPEG": (0, False),
            "train/n2/images/n2_0.JPEG": (1, False),
            "val/n1/images/val_1.JPEG": (0, True),
            "val/n2/val_0.JPEG": (1, True),
        },
    ),
    (
        "cub200",
        {"images.txt": "1 001.A/a.jpg\n2 200.B/b c.jpg\n", "train_test_split.txt": "1 0\n2 1\n"},
        {"images/001.A/a.jpg": (0, True), "images/200.B/b c.jpg": (199, False)},
    ),
    (
        "core50",
        {"batches_filelists.txt": ""},
        {
            "s1/o1/C_01_01_000.png": (0, False),
            "s10/o50/C_10_50_000.png": (49, True),
            "s3/o2/C_03_02_000.png": (1, True),
        },
    ),
    (
        "dtd",
        {"labels/test1.txt": "b/b_1.jpg\n", "imdb/imdb.mat": ""},
        {"images/a/a_1.jpg": (0, False), "images/b/b_1.jpg": (1, True)},
    ),
    ("eurosat", {"README.txt": ""}, {"Forest/Forest_1.jpg": (0, None)}),
    ("imagenet_r", {"README.txt": ""}, {"n01/art_0.jpg": (0, None)}),
]


def definition(layout: str, **more: Any) -> FolderDefinition:
    return FolderDefinition.model_validate({"kind": "folder", "layout": layout, "size": 4, **more})


@pytest.mark.parametrize(("layout", "texts", "images"), PLACED)
def test_what_lies_where(layout: str, texts: dict[str, str], images: dict[str, tuple[int, bool | None]]) -> None:
    found = LAYOUTS[layout].place(sorted([*texts, *images]), texts.__getitem__)
    assert {path: (label, is_test) for path, label, is_test in found} == images


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_known_without_its_files(layout: str, tmp_path: Path) -> None:
    """Its benchmark is planned; where the folder lies and how images are cached are not part of the run."""
    source = definition_source(definition(layout), "mine", tmp_path)
    info = source.info(None)
    assert info.num_train + info.num_test == LAYOUTS[layout].images
    assert source.state(None).status == "missing"
    with pytest.raises(DataMissingError, match=f"unpack it there, from {LAYOUTS[layout].url}") as caught:
        source.load(tmp_path)
    assert str(tmp_path / LAYOUTS[layout].folder) in str(caught.value)
    name = f"benchmark.datasets.{layout}"
    asked = {"strategy": "naive", "benchmark": f"split_{layout}", "protocol": "quick"}
    run = resolve(registry(), Request(**asked))
    assert sorted(task.num_classes for task in run.plan().tasks) == TASKS[layout]
    elsewhere = {f"{name}.path": str(tmp_path), f"{name}.cache": "memory"}
    assert resolve(registry(), Request(**asked, options=elsewhere)).spec.run_id == run.spec.run_id
    assert resolve(registry(), Request(**asked, options={f"{name}.size": 32})).spec.run_id != run.spec.run_id


def lay_out(layout: str, root: Path) -> Path:
    """A whole set of which each file is the same small image."""
    folder = root / LAYOUTS[layout].folder
    if layout == "dtd":
        paths = [f"images/t{label:02}/t{label:02}_{number}.jpg" for label in range(47) for number in range(120)]
        tests = "".join(f"t{label:02}/t{label:02}_{number}.jpg\n" for label in range(47) for number in range(40))
        texts = {"labels/test1.txt": tests}
    else:
        numbers = range(LAYOUTS[layout].images)
        names = [f"{1 + number % 200:03}.X/{number}.jpg" for number in numbers]
        paths = [f"images/{name}" for name in names]
        split = "".join(f"{number} {int(number >= 5_794)}\n" for number in numbers)
        listed = "".join(f"{number} {name}\n" for number, name in enumerate(names))
        texts = {"images.txt": listed, "train_test_split.txt": split}
    image = Image.fromarray(np.full((5, 5, 3), 90, dtype=np.uint8))
    first: dict[Path, Path] = {}  # of each folder, to which its others are links: a file cannot have too many
    for path in map(folder.joinpath, paths):
        if path.parent in first:
            os.link(first[path.parent], path)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path, format="png")
            first[path.parent] = path
    for name, text in texts.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("layout", ["dtd", pytest.param("cub200", marks=pytest.mark.long)])
def test_whole_set(layout: str, tmp_path: Path) -> None:
    """Loaded, with the sizes that were known before; with an image less it is refused, by name or by number."""
    folder = lay_out(layout, tmp_path)
    source = definition_source(definition(layout, size=1, cache="disk"), "mine", tmp_path)
    assert source.state(None).status == "complete"
    known, data = source.info(None), source.load(tmp_path)
    assert (data.info.num_train, data.info.num_test) == (known.num_train, known.num_test)
    assert data.train.images[-1:].tolist() == [[[[90]]] * 3]
    next(folder.rglob("*1.jpg")).unlink()
    assert source.state(None).status == "corrupt"
    with pytest.raises(DataCorruptError, match=r"and must have|lacks 1 images, the first of which is"):
        source.load(tmp_path)
    for text in folder.rglob("*.txt"):
        text.unlink()
    with pytest.raises(DataCorruptError, match=r"not laid out as its authors pack it(.|\n)*unpack it anew"):
        source.load(tmp_path)


def test_listed_with_the_data_sets(command: Command, tmp_path: Path) -> None:
    """``seu-bench data`` says where each must lie; none of them is downloaded."""
    answer = command("data", "--data-root", str(tmp_path), "--format", "json")
    rows = {row["name"]: row for row in json.loads(answer.out)}
    for name in {*LAYOUTS} - {"dtd"}:  # which torchvision downloads
        assert rows[name]["status"] == "missing"
        assert rows[name]["where"] == str(tmp_path / LAYOUTS[name].folder)
    answer = command("data", "fetch", "cub200", "--data-root", str(tmp_path))
    assert answer.status == 2 and LAYOUTS["cub200"].url in answer.err
    assert "did you mean 'cifar10'" in command("data", "fetch", "cifar101").err
