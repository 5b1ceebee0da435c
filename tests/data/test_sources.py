"""Official sets in small files of their formats, other classes of torchvision, digits: read, or refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
from PIL import Image
from support.official_formats import random_split, write_cifar, write_idx, write_image, write_mnist_like, write_svhn

from seu_bench.config.benchmark import TorchvisionDefinition
from seu_bench.data.dataset import DatasetInfo, RawDataset, RawSplit, hold_out
from seu_bench.data.sources import DigitsSource, TorchvisionSource, definition_source
from seu_bench.errors import DataCorruptError, DataError, DataMissingError, UnknownNameError
from seu_bench_benchmarks.datasets import DATASETS

GREY, COLOUR = (1, 28, 28), (3, 32, 32)
OFFICIAL = [name for name in DATASETS if name != "digits"]


def same(data: RawDataset, train: RawSplit, test: RawSplit) -> None:
    for found, written in ((data.train, train), (data.test, test)):
        np.testing.assert_array_equal(found.images, written.images)
        np.testing.assert_array_equal(found.labels, written.labels)
        assert found.images.dtype == np.uint8 and found.labels.dtype == np.int64
    assert data.info.train_per_class == tuple(np.bincount(train.labels, minlength=data.info.num_classes))


def by_class(name: str, **values: Any) -> TorchvisionDefinition:
    return TorchvisionDefinition.model_validate({"kind": "torchvision", "class_name": name, **values})


def small(class_name: str, files: str, learned: RawSplit, tested: RawSplit, sha256: Any = None, **more: Any) -> Any:
    """A source that knows that it has these images."""
    shape = learned.images.shape[1:]
    classes = 1 + int(learned.labels.max())
    each = (tuple(np.bincount(split.labels, minlength=classes).tolist()) for split in (learned, tested))
    known = DatasetInfo("small", *shape, classes, len(learned), len(tested), *each)
    return TorchvisionSource(by_class(class_name, **more), "small", known, files, sha256)


# ---------------------------------------------------------------------------------------------------- official sets


def test_official_sizes(tmp_path: Path) -> None:
    """They are known without files, in all and of each class."""
    sizes = {}
    for source in DATASETS.values():
        info = source.info(tmp_path)
        sizes[info.name] = (info.num_train, info.num_test, info.num_classes)
        assert info.class_names and len({*info.class_names}) == info.num_classes
        for each, total in ((info.train_per_class, info.num_train), (info.test_per_class, info.num_test)):
            assert each and (sum(each), len(each)) == (total, info.num_classes)
    assert sizes == {
        "digits": (1352, 445, 10),
        **dict.fromkeys(("mnist", "fashion_mnist", "kmnist"), (60000, 10000, 10)),
        "emnist_letters": (124800, 20800, 27),
        "svhn": (73257, 26032, 10),
        "cifar10": (50000, 10000, 10),
        "cifar100": (50000, 10000, 100),
        "dtd": (3760, 1880, 47),
    }


@pytest.mark.parametrize("name", OFFICIAL)
def test_absent(name: str, tmp_path: Path) -> None:
    state = DATASETS[name].state(tmp_path)
    assert (state.status, state.where, state.bytes) == ("missing", tmp_path, None)
    with pytest.raises(DataMissingError) as caught:
        DATASETS[name].load(tmp_path)
    assert repr(name) in caught.value.what and caught.value.where == str(tmp_path)
    assert f"seu-bench data fetch {name} --data-root {tmp_path}" in (caught.value.remedy or "")


@pytest.mark.parametrize("class_name", ["MNIST", "FashionMNIST", "KMNIST"])
def test_mnist_like(class_name: str, tmp_path: Path) -> None:
    """Files are read unpacked; of which torchvision has no checksum, the images that are read must be the official."""
    train, test = random_split(40, GREY, 10), random_split(20, GREY, 10, seed=1)
    write_mnist_like(tmp_path, class_name, train, test)
    source = small(class_name, f"{class_name}/raw/*-ubyte", train, test)
    state = source.state(tmp_path)
    assert (state.status, state.bytes) == ("complete", 60 * 785 + 2 * 16 + 2 * 8)
    data = source.load(tmp_path)
    same(data, train, test)
    small(class_name, "*", train, test, data.checksum()).load(tmp_path)
    images = tmp_path / class_name / "raw" / "train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:-1] + b"?")
    with pytest.raises(DataCorruptError, match=r"corrupt: its 40 training and 20 test images are not those of"):
        small(class_name, "*", train, test, data.checksum()).load(tmp_path)


def test_emnist_letters(tmp_path: Path) -> None:
    train, test = random_split(52, GREY, 27, first=1), random_split(26, GREY, 27, seed=1, first=1)
    write_mnist_like(tmp_path, "EMNIST", train, test, split="letters")
    letters: dict[str, Any] = {"train": {"split": "letters"}, "test": {"split": "letters"}}
    same(small("EMNIST", "EMNIST/raw/*", train, test, **letters).load(tmp_path), train, test)
    with pytest.raises(DataCorruptError, match=r"its 52 training and 26 test images .*has 124,800 and 20,800"):
        DATASETS["emnist_letters"].load(tmp_path)


@pytest.mark.parametrize("fault", ["absent", "truncated", "longer", "header", "type", "labels", "counts", "fewer"])
def test_damaged_idx(fault: str, tmp_path: Path) -> None:
    """Of files whose md5 is not known: sizes, and how many there are of each class."""
    train, test = random_split(40, GREY, 10), random_split(20, GREY, 10)
    write_mnist_like(tmp_path, "KMNIST", train, test)
    images, labels = (tmp_path / f"KMNIST/raw/train-{name}-ubyte" for name in ("images-idx3", "labels-idx1"))
    content = images.read_bytes()
    if fault == "absent":
        images.unlink()
    elif fault in ("truncated", "longer", "header"):
        images.write_bytes({"truncated": content[:-101], "longer": content + b"\0", "header": content[:3]}[fault])
    elif fault == "type":
        labels.write_bytes(bytes((0, 0, 9, 1)) + labels.read_bytes()[4:])
    elif fault == "labels":
        write_idx(labels, np.where(np.arange(40) == 7, 10, train.labels))
    elif fault == "counts":
        write_idx(labels, train.labels[:39])
    else:
        write_idx(images, train.images[:30, 0])
        write_idx(labels, train.labels[:30])
    source = small("KMNIST", "KMNIST/raw/*", train, test)
    assert source.state(tmp_path).status == "corrupt"
    said = r"'small' is corrupt: (.|\n)*delete KMNIST/raw/\* there, and|'small' has files that are no usable images"
    with pytest.raises(DataCorruptError, match=said):
        source.load(tmp_path)


def test_svhn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import SVHN

    train, test = random_split(30, COLOUR, 10), random_split(20, COLOUR, 10, seed=1)
    sums = write_svhn(tmp_path, train, test)
    assert DATASETS["svhn"].state(tmp_path).status == "corrupt"
    monkeypatch.setattr(SVHN, "split_list", {n: ["", f"{n}_32x32.mat", md5] for n, md5 in sums.items()})
    same(small("SVHN", "*.mat", train, test).load(tmp_path), train, test)


@pytest.mark.parametrize(("name", "classes"), [("cifar10", 10), ("cifar100", 100)])
def test_cifar(name: str, classes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is unpickled before its md5 was seen, the table of classes among it."""
    train, test = random_split(200, COLOUR, classes), random_split(100, COLOUR, classes, seed=1)
    sums = write_cifar(tmp_path, classes == 100, train, test)
    with monkeypatch.context() as patch:
        patch.setattr("pickle.load", lambda *_, **__: pytest.fail("unpickled"))
        with pytest.raises(DataCorruptError, match="files are damaged or missing"):
            DATASETS[name].load(tmp_path)
    from torchvision.datasets import CIFAR10, CIFAR100

    cls: Any = CIFAR100 if classes == 100 else CIFAR10
    for table in ("train_list", "test_list"):
        monkeypatch.setattr(cls, table, [[file, sums[file]] for file, _ in getattr(cls, table)])
    monkeypatch.setattr(cls, "meta", {**cls.meta, "md5": sums[cls.meta["filename"]]})
    same(small(cls.__name__, "*/*", train, test).load(tmp_path), train, test)
    for file in (cls.test_list[0][0], cls.meta["filename"]):
        path = tmp_path / cls.base_folder / file
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        with pytest.raises(DataCorruptError, match="files are damaged or missing"):
            DATASETS[name].load(tmp_path)
        path.write_bytes(content)


@pytest.mark.parametrize("name", ["mnist", "emnist_letters", "svhn", "cifar100"])
def test_fetch_without_network(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise URLError("Temporary failure in name resolution")

    for module in ("mnist", "svhn", "cifar"):
        for function in ("download_url", "download_and_extract_archive"):
            monkeypatch.setattr(f"torchvision.datasets.{module}.{function}", offline, raising=False)
    with pytest.raises(DataError) as caught:
        DATASETS[name].fetch(tmp_path / "new")
    assert not isinstance(caught.value, DataMissingError | DataCorruptError)
    assert repr(name) in caught.value.what and "\n" not in caught.value.what
    assert "by hand" in (caught.value.remedy or "") and "--data-root" in (caught.value.remedy or "")


def test_fetch_downloads_and_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = random_split(40, GREY, 10), random_split(20, GREY, 10)
    calls = []

    def download(url: str, download_root: str, **_: object) -> None:
        calls.append(url)
        write_mnist_like(tmp_path, "KMNIST", train, test)
        assert Path(download_root) == tmp_path / "KMNIST" / "raw"

    monkeypatch.setattr("torchvision.datasets.mnist.download_and_extract_archive", download)
    source = small("KMNIST", "KMNIST/raw/*", train, test)
    source.fetch(tmp_path)
    assert len(calls) == 4 and "codh.rois.ac.jp" in calls[0]
    same(source.load(tmp_path), train, test)
    source.fetch(tmp_path)
    assert len(calls) == 4  # it is whole: nothing to do
    with pytest.raises(DataCorruptError, match="which has 60,000 and 10,000"):
        DATASETS["kmnist"].fetch(tmp_path)


@pytest.mark.realdata
@pytest.mark.skipif("SEU_BENCH_DATA" not in os.environ, reason="SEU_BENCH_DATA does not name the real data sets")
@pytest.mark.parametrize(
    ("name", "mean"), [("mnist", (0.1307,)), ("fashion_mnist", (0.2860,)), ("cifar100", (0.5071, 0.4865, 0.4409))]
)
def test_real_files(name: str, mean: tuple[float, ...]) -> None:
    real = DATASETS[name]
    state = real.state(None)
    if state.status == "missing":
        pytest.skip(f"{name} is not below SEU_BENCH_DATA")
    assert state.status == "complete", state.detail
    data = real.load(None)
    assert data.info == real.info(None)
    assert data.train.images.mean(axis=(0, 2, 3)) / 255 == pytest.approx(mean, abs=1e-4)


# ------------------------------------------------------------------------------------------------------ other classes


def test_class_without_splits_is_split_here(tmp_path: Path) -> None:
    arguments = {"size": 60, "image_size": [3, 8, 9], "num_classes": 3}
    source = definition_source(by_class("FakeData", train=arguments, test_fraction=0.5), "fake")
    assert source.state(tmp_path).status == "embedded"
    source.fetch(tmp_path)
    data = source.load(tmp_path)
    assert data.info == source.info(tmp_path)
    assert data.train.images.shape[1:] == (3, 8, 9) and data.info.num_classes == 3
    assert len(data.train) + len(data.test) == 60 and abs(len(data.train) - 30) <= 3
    resized = by_class("FakeData", train=arguments, size=4, channels=1)
    assert definition_source(resized, "fake").load(tmp_path).train.images.shape[1:] == (1, 4, 4)
    assert definition_source(resized, "mine").checksum() == ""


def test_class_with_train_argument(tmp_path: Path) -> None:
    """One by one gives the same pixels as the whole array does."""
    train, test = random_split(40, GREY, 10), random_split(20, GREY, 10, seed=1)
    write_mnist_like(tmp_path, "MNIST", train, test)
    source = definition_source(by_class("MNIST"), "mine")
    assert source.state(tmp_path).status == "complete"
    same(source.load(tmp_path), train, test)
    coloured = definition_source(by_class("MNIST", channels=3), "mine").load(tmp_path)
    np.testing.assert_array_equal(coloured.train.images, np.repeat(train.images, 3, axis=1))


def test_class_with_split_argument(tmp_path: Path) -> None:
    for split, count in (("train", 3), ("test", 2)):
        for place in (f"{split}/{label}/{number}" for label in ("negative", "positive") for number in range(count)):
            number = int(place[-1])
            write_image(tmp_path / "rendered-sst2" / f"{place}.png", number, size=(20, 20 + number))
    source = definition_source(by_class("RenderedSST2", size=(6, 7)), "mine")
    data = source.load(tmp_path)
    assert data.train.images.shape == (6, 3, 6, 7) and data.info.class_names == ("negative", "positive")
    assert (data.info.train_per_class, data.info.test_per_class) == ((3, 3), (2, 2))
    with pytest.raises(DataError, match=r"images of different sizes: \(20, 20\) first, then \(20, 21\)"):
        definition_source(by_class("RenderedSST2"), "mine").load(tmp_path)


def test_class_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = definition_source(by_class("MNIST"), "mine")
    assert source.state(tmp_path).status == "missing"
    with pytest.raises(DataMissingError) as caught:
        source.load(tmp_path)
    assert caught.value.where == str(tmp_path)
    assert f"torchvision.datasets.MNIST('{tmp_path}', download=True)" in str(caught.value.remedy)
    monkeypatch.setattr("torchvision.datasets.mnist.download_and_extract_archive", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # of no fault of files or the network
        source.fetch(tmp_path)


def test_faulty_classes(tmp_path: Path) -> None:
    """Names and arguments."""
    with pytest.raises(UnknownNameError, match=r"no class 'FakeDate' \(did you mean 'FakeData'\?\)"):
        definition_source(by_class("FakeDate"), "mine").load(tmp_path)
    for definition in (by_class("FakeData", train={"sise": 3}), by_class("EMNIST")):
        with pytest.raises(DataError, match=r"is refused by torchvision.datasets(.|\n)*\[datasets.mine.train\]"):
            definition_source(definition, "mine").load(tmp_path)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((Image.new("RGB", (4, 4)), (1, 2)), "image 0: it is no pair of an image and an int"),
        ((Image.new("RGB", (4, 4)), -1), "negative labels"),
        (Image.new("RGB", (4, 4)), "it is no pair"),
        ((Image.new("F", (4, 4)), 1), r"image 0: its pixels have more than 8 bits \(from 0.0 to 0.0, mode F\)"),
    ],
)
def test_class_that_gives_no_labels(answer: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return answer

    monkeypatch.setattr("torchvision.datasets.FakeData", Odd)
    with pytest.raises(DataError, match=said):
        definition_source(by_class("FakeData"), "odd").load(tmp_path)


# ----------------------------------------------------------------------------------- digits, the root, held-out images


def test_digits() -> None:
    """As scikit-learn reads them."""
    from sklearn.datasets import load_digits

    data, expected = DATASETS["digits"].load(None), load_digits()
    assert DATASETS["digits"].state(None).status == "embedded"
    assert data.info == DigitsSource().info(None)
    assert data.train.images.shape == (1352, 1, 8, 8)
    assert int(data.train.images.sum()) + int(data.test.images.sum()) == np.round(expected.data * (255 / 16)).sum()
    train, _ = hold_out(expected.target, 0.25, "digits")
    np.testing.assert_array_equal(data.train.labels, expected.target[train])
    np.testing.assert_array_equal(data.train.images[:, 0], np.round(expected.images[train] * (255 / 16)))


def test_hold_out_takes_the_fraction_of_each_class() -> None:
    labels = np.repeat(np.arange(3), (100, 10, 2)).astype(np.int64)
    train, test = hold_out(labels, 0.25, "x")
    assert sorted([*train, *test]) == list(range(112))
    assert np.bincount(labels[test]).tolist() == [25, 2, 1]
    np.testing.assert_array_equal(test, hold_out(labels, 0.25, "x")[1])
    with pytest.raises(DataError, match="single sample of class 1"):
        hold_out(np.asarray([0, 0, 1]), 0.25, "x")
