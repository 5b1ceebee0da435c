"""Official sets in small files of the official formats; messages for missing and corrupt ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
from support.official_formats import random_split, write_cifar, write_idx, write_mnist_like, write_svhn

from seu_bench.data.dataset import DatasetInfo, RawDataset, RawSplit
from seu_bench.data.sources import TorchvisionSource
from seu_bench.errors import DataCorruptError, DataError, DataMissingError
from seu_bench_benchmarks.datasets import DATASETS

GREY, COLOUR = (1, 28, 28), (3, 32, 32)
OFFICIAL = [name for name in DATASETS if name != "digits"]


def same(data: RawDataset, train: RawSplit, test: RawSplit) -> None:
    for found, written in ((data.train, train), (data.test, test)):
        np.testing.assert_array_equal(found.images, written.images)
        np.testing.assert_array_equal(found.labels, written.labels)
        assert found.images.dtype == np.uint8 and found.labels.dtype == np.int64
        assert found.images.flags.c_contiguous
    assert (data.info.num_train, data.info.num_test) == (len(train), len(test))
    assert data.info.train_per_class == tuple(np.bincount(train.labels, minlength=data.info.num_classes))


def source(class_name: str, shape: tuple[int, int, int], train: int, test: int, classes: int = 10) -> TorchvisionSource:
    """A source that expects small files."""
    first = 1 if class_name == "EMNIST" else 0
    each = (0,) * first + (1,) * (classes - first)
    known = DatasetInfo("small", *shape, classes, train, test, each, each)
    arguments = {"split": "letters"} if class_name == "EMNIST" else {}
    return TorchvisionSource("small", known, class_name, arguments)


@pytest.mark.parametrize("name", OFFICIAL)
def test_info_needs_no_files(name: str, tmp_path: Path) -> None:
    info = DATASETS[name].info(tmp_path)
    assert info.name == name
    assert info.train_per_class and info.test_per_class
    assert (sum(info.train_per_class), sum(info.test_per_class)) == (info.num_train, info.num_test)
    assert len(info.train_per_class) == len(info.test_per_class) == info.num_classes


def test_official_sizes() -> None:
    sizes = {
        name: (info.num_train, info.num_test, info.num_classes)
        for name in DATASETS
        for info in [DATASETS[name].info(None)]
    }
    assert sizes == {
        "digits": (1352, 445, 10),
        "mnist": (60000, 10000, 10),
        "fashion_mnist": (60000, 10000, 10),
        "kmnist": (60000, 10000, 10),
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
    assert repr(name) in caught.value.what
    assert caught.value.where == str(tmp_path)
    assert f"seu-bench data fetch {name} --data-root {tmp_path}" in (caught.value.remedy or "")


@pytest.mark.parametrize(
    ("name", "class_name"), [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST"), ("kmnist", "KMNIST")]
)
def test_mnist_like(name: str, class_name: str, tmp_path: Path) -> None:
    train, test = random_split(40, GREY, 10), random_split(20, GREY, 10, seed=1)
    write_mnist_like(tmp_path, class_name, train, test)
    if class_name != "KMNIST":
        assert DATASETS[name].state(tmp_path).status == "corrupt"  # not the official files
    small = source(class_name, GREY, 40, 20)
    state = small.state(tmp_path)
    assert (state.status, state.bytes) == ("complete", 60 * 785 + 2 * 16 + 2 * 8)
    same(small.load(tmp_path), train, test)


def test_emnist_letters_editions(tmp_path: Path) -> None:
    train, test = random_split(52, GREY, 27, first=1), random_split(26, GREY, 27, seed=1, first=1)
    write_mnist_like(tmp_path, "EMNIST", train, test, split="letters")
    same(source("EMNIST", GREY, 52, 26, classes=27).load(tmp_path), train, test)
    known = DATASETS["emnist_letters"].info(None)
    older = TorchvisionSource("older", known, "EMNIST", {"split": "letters"}, other_sizes=((52, 26),))
    assert older.info(tmp_path).train_per_class == (0, *(2,) * 26)
    assert older.info(tmp_path / "elsewhere") == known
    same(older.load(tmp_path), train, test)
    with pytest.raises(DataCorruptError, match="52 training and 26 test images, needed: 124800 and 20800 or 88800"):
        DATASETS["emnist_letters"].load(tmp_path)


def test_real_md5_table_refuses_other_files(tmp_path: Path) -> None:
    write_mnist_like(tmp_path, "MNIST", random_split(40, GREY, 10), random_split(20, GREY, 10))
    with pytest.raises(DataCorruptError, match=r"MNIST/raw/train-images-idx3-ubyte is not the official file") as caught:
        DATASETS["mnist"].load(tmp_path)
    assert "seu-bench data fetch mnist" in (caught.value.remedy or "")


def test_incomplete(tmp_path: Path) -> None:
    write_mnist_like(tmp_path, "KMNIST", random_split(40, GREY, 10), random_split(20, GREY, 10))
    (tmp_path / "KMNIST/raw/t10k-labels-idx1-ubyte").unlink()
    small = source("KMNIST", GREY, 40, 20)
    state = small.state(tmp_path)
    assert state.status == "incomplete" and "t10k-labels-idx1-ubyte" in state.detail
    with pytest.raises(DataMissingError, match="t10k-labels-idx1-ubyte"):
        small.load(tmp_path)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("truncated", r"train-images-idx3-ubyte: it is no complete idx file: .*\[40, 28, 28\].* 31259 \(31275 bytes\)"),
        ("longer", r"train-images-idx3-ubyte: it is no complete idx file: .*\[40, 28, 28\].* 31361"),
        ("header", r"train-images-idx3-ubyte: it is no complete idx file.*\(3 bytes\)"),
        ("magic", "train-images-idx3-ubyte: it is no complete idx file"),
        ("axes", r"train-labels-idx1-ubyte: it holds uint8 of shape \(40, 1\), needed: uint8, 1 axes"),
        ("type", r"train-labels-idx1-ubyte: it holds int8 of shape \(40,\)"),
        ("size", "its images are 14x14, not 28x28"),
        ("labels", r"train-labels-idx1-ubyte: its labels are 0\.\.10, needed: 0\.\.9"),
        ("counts", "has 40 images, train-labels-idx1-ubyte 39 labels"),
        ("fewer", "has 30 training and 20 test images, needed: 40 and 20"),
        ("empty", "train-images-idx3-ubyte: it is no complete idx file"),
    ],
)
def test_damaged_idx(fault: str, said: str, tmp_path: Path) -> None:
    train = random_split(40, GREY, 10)
    write_mnist_like(tmp_path, "KMNIST", train, random_split(20, GREY, 10))
    images, labels = (tmp_path / f"KMNIST/raw/train-{name}-ubyte" for name in ("images-idx3", "labels-idx1"))
    content = images.read_bytes()
    if fault == "truncated":
        images.write_bytes(content[:-101])
    elif fault == "longer":
        images.write_bytes(content + b"\0")
    elif fault == "header":
        images.write_bytes(content[:3])
    elif fault == "magic":
        images.write_bytes(bytes.fromhex("1f8b0800") + content[4:])
    elif fault == "axes":
        write_idx(labels, train.labels[:, None])
    elif fault == "type":
        labels.write_bytes(bytes((0, 0, 9, 1)) + labels.read_bytes()[4:])
    elif fault == "size":
        write_idx(images, train.images[:, 0, ::2, ::2])
    elif fault == "labels":
        write_idx(labels, np.where(np.arange(40) == 7, 10, train.labels))
    elif fault == "counts":
        write_idx(labels, train.labels[:39])
    else:
        kept = 30 if fault == "fewer" else 0
        write_idx(images, train.images[:kept, 0])
        write_idx(labels, train.labels[:kept])
    small = source("KMNIST", GREY, 40, 20)
    assert small.state(tmp_path).status == "corrupt"
    with pytest.raises(DataCorruptError, match=said):
        small.load(tmp_path)


def test_processed_files_of_an_old_torchvision_are_not_believed(tmp_path: Path) -> None:
    train, test = random_split(40, GREY, 10), random_split(20, GREY, 10)
    write_mnist_like(tmp_path, "KMNIST", train, test)
    processed = tmp_path / "KMNIST" / "processed"
    processed.mkdir()
    for name in ("training.pt", "test.pt"):
        (processed / name).write_bytes(b"unchecked")
    same(source("KMNIST", GREY, 40, 20).load(tmp_path), train, test)


def test_svhn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import SVHN

    train, test = random_split(30, COLOUR, 10), random_split(20, COLOUR, 10, seed=1)
    sums = write_svhn(tmp_path, train, test)
    assert DATASETS["svhn"].state(tmp_path).status == "corrupt"
    monkeypatch.setattr(SVHN, "split_list", {n: ["", f"{n}_32x32.mat", md5] for n, md5 in sums.items()})
    same(DATASETS["svhn"].load(tmp_path), train, test)


@pytest.mark.parametrize(("name", "classes"), [("cifar10", 10), ("cifar100", 100)])
def test_cifar(name: str, classes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = random_split(200, COLOUR, classes), random_split(100, COLOUR, classes, seed=1)
    cls = use_small_cifar(monkeypatch, classes, write_cifar(tmp_path, classes == 100, train, test))
    same(DATASETS[name].load(tmp_path), train, test)
    path = tmp_path / cls.base_folder / cls.test_list[0][0]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataCorruptError, match=f"{path.name} is not the official file"):
        DATASETS[name].load(tmp_path)


def use_small_cifar(monkeypatch: pytest.MonkeyPatch, classes: int, sums: dict[str, str]) -> Any:
    """Make torchvision's class accept the small files that have the md5s ``sums``."""
    from torchvision.datasets import CIFAR10, CIFAR100

    cls: Any = CIFAR100 if classes == 100 else CIFAR10
    for table in ("train_list", "test_list"):
        monkeypatch.setattr(cls, table, [[name, sums[name]] for name, _ in getattr(cls, table)])
    monkeypatch.setattr(cls, "meta", {**cls.meta, "md5": sums[cls.meta["filename"]]})
    return cls


@pytest.mark.parametrize(("name", "classes"), [("cifar10", 10), ("cifar100", 100)])
def test_nothing_is_unpickled_before_its_md5_was_seen(
    name: str, classes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cifar(tmp_path, classes == 100, random_split(200, COLOUR, classes), random_split(100, COLOUR, classes))

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("unpickled")

    monkeypatch.setattr("pickle.load", forbidden)
    with pytest.raises(DataCorruptError, match="is not the official file"):
        DATASETS[name].load(tmp_path)


def test_a_damaged_meta_file_is_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = random_split(100, COLOUR, 10), random_split(20, COLOUR, 10)
    cls = use_small_cifar(monkeypatch, 10, write_cifar(tmp_path, False, train, test))
    (tmp_path / cls.base_folder / "batches.meta").write_bytes(b"?")
    with pytest.raises(DataCorruptError, match=r"batches\.meta"):
        DATASETS["cifar10"].load(tmp_path)


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("mnist", "ossci-datasets.s3.amazonaws.com"),
        ("emnist_letters", "biometrics.nist.gov"),
        ("svhn", "ufldl.stanford.edu"),
        ("cifar100", "www.cs.toronto.edu"),
    ],
)
def test_fetch_without_network(name: str, host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise URLError("Temporary failure in name resolution")

    for module in ("mnist", "svhn", "cifar"):
        for function in ("download_url", "download_and_extract_archive"):
            monkeypatch.setattr(f"torchvision.datasets.{module}.{function}", offline, raising=False)
    with pytest.raises(DataError) as caught:
        DATASETS[name].fetch(tmp_path / "new")
    assert not isinstance(caught.value, DataMissingError | DataCorruptError)
    assert repr(name) in caught.value.what and host in caught.value.what
    assert "name resolution" in caught.value.what and "\n" not in caught.value.what
    assert "by hand" in (caught.value.remedy or "") and "--data-root" in (caught.value.remedy or "")


def test_fetch_downloads_and_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = random_split(40, GREY, 10), random_split(20, GREY, 10)
    calls = []

    def download(url: str, download_root: str, **_: object) -> None:
        calls.append(url)
        write_mnist_like(tmp_path, "KMNIST", train, test)
        assert Path(download_root) == tmp_path / "KMNIST" / "raw"

    monkeypatch.setattr("torchvision.datasets.mnist.download_and_extract_archive", download)
    small = source("KMNIST", GREY, 40, 20)
    small.fetch(tmp_path)
    assert len(calls) == 4 and "codh.rois.ac.jp" in calls[0]
    same(small.load(tmp_path), train, test)
    small.fetch(tmp_path)
    assert len(calls) == 4  # it is whole: nothing to do
    with pytest.raises(DataCorruptError, match="needed: 60000 and 10000"):
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
