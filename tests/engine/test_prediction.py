"""Predictions: from files, images and arrays, as the run itself was evaluated and as its ONNX answers, to the image."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images
from support.commands import SMALL_SEU
from support.tiny import registry

import seu_bench
from seu_bench.data.streams import build_stream
from seu_bench.engine.model_card import ModelCard
from seu_bench.engine.onnx_export import onnx_bytes, resize
from seu_bench.engine.prediction import find_images
from seu_bench.engine.resolve import resolve
from seu_bench.engine.saved_model import LearnedModel, load_model
from seu_bench.engine.verification import request_of
from seu_bench.errors import DataCorruptError, DataMissingError, RequestError
from seu_bench.models.backbone import BackboneModel
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, TaskInput

STREAM = """
name = "pictures"
default_protocol = "smoke"
[stream]
kind = "classes"
dataset = "own"
order = "fixed"
groups = [["3", "8", "0"], ["7", "1", "5"]]
[datasets.own]
kind = "folder"
path = "{folder}"
size = [8, 10]
channels = {channels}
[protocols.smoke.images]
train = 200
valid = 100
test = 200
"""
SMALL = dict(option.split("=") for option in SMALL_SEU[1::2])
OPTIONS: dict[str, dict[str, Any]] = {
    **{name: {"backbone": "mlp", "epochs": 4} for name in ("naive", "replay", "icarl", "er_ace")},
    "slda": {},
    "seu": SMALL,
    "pnn": {"width": 0.05, "epochs": 2},
}
#: What each can do; the last one infers the task. Those that are over at once are tried by ``make test``.
CASES = [
    *((name, scenario) for name in ("naive", "replay") for scenario in ("task", "class", "domain")),
    *(("icarl", "class"), ("er_ace", "class"), ("slda", "class")),
    *((name, scenario) for name in ("seu", "pnn") for scenario in ("task", "class", "domain")),
]
SHORT = [("naive", "class", "resized"), ("pnn", "class", "as_they_are")]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real digits as pictures: of the size that the network takes, and each of another one, in colours, as JPEG too."""
    folder = tmp_path_factory.mktemp("pictures")
    data = Registry().datasets["digits"].factory.load(None)
    for split in ("train", "test"):
        images, labels = getattr(data, split).images, getattr(data, split).labels
        for number in np.concatenate([np.flatnonzero(labels == label)[:45] for label in range(10)]):
            image, label = Image.fromarray(images[number, 0]), labels[number]
            for kind, size in (("as_they_are", (10, 8)), ("resized", (40 + number % 31, 12 + number % 9))):
                place = folder / kind / split / str(label)
                place.mkdir(parents=True, exist_ok=True)
                picture = image.resize(size, Image.Resampling.BICUBIC)
                if kind == "resized":
                    picture = Image.merge("RGB", [picture, picture.transpose(Image.Transpose.ROTATE_180), picture])
                picture.save(place / f"{number:04}.{'jpg' if kind == 'resized' and number % 2 else 'png'}")
    for kind, channels in (("as_they_are", 1), ("resized", 3)):
        (folder / f"{kind}.toml").write_text(STREAM.format(folder=kind, channels=channels))
    return folder


def learn(benchmark: Path, results: Path, strategy: str, scenario: str, **more: Any) -> Record:
    options = OPTIONS[strategy] | {"benchmark.stream.scenario": scenario} | more
    if strategy in ("seu", "pnn") and scenario != "task":
        options["infer_task"] = "entropy"
    return seu_bench.run(strategy, str(benchmark), results=results, device="cpu", options=options)


def evaluated(record: Record, benchmark: Path, model: LearnedModel, task: int) -> list[int]:
    """Outputs for the test images of a task as the run's own evaluation computes them, in the order of the files."""
    run = resolve(registry(), request_of(record, benchmark))
    test = build_stream(run.spec.benchmark, run.load, run.limits, run.spec.seed).tasks[task].test
    images, labels = test.gather(torch.arange(len(test)))
    answers = model(images, task if record.scenario == "task" else None).argmax(dim=1)
    accuracy = record.accuracy_matrix[-1][task]
    assert accuracy is not None and int((answers == labels).sum()) == round(accuracy * len(labels))
    return [int(answer) for answer in answers]


def by_onnx(
    card: ModelCard, content: bytes, files: list[Path], channels: int, scale: float = 1
) -> tuple[list[str], Any]:
    """Class names and probabilities by onnxruntime of pictures, read by Pillow alone."""
    session: Any = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    found = []
    for file in files:
        with Image.open(file) as image:
            pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
        pixels = pixels.reshape(1, *pixels.shape[:2], channels)
        logits, shares = session.run(
            ["logits", "probabilities"], {"images": pixels if scale == 1 else (pixels / scale).astype(np.float32)}
        )
        assert logits.argmax() == shares.argmax() and shares.sum() == pytest.approx(1, abs=1e-5)
        found.append(shares[0])
    return [names[row.argmax()] for row in found], np.stack(found)


@pytest.mark.parametrize(
    ("strategy", "scenario", "kind"),
    [
        pytest.param(*case, kind, marks=[] if (*case, kind) in SHORT else pytest.mark.long)
        for case in CASES
        for kind in ("as_they_are", "resized")
    ],
)
def test_all_answers_agree(pictures: Path, tmp_path: Path, strategy: str, scenario: str, kind: str) -> None:
    """Predicted from files, computed by onnxruntime from pixels, and evaluated by the run: the same, image by image."""
    benchmark, channels = pictures / f"{kind}.toml", 1 if kind == "as_they_are" else 3
    record = learn(benchmark, tmp_path, strategy, scenario)
    model = load_model(record.run_id, tmp_path)
    content = b"" if scenario == "task" else onnx_bytes(model)
    for task, names in enumerate((("3", "8", "0"), ("7", "1", "5"))):
        told = task if scenario == "task" else None
        # As the data set numbers them: classes by name, files of a class by name.
        files = [file for name in sorted(names) for file in sorted((pictures / kind / "test" / name).iterdir())]
        found = model.predict(files, task=told)
        assert found.files == tuple(files)
        assert found.outputs == evaluated(record, benchmark, model, task)
        assert np.isfinite(found.probabilities).all()
        assert np.abs(found.probabilities.sum(axis=1) - 1).max() < 1e-12
        known = model.card.outputs_of(told)
        right = sum(known[file.parent.name] == output for file, output in zip(files, found.outputs, strict=True))
        accuracy = record.accuracy_matrix[-1][task]
        assert accuracy is not None and right == round(accuracy * len(files))
        labels, shares = by_onnx(content or onnx_bytes(model, task), files, channels)
        assert labels == found.labels
        assert np.abs(shares - found.probabilities).max() < 1e-3  # slda has large logits
    if strategy == "naive" and kind == "resized":
        labels, _ = by_onnx(onnx_bytes(model, told, "float"), files, channels, 255)
        assert labels == found.labels


@pytest.mark.parametrize("size", [(8, 8), (32, 32), (28, 40), (200, 300)])
def test_resized_as_by_pillow(size: tuple[int, int]) -> None:
    """To the bit, larger and smaller; by 1 at most where Pillow resizes columns first, as it may in tall pictures."""
    photo = np.asarray(Image.fromarray(load_sample_images().images[0]).convert("L"))
    for pixels, most in ((photo[:200], 0), (photo[:64, :90], 0), (photo[:9, :12], 0), (photo[:, :60], 1)):
        expected = np.asarray(Image.fromarray(pixels).resize(size[::-1], Image.Resampling.BILINEAR))
        found = resize(torch.tensor(pixels)[None, None], size)[0, 0].numpy()
        assert np.abs(found - expected).max() <= most


@pytest.fixture(scope="module")
def model(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> LearnedModel:
    """A model of coloured images 8 pixels high and 10 wide."""
    results = tmp_path_factory.mktemp("results")
    record = learn(pictures / "resized.toml", results, "naive", "class", epochs=1)
    return load_model(record.run_id, results)


def test_inputs_of_all_kinds(model: LearnedModel, pictures: Path) -> None:
    """The same pictures as files, a folder, images of Pillow, arrays and tensors give the same answers."""
    folder = pictures / "resized" / "test" / "3"
    expected = model.predict(folder, batch_size=7)
    assert len(expected) == 45 and expected.files == tuple(sorted(folder.iterdir()))
    files = list(map(str, expected.files))
    images = [Image.open(file) for file in files]
    arrays = [np.asarray(image) for image in images]
    small = np.stack([np.asarray(image.resize((10, 8), Image.Resampling.BILINEAR)) for image in images])
    for inputs in (
        *(files, Path(folder), [folder], images, arrays, [torch.from_numpy(array.copy()) for array in arrays]),
        *(small, torch.from_numpy(small), small.transpose(0, 3, 1, 2), small / 255, (small / 255).astype(np.float32)),
        small.astype(np.int64),
    ):
        found = model.predict(inputs)
        assert np.abs(found.probabilities - expected.probabilities).max() < 1e-6
        assert found.labels == expected.labels
        assert found.files in ((), expected.files)
    for single in (files[0], images[0], arrays[0], small[0]):
        assert np.abs(model.predict(single).probabilities - expected.probabilities[:1]).max() < 1e-6
    grey = np.asarray(images[0].convert("L"))
    assert len(model.predict(grey)) == 1 and len(model.predict(np.stack([grey] * 5))) == 5
    assert model.predict([]).probabilities.shape == (0, 6)
    (top,) = model.predict(files[0]).top(2)
    assert [name for name, _ in top] == [
        model.card.classes[place] for place in np.argsort(-expected.probabilities[0])[:2]
    ]
    assert top[0][1] == pytest.approx(expected.probabilities[0].max())


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        (np.zeros((3, 8, 10), np.uint8), "which axis has the 1 or 3 channels of shape (3, 8, 10) cannot be told"),
        (np.zeros((2, 3, 10, 3), np.uint8), "cannot be told"),
        (np.zeros((2, 8, 10, 4), np.uint8), "has shape (2, 8, 10, 4)"),
        (np.zeros(8, np.uint8), "has shape (8,)"),
        (np.full((8, 10, 3), 255.0), "values 255..255; needed are whole numbers in 0..255, or floating point"),
        (np.full((8, 10, 3), -1.5), "values -1.5..-1.5"),
        (np.full((8, 10, 3), np.nan), "dtype float64 and values nan..nan"),
        (np.full((8, 10, 3), 256), "values 256..256"),
        (np.zeros((8, 10, 3), complex), "has dtype complex128"),
        ([[1, 2], [3, 4]], "a list is nothing to predict"),
        ([None], "a NoneType is nothing to predict"),
    ],
)
def test_refused_inputs(model: LearnedModel, inputs: Any, told: str) -> None:
    """What was found is said."""
    with pytest.raises(RequestError) as refused:
        model.predict(inputs)
    assert told in refused.value.what and refused.value.remedy


def test_refused_files(model: LearnedModel, pictures: Path, tmp_path: Path) -> None:
    """Missing ones before anything is computed; unreadable ones behind the answers to all others."""
    good = sorted((pictures / "resized" / "test" / "3").iterdir())[:5]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataMissingError, match=r"(?s)nothing\.png: no such file.*empty: a folder without images"):
        find_images([*good, tmp_path / "nothing.png", tmp_path / "empty"])
    (tmp_path / "a.png").write_text("no picture")
    Image.fromarray(np.full((9, 9), 4000, np.uint16)).save(tmp_path / "wide.png")
    asked = [good[0], tmp_path / "a.png", *good[1:4], tmp_path / "wide.png", good[4]]
    found = []
    with pytest.raises(DataCorruptError, match=r"(?s)2 of 7 .*a\.png: cannot identify.*wide\.png: .* more than 8 bits"):
        for part in model.predict_batches(asked, batch_size=2):
            found.append(part)
    assert [file for part in found for file in part.files] == good


def card(**fields: Any) -> ModelCard:
    """Of a run of two tasks of which nothing else is told."""
    same = TaskInput(shape=(1, 2, 2), pad=0, background=None, mean=(0.0,), std=(1.0,), permutation_seed=None)
    known = {"run_id": "x-1", "task_names": ("a", "b"), "task_classes": (2, 2), "task_inputs": (same, same)}
    known |= {"task_class_names": (("cat", "dog"), ("cat", "fox")), "accuracy_matrix": ((0.5, None), (0.5, 0.5))}
    return ModelCard.of(Record.model_construct(**known | fields))


def test_names_of_outputs() -> None:
    """Classes of tasks, of one head, and of outputs that tasks share; a name of several classes has the task."""
    own = card(scenario="task")
    assert (own.task_label, own.classes, own.classes_of(1)) == ("required", None, ("cat", "fox"))
    one = card(scenario="class")
    assert one.classes_of(None) == one.classes_of(0) == ("a: cat", "dog", "b: cat", "fox")
    paths = card(scenario="class", options={"infer_task": "energy"})
    assert (paths.task_label, paths.classes_of(0)) == ("energy", ("cat", "dog"))
    shared = card(scenario="domain")
    assert (shared.classes, shared.classes_of(1)) == (("cat", "dog or fox"), ("cat", "fox"))
    assert shared.outputs_of(None) == {"cat": 0, "dog": 1, "fox": 1}
    # The second task brings one class, and names it alone, whatever the order in which it has its classes.
    again = card(
        scenario="class", task_classes=(2, 1), task_class_names=(("0", "1"), ("2",)), task_labels=((0, 1), (1, 2))
    )
    assert again.classes == ("0", "1", "2")
    # Outputs beyond the classes of a data set have no names.
    wide = card(scenario="class", task_classes=(3, 2), task_class_names=(("cat", "dog"), ("fox", "owl")))
    assert wide.classes == ("cat", "dog", "2", "fox", "owl")


def test_task_by_index_or_name() -> None:
    """A name goes before an index; what was not learned is refused, and so is no task where one is needed."""
    known = card(task_names=("1", "b"), scenario="task")
    assert [known.find_task(task) for task in ("1", 1, "b", 0, "0")] == [0, 1, 1, 0, 0]
    for task in ("c", 7, -1, "7", 1.5):
        with pytest.raises(RequestError, match="has not learned task"):
            known.find_task(task)  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="needs the task of the samples") as refused:
        known.find_task(None)
    assert refused.value.remedy is not None and "--task 0" in refused.value.remedy
    with pytest.raises(RequestError, match="several tasks that are called 'b'"):
        card(task_names=("b", "b")).find_task("b")
    other = TaskInput(shape=(1, 2, 2), pad=0, background=None, mean=(0.5,), std=(1.0,), permutation_seed=None)
    own_way = card(scenario="domain", task_inputs=(other, other.model_copy(update={"mean": (0.25,)})))
    with pytest.raises(RequestError, match="prepared the samples of each task in its own way"):
        own_way.find_task(None)


@pytest.mark.parametrize(("kind", "good"), [("features", [[0.5, 2.0]]), ("tokens", [[1, 3]])])
def test_rows_of_numbers(kind: str, good: Any) -> None:
    """Features and ids of tokens, of one sample or several; others are refused with what was found."""
    of = TaskInput(shape=(2,), pad=0, background=None, mean=(0.0,), std=(1.0,), permutation_seed=None)
    record = Record.model_construct(
        run_id="x-1", scenario="domain", task_names=("a",), task_classes=(2,), task_inputs=(of,), input_shape=(2,),
        input_kind=kind, vocabulary=4 if kind == "tokens" else None, accuracy_matrix=((0.5,),),
    )  # fmt: skip
    model = LearnedModel(BackboneModel(_Sum(), 1, (2,)), record)
    assert len(model.predict(good)) == len(model.predict(good[0])) == 1
    assert np.array_equal(
        model.predict(np.array(good * 5), batch_size=2).probabilities[4], model.predict(good).probabilities[0]
    )
    wrong: Callable[[Any], Any] = model.predict
    for inputs, told in (([[0, 1, 2]], "has 3 numbers for each sample"), ([["a", "b"]], "has dtype <U1")):
        with pytest.raises(RequestError) as refused:
            wrong(inputs)
        assert told in refused.value.what


class _Sum(torch.nn.Module):
    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return samples.float().sum(dim=1, keepdim=True)
