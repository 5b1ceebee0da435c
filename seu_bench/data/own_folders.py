"""A folder of images, or a list of files, as a benchmark: its classes cut into tasks, or a task for each part."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from seu_bench.config.benchmark import STANDARD_PROTOCOLS, FilesDefinition, FolderDefinition
from seu_bench.config.run import Request
from seu_bench.data.listed_files import FilesSource
from seu_bench.data.own_files import IMAGE_ENDINGS, IMAGE_FORMATS, SPLIT_NAMES, FolderSource
from seu_bench.data.tasks import task_title
from seu_bench.errors import DataError, DataMissingError, RequestError
from seu_bench.utils.files import write_once
from seu_bench.utils.reading import absolute
from seu_bench.utils.text import plain_name, printable, some, toml_key, toml_value

#: Pixels that images of one size may have on a side to keep it; others get so many.
_LARGEST: Final = 64
#: Images that are looked at for size and colour.
_LOOKED_AT: Final = 1000
#: What a sub-folder has, by whether there are images in it, and in its own sub-folders.
_LAYOUTS: Final = {
    (True, False): "images",
    (False, True): "folders of images",
    (True, True): "images and folders of images",
    (False, False): "no images, nor folders of images",
}


def with_benchmark_file(request: Request, known: Container[str]) -> Request:
    """The request with a benchmark file in place of a folder of images or a list of files; the file is written.

    It lies in ``streams/NAME-DIGEST`` below the results folder; the same folder gives the same file. ``known`` are
    names of benchmarks, which are no folders.

    Raises:
        DataError: the folder or the list does not fit.
        RequestError: ``classes_per_task`` or ``size`` do not fit it.
        ResultsError: the file cannot be written.
    """
    benchmark = request.benchmark
    is_own = benchmark.endswith(("/", ".csv", ".CSV")) or (benchmark and os.path.isdir(absolute(benchmark)))  # noqa: PTH112
    if benchmark in known or not is_own:
        if request.classes_per_task is None and request.size is None:
            return request
        what = f"{benchmark!r} is no folder of images and no list of files, for which classes per task and size are"
        remedy = "give a folder's path, ending in /, or change the benchmark by -o benchmark.stream.KEY"
        raise RequestError(what, where="--classes-per-task, --size", remedy=remedy)
    path = keep_benchmark(*own_benchmark(request, known, absolute(benchmark)), request.results)
    return request.model_copy(update={"benchmark": str(path), "classes_per_task": None, "size": None})


def keep_benchmark(name: str, text: str, results: Path) -> Path:
    """Write a benchmark file below the results folder, where the same text has the same path, and return that path."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    path = absolute(results) / "streams" / f"{name}-{digest}" / f"{name}.toml"
    write_once(path, text.encode())
    return path


def own_benchmark(request: Request, known: Container[str], path: Path) -> tuple[str, str]:
    """Name and text of the benchmark file of a folder or a list, which it calls ``path``.

    The errors are those of :func:`with_benchmark_file`.
    """
    place = absolute(request.benchmark)
    is_list = place.suffix.lower() == ".csv" and os.path.isfile(place)  # noqa: PTH113  # false where it cannot be one
    if not is_list and not os.path.isdir(place):  # noqa: PTH112
        remedy = "correct the path: of a folder of images, or of a .csv with the columns path,label"
        raise DataMissingError("there is no such folder or list of files", where=str(place), remedy=remedy)
    name = plain_name(place.stem if is_list else place.name)
    name = f"my_{name}" if name in known else name
    parts = own_tasks(place, name)
    tasks: dict[str, dict[str, Any]] = {}
    data: dict[str, dict[str, Any]] = {}
    images: list[Path] = []
    for part in parts or [""]:
        own = unused(plain_name(part) if part else name, data)
        info, train, test = _source(place, part, own).splits()
        images += [*train[0], *test[0]]
        names = list(info.class_names or ())
        _check_step(request, place, parts, names)
        data[own] = {"kind": "files" if is_list else "folder", "path": str(path if is_list else path / part)}
        data[own] |= {"task": part} if is_list and part else {}
        step = request.classes_per_task or len(names)
        for first in range(0, len(names), step):
            labels = range(len(names))[first : first + step]
            title = unused(part or task_title(labels, info), tasks)
            tasks[title] = {"dataset": own, "labels": [names[label] for label in labels]}
    size, channels = _look(images, request.size)
    classes = {label for task in tasks.values() for label in task["labels"]}
    if len(classes) == 1:
        what = f"there is one class, {some(list(classes))}, whose answer is always right"
        raise RequestError(what, where=str(place), remedy="bring images of two classes at least")
    height, width = (size, size) if isinstance(size, int) else size
    kept = f"{height}x{width}, {'grey' if channels == 1 else 'coloured'}"
    # A month's name sorts as a text does.
    order = f" ({printable(' | '.join(list(tasks)[:12]))}{' | ...' * (len(tasks) > 12)})" if len(tasks) > 1 else ""
    summary = f"{len(classes)} classes in {len(tasks)} task{'s' * (len(tasks) > 1)}{order}, {kept}"
    try:
        "".join([str(path), *tasks, *classes]).encode()
    except UnicodeEncodeError as error:
        remedy = "rename the folder or the file"
        raise DataError("a name in it cannot be written in UTF-8", where=str(place), remedy=remedy) from error
    return name, _text(name, summary, tasks, data, {"size": size, "channels": channels})


def own_tasks(place: Path, name: str) -> list[str]:
    """Names of the tasks in a folder or a list; none: it is not divided. A DataError: it is neither, or mixed."""
    try:
        if place.is_dir():
            return _parts(place)
        definition = FilesDefinition(kind="files", path=place, size=1)
        return list(dict.fromkeys(row.task for row in FilesSource(definition, name).rows() if row.task))
    except OSError as error:
        what = f"the folder cannot be read: {error.strerror or error}"
        raise DataError(what, where=str(error.filename or place), remedy="see that you may read it") from error


def _source(place: Path, part: str, name: str) -> FolderSource:
    """The images of a task of a folder or a list, or of all of it."""
    if place.is_dir():
        return FolderSource(FolderDefinition(kind="folder", path=place / part, size=1), name)
    return FilesSource(FilesDefinition(kind="files", path=place, size=1, task=part or None), name)


def _check_step(request: Request, place: Path, parts: Sequence[str], names: Sequence[str]) -> None:
    """Refuse a number of classes that is missing or too large, or one that tasks have no use for."""
    step, what, remedy = request.classes_per_task, f"there are {len(names)} classes ({some(names)}), and ", ""
    if parts and step is not None:
        what = f"there is a task for each of {some(parts)}, and classes per task would cut others"
        remedy = "leave --classes-per-task out"
    elif not parts and step is None:
        what += "nothing says how many a task has"
        remedy = "add --classes-per-task 2, or another number (from Python classes_per_task=2)"
    elif step is not None and step > len(names):
        what += f"a task is to have {step}"
        remedy = f"give --classes-per-task {len(names)} at most"
    if remedy:
        raise RequestError(what, where=str(place), remedy=remedy)


def _parts(folder: Path) -> list[str]:
    """Names of the sub-folders that are tasks, sorted; none: it is a folder of class folders.

    A DataError says what else it is.
    """
    is_split = _is_split(folder)
    top, below = (folder / "train", folder / "TASK/train") if is_split else (folder, folder / "TASK")
    found: dict[str, list[str]] = {}
    for each in _folders(top):
        layout = _LAYOUTS[_has_images(each), _is_split(each) or any(map(_has_images, _folders(each)))]
        found.setdefault(layout, []).append(each.name)
    extra = [each.name for each in _folders(folder) if each.name.casefold() not in SPLIT_NAMES] if is_split else []
    extra += [f"images in {top}"] if _has_images(top) else []
    if set(found) <= {"images"} and not extra:
        return []
    tasks = found.get("folders of images", [])
    are_splits = {name.casefold() for name in tasks} <= SPLIT_NAMES
    if len(found) == 1 and len(tasks) > 1 and not (is_split or extra or are_splits):
        return tasks
    told = [f"{some(names)} {'has' if len(names) == 1 else 'have'} {layout}" for layout, names in found.items()]
    told += [f"there are {some(extra)} beside them"] if extra else []
    what = f"its sub-folders are neither all class folders nor all tasks: {'; '.join(told)}"
    remedy = f"give {top}/CLASS/1.png, or {below}/CLASS/1.png of two tasks at least, and move all else out of it"
    raise DataError(what, where=str(folder), remedy=remedy)


def _folders(folder: Path) -> list[Path]:
    return sorted(it for it in folder.iterdir() if it.is_dir() and not it.name.startswith("."))


def _is_split(folder: Path) -> bool:
    return all((folder / name).is_dir() for name in ("train", "test"))


def _has_images(folder: Path) -> bool:
    names = (it.name.lower() for it in folder.iterdir() if not it.is_dir())
    return any(name.endswith(IMAGE_ENDINGS) and not name.startswith(".") for name in names)


def _look(files: Sequence[Path], asked: int | None) -> tuple[int | tuple[int, int], int]:
    """Size, ``asked`` for or that which all images have and small ones keep, and channels, 1 where all are grey."""
    from PIL import Image

    sizes, modes = set(), set()
    for file in files[:: 1 + len(files) // _LOOKED_AT]:
        try:
            with Image.open(file, formats=IMAGE_FORMATS) as image:
                sizes.add((image.height, image.width))
                modes.add(image.mode)
        except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError):
            continue  # all such files are named when images are read
    own = sizes.pop() if len(sizes) == 1 else (_LARGEST, _LARGEST)
    return asked or (own if max(own) <= _LARGEST else _LARGEST), 1 if modes and modes <= {"1", "L"} else 3


def _text(
    name: str,
    summary: str,
    tasks: Mapping[str, Mapping[str, Any]],
    data: Mapping[str, Mapping[str, Any]],
    images: Mapping[str, Any],
) -> str:
    """A benchmark file, with what its keys may be."""
    said = {
        "default_protocol": 'minutes; "paper" learns from all images, by a long schedule; or one of your own',
        "scenario": 'no task label at test time, one answer of all classes; or "task", "domain"',
        "validation": "share of the training images that validates",
        "size": "every image is resized to this [height, width]",
        "channels": "3 for colour, 1 for grey",
        "cache": 'decoded once into a file below the data root; or "memory"',
        "test_fraction": "of each class, where there are no splits train and test",
        "path": "from the folder of this file",
    }

    def table(heading: str, values: Mapping[str, Any]) -> list[str]:
        """Lines of a table; each note is told once."""
        notes = [f"  # {said.pop(key)}" if key in said else "" for key in values]
        lines = [
            f"{toml_key(key)} = {toml_value(it)}{note}" for (key, it), note in zip(values.items(), notes, strict=True)
        ]
        return [f"\n[{heading}]", *lines]

    lines = [f"# {summary}. docs/reference/benchmarks.md describes every key."]
    lines += table("", {"name": name, "summary": summary, "default_protocol": "quick"})[1:]
    lines += table("stream", {"kind": "datasets", "scenario": "class", "validation": 0.1})
    lines += ["\n# Tasks are learned in this order; each has the classes that it names."]
    for title, task in tasks.items():
        lines += table(f"stream.tasks.{toml_key(title)}", task)
    for own, values in data.items():
        lines += table(f"datasets.{toml_key(own)}", {**values, **images, "test_fraction": 0.2, "cache": "disk"})
    lines += ["\n# The strategy seu then answers without a task label, by the task whose output is most certain."]
    lines += table("protocols", {})
    lines += [f'{protocol}.strategies.seu.infer_task = "entropy"' for protocol in STANDARD_PROTOCOLS]
    return "\n".join([*lines, ""])


def unused(name: str, taken: Container[str]) -> str:
    """The name, or with a number where it is taken."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found
