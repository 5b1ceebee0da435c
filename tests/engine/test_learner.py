"""Runs that are taught further from Python, and kept or not."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from support.commands import Command
from support.months import write_month

import seu_bench
from seu_bench.errors import DataError, RequestError, ResultsError, SeuBenchError
from seu_bench.results.record import Record, read_record, record_digest

NAMES = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
DIGITS = load_digits()
PIXELS, LABELS = np.round(DIGITS.images * (255 / 16)).astype(np.uint8), NAMES[DIGITS.target]
#: What a run takes that is over in no time.
FAST: dict[str, Any] = {"protocol": "smoke", "device": "cpu"}
Task = tuple[Any, Any, Any, Any]


def digits(*labels: int, x: Any = PIXELS) -> Task:
    """Every fourth image is a test image."""
    rows = np.flatnonzero(np.isin(DIGITS.target, labels))
    test = np.arange(len(rows)) % 4 == 0
    return x[rows[~test]], LABELS[rows[~test]], x[rows[test]], LABELS[rows[test]]


def tasks_of(scenario: str) -> dict[str, Task]:
    if scenario == "domain":
        seen = (PIXELS, 255 - PIXELS, PIXELS.transpose(0, 2, 1), PIXELS[:, ::-1])
        return {name: digits(0, 1, 2, x=x) for name, x in zip("abcd", seen, strict=True)}
    return {"a": digits(0, 1), "b": digits(2, 3), "c": digits(4, 5), "d": digits(6, 7)}


def run_of(
    tasks: dict[str, Task], results: Path, strategy: str = "slda", scenario: Any = "class", **options: Any
) -> Record:
    benchmark = seu_bench.stream(tasks, name="digits", scenario=scenario, folder=results / "streams")
    return seu_bench.run(strategy, benchmark, results=results, options=options, **FAST)


def teach(learner: seu_bench.Learner, name: str, task: Task) -> Record:
    return learner.learn(*task[:2], name=name, test=task[2:], device="cpu")


def weights(model: seu_bench.engine.LearnedModel) -> dict[str, torch.Tensor]:
    return model.network.state_dict()


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with one run of two tasks, which no test changes."""
    folder = tmp_path_factory.mktemp("learner")
    run_of({key: tasks_of("class")[key] for key in "ab"}, folder)
    return folder


@pytest.fixture
def own(results: Path, tmp_path: Path) -> Path:
    """A results folder of a test's own, with such a run."""
    run_of({key: tasks_of("class")[key] for key in "ab"}, tmp_path / "results")
    return tmp_path / "results"


def load(results: Path, **given: Any) -> seu_bench.Learner:
    (folder,) = (results / "runs").iterdir()
    return seu_bench.load_learner(folder.name, results, **given)


@pytest.mark.parametrize(
    ("strategy", "scenario"),
    [
        ("slda", "class"),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in [("naive", "task"), ("replay", "domain"), ("icarl", "class"), ("seu", "task")]
        ),
    ],
)
def test_learns_the_bits_of_a_run_from_nothing(strategy: str, scenario: str, tmp_path: Path) -> None:
    """Task after task, whatever else the process drew at random, and once more in another learner."""
    tasks = tasks_of(scenario)
    options = {"searcher.epochs": 1, "creator.epochs": 1, "channels": 2} if strategy == "seu" else {}
    whole = run_of(tasks, tmp_path / "whole", strategy, scenario, **options)
    short = run_of({key: tasks[key] for key in "ab"}, tmp_path / "short", strategy, scenario, **options)
    expected = weights(seu_bench.load_model(whole.run_id, tmp_path / "whole"))
    for draws in range(2):
        np.random.rand(draws + 3), torch.rand(draws + 5)
        with seu_bench.load_learner(short.run_id, tmp_path / "short") as learner:
            teach(learner, "c", tasks["c"])
            record = teach(learner, "d", tasks["d"])
            found = weights(learner.model)
            assert record == learner.record
            assert record.accuracy_matrix == whole.accuracy_matrix
            assert found.keys() == expected.keys()
            assert all(torch.equal(found[key], expected[key]) for key in expected)


def test_evaluates_and_predicts(results: Path) -> None:
    """As the run measured itself, of old and new classes, by name."""
    tasks = tasks_of("class")
    with load(results) as learner:
        x, y = (np.concatenate([tasks[key][part] for key in "ab"]) for part in (2, 3))
        before = learner.evaluate(x, y)
        record = teach(learner, "c", tasks["c"])
        x, y = tasks["c"][2][:64], tasks["c"][3][:64]  # as many as the protocol tests
        measured = learner.evaluate(x, y)
        assert measured["accuracy"] == record.accuracy_matrix[-1][-1]
        assert measured["classes"].keys() == {"four", "five"}
        assert sum(each["count"] for each in measured["classes"].values()) == measured["count"] == 64
        right = sum(each["accuracy"] * each["count"] for each in measured["classes"].values())
        assert right / 64 == pytest.approx(measured["accuracy"])
        assert np.mean(np.array(learner.predict(x).labels) == y) == measured["accuracy"]
        assert before["accuracy"] > 0.9
        with pytest.raises(RequestError, match="no classes called nine"):
            learner.evaluate(*digits(4, 9)[2:])
        with pytest.raises(RequestError, match="63 samples and 64 labels"):
            learner.evaluate(x[:63], y)


def test_files_pictures_and_arrays_are_the_same_samples(results: Path, tmp_path: Path) -> None:
    """And a share of each class is held out where there is no test set."""
    x, y = digits(4, 5)[:2]
    paths = [tmp_path / f"{place}.png" for place in range(len(x))]
    pictures = [Image.fromarray(pixels) for pixels in x]
    for path, picture in zip(paths, pictures, strict=True):
        picture.save(path)
    found = []
    for samples in (x, x[:, None], x / 255, torch.from_numpy(x), pictures, list(map(str, paths))):
        with load(results) as learner:
            record = learner.learn(samples, y.tolist(), test_fraction=0.125, device="cpu")
            found.append((record.run_id, record.weights_sha256))
            assert record.task_names[-1] == "task_3"
            assert record.task_images[-1][2] == sum(int(0.125 * (y == name).sum()) for name in ("four", "five"))
    assert len(set(found)) == 1


@pytest.mark.parametrize("kind", ["features", "tokens"])
def test_learns_features_and_tokens(kind: str, tmp_path: Path) -> None:
    """Whose labels are numbers, as the run's are."""
    random = np.random.default_rng(0)

    def task(*labels: int) -> Task:
        y = np.repeat(labels, 30)
        x = random.normal(size=(len(y), 6)) + y[:, None] if kind == "features" else (y[:, None] * 3 + [[0, 1, 2]]) % 40
        return x, y, x[::3], y[::3]

    first = {"a": task(0, 1), "b": task(2, 3)}
    if kind == "tokens":
        first["b"][0][:, -1] = 39  # the vocabulary has no more
    record = run_of(first, tmp_path, "naive")
    x, y, *_ = task(4, 5)
    with seu_bench.load_learner(record.run_id, tmp_path) as learner:
        learned = learner.learn(x, y, device="cpu")
        assert learned.task_class_names[-1] == ("4", "5")
        assert learner.evaluate(x, y)["count"] == 60
        with pytest.raises(RequestError, match=r"the inputs are no"):
            learner.learn(x[:, :2], y)


def test_saved_runs_are_as_any(own: Path, command: Command) -> None:
    """They verify, are extended, and name their parents; what is learned after that, too."""
    tasks = tasks_of("class")
    with load(own) as learner:
        first = teach(learner, "c", tasks["c"])
        second = teach(learner, "d", tasks["d"])
        assert len(list((own / "runs").iterdir())) == 1
        saved = learner.save()
        assert (saved.run_id, saved.weights_sha256) == (second.run_id, second.weights_sha256)
        assert learner.save() == learner.record == saved
        learner.learn(*digits(8, 9)[:2], name="last", device="cpu")
        third = learner.save()
    first, second = (read_record(own / "runs" / each.run_id) for each in (first, second))
    for record, parent in ((second, first), (third, second)):
        assert record.parent is not None
        assert (record.parent.run_id, record.parent.record_sha256) == (parent.run_id, parent.record_sha256)
        folder = own / "runs" / record.run_id
        assert read_record(folder) == record
        answer = command("verify", folder, "--benchmark", own / str(record.benchmark_file), "--device", "cpu")
        assert answer.status == 0, answer.out
    again = digits(0, 1, x=255 - PIXELS)
    with seu_bench.load_learner(third.run_id, own) as learner:
        longer = teach(learner, "again", again)
        assert longer.task_classes == (2, 2, 2, 2, 2, 0)
        assert "again" in longer.task_names


def test_what_is_not_saved_is_gone(own: Path) -> None:
    """With the block, with the learner, and what was refused."""
    before = files_in(own)
    with load(own) as learner:
        teach(learner, "c", digits(4, 5))
        assert files_in(own) == before
        with pytest.raises(RequestError, match="has learned a task 'c' already"):
            teach(learner, "c", digits(6, 7))
    assert files_in(own) == before
    assert not learner._scratch.exists()
    with pytest.raises(RequestError, match="closed"):
        teach(learner, "d", digits(6, 7))
    learner = load(own)
    scratch = learner._scratch
    teach(learner, "c", digits(4, 5))
    del learner
    gc.collect()
    assert files_in(own) == before
    assert not scratch.exists()


def test_a_run_that_is_there_stays(own: Path) -> None:
    """And is the parent of what was learned from its like; one without a learner, or another one, is refused."""
    with load(own) as learner:
        start = learner.record.run_id
        first = teach(learner, "c", digits(4, 5))
        teach(learner, "d", digits(6, 7))
        file = next(learner._scratch.glob("streams/c-*/c.npz"))
        again: dict[str, Any] = {"data": file, "name": "c", "results": own, "device": "cpu"}
        there = seu_bench.extend(start, **again, keep_learner=False)
        assert there.run_id == first.run_id
        with pytest.raises(ResultsError, match="without a learner"):
            learner.save()
        assert len(list((own / "runs").iterdir())) == 2
        there = seu_bench.extend(start, **again, restart=True)
        kept = files_in(own / "runs" / there.run_id)
        saved = learner.save()
        assert files_in(own / "runs" / there.run_id) == kept
    assert there.record_sha256 != first.record_sha256
    assert saved.parent is not None
    assert saved.parent.record_sha256 == there.record_sha256
    document = json.loads((own / "runs" / saved.run_id / "record.json").read_text())
    assert document["record_sha256"] == record_digest(document) == saved.record_sha256


def test_nothing_is_kept_by_half(own: Path) -> None:
    """Where a file cannot be written there is no record of the run, and the next call keeps it."""
    with load(own) as learner:
        record = teach(learner, "c", digits(4, 5))
        folder = own / "runs" / record.run_id
        (folder / "learner.safetensors").mkdir(parents=True)
        (folder / "record.json").write_text(json.dumps(json.loads(record.model_dump_json()) | {"status": "running"}))
        with pytest.raises(ResultsError):
            learner.save()
        assert not (folder / "record.json").exists()
        (folder / "learner.safetensors").rmdir()
        assert learner.save() == read_record(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["learner.safetensors", "model.safetensors", "record.json"]


def test_refuses_what_does_not_fit(results: Path) -> None:
    """Before anything is learned."""
    x, y = digits(4, 5)[:2]
    before = files_in(results)
    with load(results) as learner:
        cases: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
            ((x, DIGITS.target[: len(x)]), {}, "labels are numbers, and classes of the run have names"),
            ((x, y[:-1]), {}, f"{len(x)} samples and {len(y) - 1} labels"),
            ((x[:0], y[:0]), {}, "no images|no samples"),
            ((x, y), {"test_fraction": 1.0}, "test_fraction is 1.0"),
            ((x, y), {"test": (x[:1], y[:1])}, "in y_train or in y_test alone"),
            ((x, y), {"seed": 3}, "seed cannot change"),
            ((x, y), {"devise": "cpu"}, "devise"),
            ((x, y.astype(object) == "four"), {}, "needed are texts, or whole numbers"),
            ((x * 300.0, y), {}, "an array is no images"),
        ]
        for arguments, given, message in cases:
            with pytest.raises(SeuBenchError, match=message):
                learner.learn(*arguments, **given)
        assert len(learner.record.task_names) == 2
    assert files_in(results) == before
    with pytest.raises(ResultsError, match="kept no learner"):
        run = seu_bench.run("slda", results=results.parent / "other", **FAST)
        seu_bench.load_learner(run.run_id, results.parent / "other")


@pytest.mark.parametrize("scenario", ["class", "domain"])
def test_refuses_labels_of_classes_without_names(scenario: str, tmp_path: Path) -> None:
    """By number they would be other classes, or another one's output."""
    for place, labels in enumerate(((1, 0), (1, 0))):
        rows = np.isin(DIGITS.target, labels)
        np.savez(tmp_path / f"d{place}.npz", images=PIXELS[rows], labels=DIGITS.target[rows])
    tables = "".join(f'[datasets.d{place}]\nkind = "npz"\npath = "d{place}.npz"\n' for place in (0, 1))
    tasks = "".join(f'[stream.tasks.t{place}]\ndataset = "d{place}"\nrotate_labels = 1\n' for place in (0, 1))
    file = tmp_path / "unnamed.toml"
    file.write_text(f'name = "unnamed"\n[stream]\nkind = "datasets"\nscenario = "{scenario}"\n{tasks}{tables}')
    run = seu_bench.run("naive", str(file), results=tmp_path, **FAST)
    rows = np.isin(DIGITS.target, (0, 1))
    refused = pytest.raises(RequestError, match="label '0' would be learned as")
    with seu_bench.load_learner(run.run_id, tmp_path) as learner, refused:
        learner.learn(255 - PIXELS[rows], DIGITS.target[rows], device="cpu")


def test_extends_from_python(own: Path, tmp_path: Path) -> None:
    """By a folder, as the command does; a run may be given by its folder, whatever the results folder, also a link."""
    (tmp_path / "somewhere" / "else").mkdir(parents=True)
    (tmp_path / "other").symlink_to(tmp_path / "somewhere" / "else")
    write_month(tmp_path / "june", [4, 5])
    (folder,) = (own / "runs").iterdir()
    record = seu_bench.extend(folder, data=tmp_path / "june", results=tmp_path / "other", device="cpu")
    assert record.task_names[-1] == "june"
    assert (tmp_path / "other" / "runs" / record.run_id / "model.safetensors").is_file()
    with pytest.raises(RequestError, match="data of a further task"):
        seu_bench.extend(folder)
    with pytest.raises(DataError):
        seu_bench.extend(folder, data=tmp_path / "july", results=tmp_path / "other")
