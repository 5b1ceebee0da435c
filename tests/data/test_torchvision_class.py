"""Classes of torchvision by name: splits, arguments, and every fault of theirs."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
from PIL import Image
from support.official_formats import random_split, write_image, write_mnist_like

from seu_bench.config.benchmark import TorchvisionDefinition
from seu_bench.data.sources.definitions import definition_source
from seu_bench.data.sources.torchvision_class import _class_names
from seu_bench.errors import DataError, DataMissingError, SpecError, UnknownNameError


def by_class(name: str, **values: Any) -> TorchvisionDefinition:
    return TorchvisionDefinition.model_validate({"kind": "torchvision", "class_name": name, **values})


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
    assert definition_source(resized, "mine").checksum() == ""


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


def test_names_of_classes() -> None:
    """Those that the class lists; a set that made its images up has none."""

    def named(classes: object) -> list[str] | None:
        return _class_names(SimpleNamespace(classes=classes))

    assert named(["ant", "bee"]) == ["ant", "bee"]
    assert named([("tench", "Tinca tinca"), ("crane",)]) == ["tench", "crane"]
    assert named(None) is named([1, 2]) is named([]) is None


def test_class_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = definition_source(by_class("MNIST"), "mine")
    folder = tmp_path / '$(touch X)"'
    assert source.state(folder).status == "missing"
    with pytest.raises(DataMissingError) as caught:
        source.load(folder)
    assert caught.value.where == str(folder)
    call = f"MNIST(root='{folder}', train={{}}, download=True)"
    code = f"from torchvision.datasets import MNIST; {call.format(True)}; {call.format(False)}"
    assert caught.value.remedy == shlex.join(["python", "-c", code])

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


@pytest.mark.parametrize("arguments", [{"size": 10**8}, {"size": 8, "image_size": (3, 10**6, 10**6)}])
def test_made_up_images_of_an_absurd_number_or_size(arguments: dict[str, Any], tmp_path: Path) -> None:
    """Refused with the size before the first one is made."""
    definition = by_class("FakeData", train=arguments)
    with pytest.raises(DataError, match=r"does not fit into memory: .* images of 3 x .* bytes, and .* are free"):
        definition_source(definition, "fake").load(tmp_path)
