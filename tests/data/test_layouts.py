"""Well-known sets as folders: each file has its class and its split, and what is not whole is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.commands import Command
from support.tiny import registry

from seu_bench.config.benchmark import FolderDefinition
from seu_bench.config.run import Request
from seu_bench.data.folders import LAYOUTS
from seu_bench.data.sources import definition_source
from seu_bench.engine.resolve import resolve
from seu_bench.errors import DataCorruptError, DataMissingError

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
