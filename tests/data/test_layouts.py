"""Well-known sets as folders: each file has its class and its split, and what is not whole is refused."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.commands import Command
from support.tiny import registry

from seu_bench.config.benchmark import FolderDefinition
from seu_bench.config.run import Request
from seu_bench.data.sources.definitions import definition_source
from seu_bench.data.sources.folders import KnownFolderSource
from seu_bench.data.sources.layouts import LAYOUTS, Tree
from seu_bench.engine.resolve import resolve
from seu_bench.errors import DataCorruptError, DataMissingError

BENCHMARKS = {
    "core50": "split_core50",
    "cub200": "split_cub200",
    "dtd": "split_dtd",
    "eurosat": "split_eurosat",
    "imagenet_r": "split_imagenet_r",
    "tiny_imagenet": "split_tiny_imagenet",
}

#: Classes of each task.
TASKS = {
    "core50": [5] * 10,
    "cub200": [20] * 10,
    "dtd": [9] * 3 + [10] * 2,
    "eurosat": [2] * 5,
    "imagenet_r": [20] * 10,
    "tiny_imagenet": [20] * 10,
}


def definition(layout: str, **more: Any) -> FolderDefinition:
    return FolderDefinition.model_validate({"kind": "folder", "layout": layout, "size": 4, **more})


def placed(layout: str, texts: Mapping[str, str], *paths: str) -> dict[str, tuple[int, bool | None]]:
    tree = Tree(sorted([*paths, *texts]), texts.__getitem__)
    return {path: (label, is_test) for path, label, is_test in LAYOUTS[layout].place(tree)}


def test_tiny_imagenet_with_its_annotations() -> None:
    texts = {
        "wnids.txt": "n2\nn1\n",
        "val/val_annotations.txt": "val_0.JPEG\tn2\t0\t0\t5\t5\nval_1.JPEG\tn1\t0\t0\t5\t5\n",
        "train/n1/n1_boxes.txt": "",
    }
    images = (
        "train/n2/images/n2_0.JPEG",
        "train/n1/images/n1_7.JPEG",
        "val/images/val_0.JPEG",
        "val/images/val_1.JPEG",
    )
    assert placed("tiny_imagenet", texts, *images, "test/images/test_0.JPEG") == {
        "train/n1/images/n1_7.JPEG": (0, False),
        "train/n2/images/n2_0.JPEG": (1, False),
        "val/images/val_0.JPEG": (1, True),
        "val/images/val_1.JPEG": (0, True),
    }


@pytest.mark.parametrize("inner", ["", "images/"])
def test_tiny_imagenet_sorted_into_folders(inner: str) -> None:
    """As scripts of the field leave it."""
    images = "train/n1/images/n1_7.JPEG", "train/n2/images/n2_0.JPEG", f"val/n2/{inner}val_0.JPEG"
    assert placed("tiny_imagenet", {}, *images)[images[2]] == (1, True)


def test_cub200() -> None:
    texts = {"images.txt": "1 001.A/a.jpg\n2 200.B/b c.jpg\n", "train_test_split.txt": "1 0\n2 1\n"}
    assert placed("cub200", texts) == {"images/001.A/a.jpg": (0, True), "images/200.B/b c.jpg": (199, False)}


def test_core50() -> None:
    images = [f"s{session}/o{thing}/C_01_{thing:02}_000.png" for session in (1, 3, 7, 10, 11) for thing in (1, 50)]
    found = placed("core50", {"batches_filelists.txt": ""}, *images)
    assert {path for path, (_, is_test) in found.items() if is_test} == {*images[2:8]}
    assert {label for label, _ in found.values()} == {0, 49}
    assert LAYOUTS["core50"].names is not None and LAYOUTS["core50"].names[5] == "mobile phone 1"


def test_dtd() -> None:
    found = placed("dtd", {"labels/test1.txt": "b/b_1.jpg\n"}, "images/a/a_1.jpg", "images/b/b_1.jpg", "imdb/imdb.mat")
    assert found == {"images/a/a_1.jpg": (0, False), "images/b/b_1.jpg": (1, True)}


@pytest.mark.parametrize(("layout", "path"), [("eurosat", "Forest/Forest_1.jpg"), ("imagenet_r", "n01/art_0.jpg")])
def test_sets_without_a_test_set(layout: str, path: str) -> None:
    assert placed(layout, {"README.txt": ""}, path) == {path: (0, None)}


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_known_without_its_files(layout: str, tmp_path: Path) -> None:
    source = definition_source(definition(layout), "mine", tmp_path)
    info = source.info(None)
    assert info.num_train + info.num_test == LAYOUTS[layout].images
    for split, total in ((info.train_per_class, info.num_train), (info.test_per_class, info.num_test)):
        assert split is None or (sum(split), len(split)) == (total, LAYOUTS[layout].classes)
    assert source.state(None).status == "missing"
    with pytest.raises(DataMissingError, match=f"unpack it there, from {LAYOUTS[layout].url}") as caught:
        source.load(tmp_path)
    assert str(tmp_path / LAYOUTS[layout].folder) in str(caught.value)


def test_held_out_as_asked(tmp_path: Path) -> None:
    tables: list[dict[str, Any]] = [{}, {"test_fraction": 0.5}]
    infos = [definition_source(definition("eurosat", **table), "e", tmp_path).info(None) for table in tables]
    assert [(info.num_train, info.num_test) for info in infos] == [(21_600, 5_400), (13_500, 13_500)]


def test_a_folder_of_ones_own_has_a_path() -> None:
    with pytest.raises(ValueError, match="path"):
        definition("class_folders")


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_ready_benchmarks(layout: str, tmp_path: Path) -> None:
    """Planned without files; where the folder lies and how images are cached are not part of the run."""
    name = f"benchmark.datasets.{layout}"
    asked = {"strategy": "naive", "benchmark": BENCHMARKS[layout], "protocol": "quick"}
    run = resolve(registry(), Request(**asked))
    classes = [task.num_classes for task in run.plan().tasks]
    assert sorted(classes) == TASKS[layout]
    elsewhere = {f"{name}.path": str(tmp_path), f"{name}.cache": "memory"}
    assert resolve(registry(), Request(**asked, options=elsewhere)).spec.run_id == run.spec.run_id
    assert resolve(registry(), Request(**asked, options={f"{name}.size": 32})).spec.run_id != run.spec.run_id


# ---------------------------------------------------------------------------------------------------- sets of full size


def tree_of(layout: str) -> Iterator[str]:
    """Paths of the images of a whole set."""
    known = LAYOUTS[layout]
    if layout == "tiny_imagenet":
        for label in range(200):
            yield from (f"train/n{label:03}/images/n{label:03}_{number}.JPEG" for number in range(500))
            yield from (f"val/images/val_{50 * label + number}.JPEG" for number in range(50))
    elif layout == "eurosat":
        names, counts = known.names or (), known.per_class or ()
        for name, count in zip(names, counts, strict=True):
            yield from (f"{name}/{name}_{number}.jpg" for number in range(count))
    elif layout == "cub200":
        yield from (f"images/{1 + number % 200:03}.X/{number}.jpg" for number in range(known.images))
    elif layout == "dtd":
        yield from (f"images/t{label:02}/t{label:02}_{number}.jpg" for label in range(47) for number in range(120))


def lay_out(layout: str, root: Path) -> Path:
    """A whole set of which each file is the same small image."""
    folder = root / LAYOUTS[layout].folder
    folder.mkdir(parents=True)
    image = Image.fromarray(np.full((5, 5, 3), 90, dtype=np.uint8))
    first: dict[Path, Path] = {}  # of each folder, to which its others are links: a file cannot have too many
    for path in map(folder.joinpath, tree_of(layout)):
        if path.parent in first:
            os.link(first[path.parent], path)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path, format="png")
            first[path.parent] = path
    if layout == "tiny_imagenet":
        lines = (f"val_{number}.JPEG\tn{number // 50:03}\t0\t0\t62\t57\n" for number in range(10_000))
        (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    if layout == "cub200":
        (folder / "images.txt").write_text("".join(f"{n} {1 + n % 200:03}.X/{n}.jpg\n" for n in range(11_788)))
        (folder / "train_test_split.txt").write_text("".join(f"{n} {int(n >= 5_794)}\n" for n in range(11_788)))
    if layout == "dtd":
        (folder / "labels").mkdir()
        tests = (f"t{label:02}/t{label:02}_{number}.jpg\n" for label in range(47) for number in range(40))
        (folder / "labels" / "test1.txt").write_text("".join(tests))
    return folder


@pytest.mark.parametrize(
    "layout",
    ["dtd", *(pytest.param(it, marks=pytest.mark.long) for it in ("cub200", "eurosat", "tiny_imagenet"))],
)
def test_whole_set(layout: str, tmp_path: Path) -> None:
    """Loaded, with the sizes that were known before; with an image less it is refused, by name or by number."""
    folder = lay_out(layout, tmp_path)
    source = definition_source(definition(layout, size=1, cache="disk"), "mine", tmp_path)
    assert isinstance(source, KnownFolderSource)
    assert source.state(None).status == "complete"
    known, data = source.info(None), source.load(tmp_path)
    assert (data.info.num_train, data.info.num_test) == (known.num_train, known.num_test)
    if known.train_per_class is not None:
        assert data.info == known
    assert data.train.images[-1:].tolist() == [[[[90]]] * 3]
    next(path for path in folder.rglob("*1.*") if path.suffix in (".jpg", ".JPEG")).unlink()
    assert source.state(None).status == "corrupt"
    with pytest.raises(DataCorruptError, match=r"and must have|lacks 1 images, the first of which is"):
        source.load(tmp_path)


def test_not_laid_out_like_that(tmp_path: Path) -> None:
    (tmp_path / "CUB_200_2011").mkdir()
    with pytest.raises(DataCorruptError, match=r"not laid out as its authors pack it(.|\n)*unpack it anew"):
        definition_source(definition("cub200"), "mine", tmp_path).load(tmp_path)


def test_unknown_layout() -> None:
    with pytest.raises(ValueError, match="layout"):
        definition("imagenet")


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
