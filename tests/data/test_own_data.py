"""The user's own data: folders, ``.npz`` files and torchvision classes by name, and every fault of theirs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from support.official_formats import random_split, write_mnist_like

from seu_bench.config.benchmark import FolderDefinition, NpzDefinition, TorchvisionDefinition
from seu_bench.data.sources.definitions import checksum_of_definition, definition_source
from seu_bench.errors import DataCorruptError, DataError, DataMissingError, SpecError, UnknownNameError

Arrays = dict[str, NDArray[Any]]


def write_image(path: Path, grey: int, size: tuple[int, int] = (8, 6), mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (size[1], size[0]), grey).convert(mode).save(path)


def class_folders(root: Path, counts: dict[str, int]) -> None:
    for position, (name, count) in enumerate(counts.items()):
        for number in range(count):
            write_image(root / name / f"{number}.png", 50 * position + number)


def folder(path: Path, **values: Any) -> FolderDefinition:
    return FolderDefinition.model_validate({"kind": "folder", "path": path, "size": 4, **values})


def npz(path: Path, **arrays: NDArray[Any]) -> NpzDefinition:
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return NpzDefinition.model_validate({"kind": "npz", "path": path})


def by_class(name: str, **values: Any) -> TorchvisionDefinition:
    return TorchvisionDefinition.model_validate({"kind": "torchvision", "class_name": name, **values})


# --- folders ------------------------------------------------------------------------------------------------------


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
    for mode in ("RGB", "L", "RGBA", "P", "1"):
        write_image(tmp_path / "a" / f"{mode}.png", 255, mode=mode)
    deep = Image.fromarray(np.full((8, 6), 200 * 256 + 17, dtype=np.uint16))
    deep.save(tmp_path / "a" / "sixteen.png")
    write_image(tmp_path / "a" / "photo.jpg", 255)
    class_folders(tmp_path, {"b": 2})
    data = definition_source(folder(tmp_path), "mine").load(None)
    pixels = np.concatenate([data.train.images[data.train.labels == 0], data.test.images[data.test.labels == 0]])
    assert sorted(pixels.reshape(len(pixels), -1).max(axis=1)) == [200, 255, 255, 255, 255, 255, 255]


def test_folder_absent_and_a_file(tmp_path: Path) -> None:
    source = definition_source(folder(tmp_path / "none"), "mine")
    assert source.state(None).status == "missing"
    with pytest.raises(DataMissingError, match=r"'mine' is missing(.|\n)*none(.|\n)*'path'"):
        source.load(None)
    with pytest.raises(DataMissingError):
        checksum_of_definition(folder(tmp_path / "none"))
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


def layout_single(root: Path) -> None:
    class_folders(root, {"a": 2, "b": 1})


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (layout_empty, "has no images"),
        (layout_one_class, "has only one class folder.*: only"),
        (layout_empty_class, "class folders without images.*void"),
        (layout_other_classes, "only in train: c; only in test: d"),
        (layout_single, "single image of class 1"),
    ],
)
def test_folder_layout_faults(layout: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    layout(tmp_path)
    source = definition_source(folder(tmp_path), "mine")
    state = source.state(None)
    assert state.status == "corrupt" and state.detail
    with pytest.raises(DataError, match=said) as caught:
        source.load(None)
    assert "'mine'" in caught.value.what and caught.value.remedy


def test_folder_names_the_file_that_is_no_image(tmp_path: Path) -> None:
    class_folders(tmp_path, {"a": 2, "b": 2})
    broken = tmp_path / "a" / "notes.txt"
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
    first = checksum_of_definition(folder(tmp_path / "one"))
    assert len(first) == 64
    assert first == checksum_of_definition(folder(tmp_path / "two"))
    (tmp_path / "two" / "a" / "0.png").rename(tmp_path / "two" / "a" / "9.png")
    assert first != checksum_of_definition(folder(tmp_path / "two"))


def test_own_files_cannot_be_fetched(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'mine' is your own"):
        definition_source(folder(tmp_path), "mine").fetch(tmp_path)


# --- npz ----------------------------------------------------------------------------------------------------------

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


def test_npz_with_its_own_test_set(tmp_path: Path) -> None:
    definition = npz(
        tmp_path / "x.npz", x_train=IMAGES, y_train=LABELS.astype(np.uint8), x_test=IMAGES[:4], y_test=LABELS[:4]
    )
    data = definition_source(definition, "mine").load(None)
    np.testing.assert_array_equal(data.train.images[:, 0], IMAGES)
    np.testing.assert_array_equal(data.test.labels, LABELS[:4])
    assert data.test.labels.dtype == np.int64
    assert len(checksum_of_definition(definition)) == 64


FAULTS: list[tuple[Arrays, str]] = [
    ({"images": IMAGES.astype(np.int32), "labels": LABELS}, "images has dtype int32, needed is uint8"),
    ({"images": IMAGES * 1.0, "labels": LABELS}, r"images has values 0\.\.255, floating point must be in \[0, 1\]"),
    ({"images": IMAGES / np.nan, "labels": LABELS}, "floating point must be"),
    ({"images": IMAGES[0], "labels": LABELS}, r"images has shape \(5, 6\)"),
    ({"images": IMAGES, "labels": LABELS * 0.5}, "labels has dtype float64, needed are integers"),
    ({"images": IMAGES, "labels": LABELS[:, None]}, r"labels has shape \(20, 1\), needed is \[N\]"),
    ({"images": IMAGES, "labels": LABELS[:7]}, "images has 20 images, labels 7 labels"),
    ({"images": IMAGES, "labels": LABELS - 1}, "labels has negative labels: -1"),
    ({"images": IMAGES, "labels": LABELS + 10**9}, "label 1000000001; labels must count"),
    ({"images": IMAGES[:0], "labels": LABELS[:0]}, "images is empty"),
    ({"images": IMAGES.astype(np.int32), "labels": LABELS - 1}, "images has dtype int32.*; labels has negative"),
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


# --- torchvision by class name ------------------------------------------------------------------------------------


def test_class_without_splits_is_split_here(tmp_path: Path) -> None:
    arguments = {"size": 60, "image_size": [3, 8, 9], "num_classes": 3}
    source = definition_source(by_class("FakeData", train=arguments, test_fraction=0.5), "fake")
    assert source.state(tmp_path).status == "embedded"
    source.fetch(tmp_path)
    data = source.load(tmp_path)
    assert data.info == source.info(tmp_path)
    assert data.train.images.shape[1:] == (3, 8, 9)
    assert len(data.train) + len(data.test) == 60 and abs(len(data.train) - 30) <= 3
    assert data.info.num_classes == 3
    resized = by_class("FakeData", train=arguments, size=4, channels=1)
    assert definition_source(resized, "fake").load(tmp_path).train.images.shape[1:] == (1, 4, 4)
    assert checksum_of_definition(resized) == ""


def test_class_with_a_test_table_of_its_own(tmp_path: Path) -> None:
    common = {"image_size": [3, 4, 4], "num_classes": 2}
    definition = by_class("FakeData", train={**common, "size": 20}, test={**common, "size": 7, "random_offset": 99})
    data = definition_source(definition, "fake").load(tmp_path)
    assert (data.info.num_train, data.info.num_test) == (20, 7)
    sizes = by_class("FakeData", train={**common, "size": 20}, test={"image_size": [3, 5, 5], "size": 9})
    with pytest.raises(DataError, match=r"\(3, 4, 4\) in training and \(3, 5, 5\) in test"):
        definition_source(sizes, "fake").load(tmp_path)


def test_class_with_train_argument(tmp_path: Path) -> None:
    train, test = random_split(40, (1, 28, 28), 10), random_split(20, (1, 28, 28), 10, seed=1)
    write_mnist_like(tmp_path, "MNIST", train, test)
    source = definition_source(by_class("MNIST"), "mine")
    assert source.state(tmp_path).status == "complete"
    data = source.load(tmp_path)
    np.testing.assert_array_equal(data.train.images, train.images)
    np.testing.assert_array_equal(data.test.labels, test.labels)
    # One by one gives the same pixels as the whole array does.
    coloured = definition_source(by_class("MNIST", channels=3), "mine").load(tmp_path)
    np.testing.assert_array_equal(coloured.train.images, np.repeat(train.images, 3, axis=1))


def test_arguments_behind_kwargs_are_found(tmp_path: Path) -> None:
    train, test = random_split(52, (1, 28, 28), 27, first=1), random_split(26, (1, 28, 28), 27, first=1)
    write_mnist_like(tmp_path, "EMNIST", train, test, split="letters")
    letters = {"split": "letters"}
    data = definition_source(by_class("EMNIST", train=letters, test=letters), "mine").load(tmp_path)
    assert (data.info.num_train, data.info.num_test, data.info.num_classes) == (52, 26, 27)
    with pytest.raises(SpecError, match=r"torchvision.datasets.EMNIST refuses(.|\n)*\[datasets.mine.train\]"):
        definition_source(by_class("EMNIST"), "mine").load(tmp_path)


def test_class_with_split_argument(tmp_path: Path) -> None:
    for split, count in (("train", 3), ("test", 2)):
        for label in ("negative", "positive"):
            for number in range(count):
                write_image(
                    tmp_path / "rendered-sst2" / split / label / f"{number}.png", number, size=(20, 20 + number)
                )

    source = definition_source(by_class("RenderedSST2", size=(6, 7)), "mine")
    data = source.load(tmp_path)
    assert data.train.images.shape == (6, 3, 6, 7)
    assert (data.info.train_per_class, data.info.test_per_class) == ((3, 3), (2, 2))
    with pytest.raises(DataError, match=r"images of different sizes: \(20, 20\) first, image 1 \(20, 21\)"):
        definition_source(by_class("RenderedSST2"), "mine").load(tmp_path)


def test_class_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = definition_source(by_class("MNIST"), "mine")
    assert source.state(tmp_path).status == "missing"
    with pytest.raises(DataMissingError) as caught:
        source.load(tmp_path)
    assert caught.value.where == str(tmp_path)
    call = f"MNIST(root='{tmp_path}', train={{}}, download=True)"
    command = f'python -c "from torchvision.datasets import MNIST; {call.format(True)}; {call.format(False)}"'
    assert caught.value.remedy == command

    def offline(*_: object, **__: object) -> None:
        raise URLError("no network")

    monkeypatch.setattr("torchvision.datasets.mnist.download_and_extract_archive", offline)
    with pytest.raises(DataError, match=r"'mine' could not be downloaded: .*no network"):
        source.fetch(tmp_path)


def test_faulty_classes(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"no class 'FakeDate' \(did you mean 'FakeData'\?\)"):
        definition_source(by_class("FakeDate"), "mine").load(tmp_path)
    with pytest.raises(SpecError) as caught:
        definition_source(by_class("FakeData", train={"sise": 3, "transform": 1}), "mine").load(tmp_path)
    assert len(caught.value.faults) == 2
    assert "datasets.mine.train.sise" in caught.value.faults[0] and "'size'" in caught.value.faults[0]
    with pytest.raises(SpecError, match=r"datasets\.m\.test\.spilt: no argument of FakeData"):
        definition_source(by_class("FakeData", test={"spilt": 2}), "m").load(tmp_path)


def test_class_that_gives_no_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torchvision.datasets

    class Odd:
        answer: Any = None

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return self.answer

    picture = Image.new("RGB", (4, 4))
    monkeypatch.setattr(torchvision.datasets, "FakeData", Odd)
    for answer, said in (
        ((picture, (1, 2)), "labels that are tuple, not int"),
        ((picture, -1), "negative labels"),
        (picture, "does not give pairs"),
        ((picture.convert("F"), 1), "unusable image 0"),
    ):
        Odd.answer = answer
        with pytest.raises(DataError, match=said):
            definition_source(by_class("FakeData"), "odd").load(tmp_path)
