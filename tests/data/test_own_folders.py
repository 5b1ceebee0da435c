"""Folders of images and lists of files as benchmarks: what they are taken for, and what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from seu_bench.config import Request
from seu_bench.config.streams import DatasetSequence
from seu_bench.data import build_stream
from seu_bench.data.own_folders import own_benchmark
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.errors import RequestError, SeuBenchError
from seu_bench.plugin import Registry

REGISTRY = Registry()
MONTHS = {"january": ("apple", "pear"), "february": ("fig", "plum")}


def pictures(folder: Path, *classes: str, count: int = 12, size: tuple[int, int] = (6, 6), mode: str = "RGB") -> Path:
    """A folder of class folders, each picture of another colour."""
    for place, name in enumerate(classes):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            shade = 20 * place + number
            colour: Any = shade if mode == "L" else (shade, 200 - shade, 0)
            Image.new(mode, size[::-1], colour).save(folder / name / f"{number}.png")
    return folder


def asked(benchmark: Path | str, results: Path, **fields: Any) -> ResolvedRun:
    """The run of a folder, its benchmark file below ``results``."""
    return resolve(REGISTRY, Request(strategy="naive", benchmark=str(benchmark), results=results, **fields))


def tasks_of(run: ResolvedRun) -> dict[str, tuple[str, ...]]:
    return {task.name: task.class_names for task in run.plan().tasks}


def definitions(run: ResolvedRun) -> dict[str, dict[str, Any]]:
    return {name: it.model_dump() for name, it in run.spec.benchmark.datasets.items()}


def listed(folder: Path, rows: list[Mapping[str, str]], name: str = "list") -> Path:
    """A list of files, with the columns of its rows."""
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    path = folder / f"{name}.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def rows_of(folder: Path) -> list[Mapping[str, str]]:
    files = sorted(folder.rglob("*.png"))
    return [{"path": str(file.relative_to(folder.parent)), "label": file.parent.name} for file in files]


def test_classes_are_cut_into_tasks(tmp_path: Path) -> None:
    """Sorted, the last task has what is left; no task label, in this order, by the short protocol."""
    folder = pictures(tmp_path / "Äpfel & more", "plum", "fig", "apple", size=(6, 9))
    run = asked(folder, tmp_path / "results", classes_per_task=2)
    assert tasks_of(run) == {"apple, fig": ("apple", "fig"), "plum": ("plum",)}
    spec = run.spec.benchmark
    assert (spec.name, spec.stream.scenario, run.spec.protocol_name) == ("apfel_more", "class", "quick")
    assert isinstance(spec.stream, DatasetSequence) and spec.stream.order is None
    shown = {"kind": "folder", "path": folder, "size": (6, 9), "channels": 3, "cache": "disk", "test_fraction": 0.2}
    assert definitions(run) == {"apfel_more": shown}
    file = Path(run.request.benchmark)
    assert file.is_relative_to(tmp_path / "results" / "streams") and file.name == "apfel_more.toml"
    assert resolve(REGISTRY, Request(strategy="naive", benchmark=str(file))).spec.run_id == run.spec.run_id


def test_same_folder_is_the_same_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is named; another picture is another run, of the same file; another class another file."""
    folder, results = pictures(tmp_path / "in" / "fruits", "apple", "fig"), tmp_path / "results"
    first = asked(folder, results, classes_per_task=1)
    monkeypatch.chdir(folder.parent)
    for name in ("fruits", "fruits/", "../in/fruits", "./fruits/apple/.."):
        same = asked(name, results, classes_per_task=1)
        assert (same.spec.run_id, same.request.benchmark) == (first.spec.run_id, first.request.benchmark)
    shutil.copytree(folder, tmp_path / "moved" / "fruits")
    moved = asked(tmp_path / "moved" / "fruits", results, classes_per_task=1)
    assert moved.spec.run_id == first.spec.run_id and moved.request.benchmark != first.request.benchmark
    shutil.copy(folder / "fig" / "0.png", folder / "fig" / "more.png")
    more = asked(folder, results, classes_per_task=1)
    assert more.spec.run_id != first.spec.run_id and more.request.benchmark == first.request.benchmark
    pictures(folder, "kiwi")
    assert asked(folder, results, classes_per_task=1).request.benchmark != first.request.benchmark


@pytest.mark.parametrize(
    ("looks", "size", "channels"),
    [
        ([((8, 8), "L")], 8, 1),
        ([((64, 32), "RGB")], (64, 32), 3),
        ([((65, 8), "L")], 64, 1),
        ([((8, 8), "L"), ((8, 8), "RGB")], 8, 3),
        ([((8, 8), "RGB"), ((9, 8), "RGB")], 64, 3),
    ],
)
def test_size_and_colour(looks: list[Any], size: Any, channels: int, tmp_path: Path) -> None:
    """Small images of one size keep it; what is grey stays grey; a size that is asked for is given."""
    for name, (shape, mode) in zip("ab", looks * 2, strict=False):
        pictures(tmp_path / "own", name, size=shape, mode=mode)
    (tmp_path / "own" / "a" / "broken.png").write_bytes(b"no image")  # is named where images are read
    (found,) = definitions(asked(tmp_path / "own", tmp_path, classes_per_task=1)).values()
    height, width = (size, size) if isinstance(size, int) else size
    assert found["size"] in (size, (height, width)) and found["channels"] == channels
    (found,) = definitions(asked(tmp_path / "own", tmp_path, classes_per_task=1, size=5)).values()
    assert found["size"] == 5


def test_folder_of_tasks(tmp_path: Path) -> None:
    """A task for each sub-folder, sorted; with splits of its own or without; a class that comes back is one."""
    for month, classes in MONTHS.items():
        pictures(tmp_path / "months" / month, *classes)
    for split, count in (("train", 6), ("test", 3)):
        pictures(tmp_path / "months" / "Ünd 2" / split, "apple", "kiwi", count=count)
    (tmp_path / "months" / ".git").mkdir()
    (tmp_path / "months" / "notes.txt").touch()
    run = asked(tmp_path / "months", tmp_path)
    assert tasks_of(run) == {"february": ("fig", "plum"), "january": ("apple", "pear"), "Ünd 2": ("kiwi",)}
    assert list(run.spec.benchmark.datasets) == ["february", "january", "und_2"]
    assert [(task.num_train + task.num_valid, task.num_test) for task in run.plan().tasks] == [(20, 4)] * 2 + [(12, 6)]
    assert run.plan().tasks[2].labels == (2, 4)
    with pytest.raises(RequestError, match="a task for each of february, january, Ünd 2"):
        asked(tmp_path / "months", tmp_path, classes_per_task=2)


def test_task_of_one_class(tmp_path: Path) -> None:
    """A month that brings one new class is a task, of a folder and of a list."""
    pictures(tmp_path / "months" / "1", "a", "b")
    pictures(tmp_path / "months" / "2", "c")
    assert tasks_of(asked(tmp_path / "months", tmp_path)) == {"1": ("a", "b"), "2": ("c",)}
    rows = [row | {"task": row["path"].split("/")[1]} for row in rows_of(tmp_path / "months")]
    assert tasks_of(asked(listed(tmp_path, rows), tmp_path)) == {"1": ("a", "b"), "2": ("c",)}


def test_splits_of_one_folder(tmp_path: Path) -> None:
    """Train and test are no classes and no tasks."""
    for split, count in (("train", 9), ("test", 4), ("val", 2)):
        pictures(tmp_path / "own" / split, "a", "b", count=count)
    run = asked(tmp_path / "own", tmp_path, classes_per_task=2)
    (task,) = run.plan().tasks
    assert (task.name, task.num_train + task.num_valid, task.num_test) == ("a, b", 18, 8)


def test_list_of_files(tmp_path: Path) -> None:
    """Cut by classes, or by its tasks in the order in which they come, with its own splits or without."""
    rows = rows_of(pictures(tmp_path / "own", "a", "b", "c", "d"))
    run = asked(listed(tmp_path, rows), tmp_path, classes_per_task=3)
    assert tasks_of(run) == {"a, b, c": ("a", "b", "c"), "d": ("d",)}
    folder = asked(tmp_path / "own", tmp_path, classes_per_task=3)
    streams = [build_stream(it.spec.benchmark, it.load, it.limits, 0) for it in (run, folder)]
    sizes, same = ([(len(it.train), len(it.valid), len(it.test)) for it in each.tasks] for each in streams)
    assert sizes == same == [(27, 3, 6), (9, 1, 2)]
    shuffled = asked(listed(tmp_path, rows[::-1]), tmp_path, classes_per_task=3)
    assert shuffled.spec.run_id == run.spec.run_id
    again = build_stream(shuffled.spec.benchmark, shuffled.load, shuffled.limits, 0)
    assert again.fingerprint == streams[0].fingerprint
    timed = [row | {"task": "june" if row["label"] in "cd" else "July 1"} for row in reversed(rows)]
    run = asked(listed(tmp_path, timed), tmp_path)
    assert tasks_of(run) == {"june": ("c", "d"), "July 1": ("a", "b")}
    assert [it["task"] for it in definitions(run).values()] == ["june", "July 1"]
    before = run.sources["june"].checksum()  # type: ignore[attr-defined]
    split = [row | {"split": "test" if "/1" in row["path"] else "train"} for row in timed]
    run = asked(listed(tmp_path, split), tmp_path)
    assert [(it.num_train + it.num_valid, it.num_test) for it in run.plan().tasks] == [(18, 6), (18, 6)]
    assert before != run.sources["june"].checksum()  # type: ignore[attr-defined]


def test_task_of_a_list_stays_as_it_is(tmp_path: Path) -> None:
    """Further rows of another task leave its data the same; a picture of another size does not."""
    pictures(tmp_path / "own", "a", "b", "c", "d")
    rows = [row | {"task": "1" if row["label"] in "ab" else "2"} for row in rows_of(tmp_path / "own")]
    sums = []
    for some in ([row for row in rows if row["task"] == "1"], rows):
        sums.append(asked(listed(tmp_path, some), tmp_path).spec.local_data["1"])
    with (tmp_path / "own" / "a" / "0.png").open("ab") as file:
        file.write(b"more")
    sums.append(asked(tmp_path / "list.csv", tmp_path).spec.local_data["1"])
    assert sums[0] == sums[1] != sums[2]


FOLDERS: dict[str, tuple[list[str], str]] = {
    "nothing": ([], "has no images"),
    "one class": (["a/1", "a/2"], "there is one class, a|how many a task has"),
    "one picture": (["a/1", "b/1", "b/2"], "a single sample of class 'a'"),
    "deeper": (["y/june/a/1", "y/june/b/1", "z/june/a/1"], "y, z have no images, nor folders of images"),
    "one task": (["all/a/1", "all/b/1"], "all has folders of images"),
    "tasks and a class": (["june/a/1", "june/b/1", "c/1"], "c has images; june has folders of images"),
    "stray image": (["june/a/1", "june/b/1", "june/1"], "june has images and folders of images"),
    "image beside classes": (["a/1", "b/1", "1"], "there are images in .* beside them"),
    "empty class": (["a/1", "b/1", "docs/"], "a, b have images; docs has no images"),
    "splits of other names": (["train/a/1", "train/b/1", "val/a/1"], "train, val have folders of images"),
    "class beside splits": (["train/a/1", "train/b/1", "test/a/1", "test/b/1", "c/1"], "there are c beside them"),
    "splits of tasks": (["train/x/a/1", "train/y/a/1", "test/x/a/1"], "x, y have folders of images"),
}


@pytest.mark.parametrize(("paths", "said"), FOLDERS.values(), ids=FOLDERS)
def test_folders_that_are_refused(paths: list[str], said: str, tmp_path: Path) -> None:
    """What could be read in two ways, or not at all: with what was found, and nothing is written."""
    (tmp_path / "own").mkdir()
    for path in paths:
        (tmp_path / "own" / path).parent.mkdir(parents=True, exist_ok=True)
        if path.endswith("/"):
            (tmp_path / "own" / path).mkdir()
        else:
            Image.new("L", (4, 4)).save(tmp_path / "own" / f"{path}.png")
    for step in (1, None):
        with pytest.raises(SeuBenchError, match=said) as refused:
            asked(tmp_path / "own", tmp_path / "results", classes_per_task=step)
        assert refused.value.remedy and str(tmp_path / "own") in str(refused.value.where)
    assert not (tmp_path / "results").exists()


LISTS: dict[str, tuple[str, str]] = {
    "empty": ("", "has the columns of no name"),
    "one class": ("path,label,task\nown/a/0.png,a,1\nown/a/1.png,a,1\n", "there is one class, a"),
    "no rows": ("path,label\n", "names no files"),
    "semicolons": ("path;label\nown/a/0.png;a\n", "columns that are not known: 'path;label'"),
    "unknown column": ("path,lable\n", r"'lable' \(did you mean 'label'"),
    "column twice": ("path,label,label\n", "has the columns path,label,label"),
    "missing files": ("path,label\nown/a/0.png,a\nnone.png,b\nown,b\n", "files that are missing: none.png, own"),
    "file twice": ("path,label\nown/a/0.png,a\nown/../own/a/0.png,b\n", "files in several rows: .*own/a/0.png"),
    "short row": ("path,label\nown/a/0.png\n", r"line 2 \(own/a/0.png\)"),
    "no label": ("path,label\n\nown/a/0.png, \n", r"line 3 \(own/a/0.png,\)"),
    "no task": ("path,label,task\nown/a/0.png,a,june\nown/a/1.png,a,\n", "line 3"),
    "other split": ("path,label,split\nown/a/0.png,a,valid\n", r"line 2 .*valid"),
    "uneven": ("path,label,split\nown/a/0.png,a,train\nown/a/1.png,a,test\nown/b/0.png,b,test\n", "one split only: b"),
    "open quote": ('path,label\n"own/a/0.png,a\n', "cannot be read"),
    "one picture": ("path,label\nown/a/0.png,a\nown/b/0.png,b\nown/b/1.png,b\n", "a single sample of class 'a'"),
}


@pytest.mark.parametrize(("text", "said"), LISTS.values(), ids=LISTS)
def test_lists_that_are_refused(text: str, said: str, tmp_path: Path) -> None:
    """Each with the line or the file at fault."""
    pictures(tmp_path / "own", "a", "b", count=2)
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(SeuBenchError, match=said) as refused:
        asked(tmp_path / "list.csv", tmp_path / "results", classes_per_task=None if "task" in text else 1)
    assert refused.value.remedy and str(refused.value.where) == str(tmp_path / "list.csv")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("benchmark", "fields", "said"),
    [
        ("own", {}, "there are 2 classes \\(a, b\\), and nothing says how many"),
        ("own", {"classes_per_task": 3}, "2 classes .*, and a task is to have 3"),
        ("none/", {}, "no such folder"),
        ("none.csv", {}, "no such folder"),
        ("own/a/0.png/", {}, "no such folder"),
        ("split_digits", {"classes_per_task": 2}, "'split_digits' is no folder"),
        ("split_digits", {"size": 8}, "'split_digits' is no folder"),
        ("mine.toml", {"classes_per_task": 2}, "'mine.toml' is no folder"),
    ],
)
def test_requests_that_are_refused(
    benchmark: str, fields: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where classes per task are missing, too many, or for something else."""
    pictures(tmp_path / "own", "a", "b", count=2)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SeuBenchError, match=said):
        asked(benchmark, tmp_path, **fields)


def test_folder_called_like_a_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name is the benchmark's; with a slash it is the folder, which is called otherwise."""
    pictures(tmp_path / "split_digits", "a", "b")
    monkeypatch.chdir(tmp_path)
    assert not asked("split_digits", tmp_path).spec.benchmark.datasets
    assert asked("split_digits/", tmp_path, classes_per_task=1).spec.benchmark.name == "my_split_digits"


def test_titles_and_names_are_told_apart(tmp_path: Path) -> None:
    """Names of classes that read the same in a row are two tasks; so are folders whose names differ in signs alone."""
    pictures(tmp_path / "own", "a", "a x, b", "a, a x", "b", count=8)
    assert list(tasks_of(asked(tmp_path / "own", tmp_path, classes_per_task=2))) == ["a, a x, b", "a, a x, b_2"]
    for name in ("June 1", "june-1", "日本"):
        pictures(tmp_path / "tasks" / name, "a", "b", count=8)
    run = asked(tmp_path / "tasks", tmp_path)
    assert list(run.spec.benchmark.datasets) == ["june_1", "june_1_2", "data"]


def test_names_that_toml_cannot_hold(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are refused, quotes and line ends are not."""
    pictures(tmp_path / "own", 'a "q"', "b\nc")
    assert tasks_of(asked(tmp_path / "own", tmp_path, classes_per_task=1)) == {'a "q"': ('a "q"',), "b\nc": ("b\nc",)}
    pictures(tmp_path / "own", "\udcff")
    with pytest.raises(SeuBenchError, match="cannot be written in UTF-8"):
        own_benchmark(Request(benchmark=str(tmp_path / "own"), classes_per_task=1), (), tmp_path / "own")
