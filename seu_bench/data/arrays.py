"""Streams of arrays: tasks that are given from Python, kept as ``.npz`` files beside their benchmark file."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from seu_bench.config.benchmark import BenchmarkSpec, FeaturesDefinition, NpzDefinition, TokensDefinition
from seu_bench.config.protocol import ImageLimits
from seu_bench.config.streams import InputKind, Scenario
from seu_bench.config.toml_file import toml_text
from seu_bench.data.dataset import RawDataset, as_8_bit, hold_out, one_line
from seu_bench.data.own_files import NpzSource
from seu_bench.data.own_tables import FeaturesSource, TokensSource
from seu_bench.data.planning import plan_stream
from seu_bench.errors import DataError, RequestError
from seu_bench.utils.files import write_once
from seu_bench.utils.reading import absolute
from seu_bench.utils.text import plain_name

#: A task: ``(x_train, y_train, x_test, y_test)``, NumPy arrays, tensors, or lists.
TaskArrays: TypeAlias = Sequence[Any]
_KEYS: Final = ("x_train", "y_train", "x_test", "y_test")
#: Of each kind of samples: what a benchmark calls it, its definition, and its source.
_KINDS: Final[dict[InputKind, tuple[str, type[BaseModel], type[NpzSource]]]] = {
    "image": ("npz", NpzDefinition, NpzSource),
    "features": ("features", FeaturesDefinition, FeaturesSource),
    "tokens": ("tokens", TokensDefinition, TokensSource),
}


def stream(
    tasks: Sequence[TaskArrays] | Mapping[str, TaskArrays],
    *,
    name: str,
    scenario: Scenario = "task",
    order: Sequence[str] | Literal["shuffled"] | None = None,
    class_names: Sequence[str] | None = None,
    validation: float = 0.10,
    protocols: Mapping[str, Any] | None = None,
    default_protocol: str | None = None,
    summary: str = "",
    folder: str | Path = "results/streams",
) -> str:
    """Write a benchmark of arrays, a task for each four of them, and return the path of its file.

    The path is what ``run``, ``sweep``, ``tune`` and ``--benchmark`` take. The same arrays give the same path and the
    same runs; nothing is written where they do not fit.

    Args:
        tasks: of each ``(x_train, y_train, x_test, y_test)``, in the order of learning; a mapping names them, otherwise
            they are ``task_1``, ``task_2``, ... Samples are images ``[N, H, W]``, ``[N, H, W, C]`` or ``[N, C, H, W]``
            of 1 or 3 channels, whole numbers in 0..255 or floating point in [0, 1]; features ``[N, D]``, floating
            point; or ids of tokens ``[N, L]``, integers; of one kind and shape in all tasks. Labels ``[N]`` are texts,
            or whole numbers from 0. A label is the same class in whichever task it is, and has training and test
            samples in each task that has it.
        name: lower-case letters, digits and ``_``.
        scenario: ``task``, ``class`` or ``domain``; see docs/reference/scenarios.md.
        order: names of the tasks, or ``"shuffled"`` by the seed; ``None``: as they are given.
        class_names: of the labels 0, 1, ...; of texts there are none.
        validation: share of each task's training samples that validates.
        protocols: laid over the standard ones, as ``[protocols]`` of a benchmark file.
        default_protocol: what is learned by where none is asked for; ``None``: ``quick``.
        summary: one line that says what it is.
        folder: where the folder of the benchmark, ``NAME-DIGEST``, is made.

    Returns:
        The absolute path of the benchmark file.

    Raises:
        DataError: arrays do not fit.
        RequestError: tasks do not fit each other or the scenario, or another argument does not fit.
        ResultsError: the folder cannot be written to.

    Example:
        >>> benchmark = seu_bench.stream([(x1, y1, x1_test, y1_test), (x2, y2, x2_test, y2_test)], name="mine")
        >>> seu_bench.run("ewc", benchmark, protocol="quick")
    """
    if class_names is not None and (isinstance(class_names, str) or len(set(class_names)) < len(class_names)):
        what = f"class_names of stream {name!r} are no list of different texts"
        raise RequestError(what, remedy="give a name for each of the labels 0, 1, ...")
    given = tasks if isinstance(tasks, Mapping) else {f"task_{place}": it for place, it in enumerate(tasks, 1)}
    files = {title: f"task_{place}" for place, title in enumerate(given, 1)}
    arrays: dict[str, dict[str, NDArray[Any]]] = {}
    data: dict[str, RawDataset] = {}
    definitions: dict[str, dict[str, Any]] = {}
    for title, file in files.items():
        arrays[file], data[file] = _prepare(f"task {title!r} of stream {name!r}", title, given[title], class_names)
        definitions[file] = {"kind": _KINDS[data[file].info.kind][0], "path": f"{file}.npz"}
    if sizes := [it.info.vocabulary for it in data.values() if it.info.vocabulary is not None]:
        for file, it in data.items():
            definitions[file] |= {"vocabulary": max(sizes)} if it.info.kind == "tokens" else {}
            data[file] = replace(it, info=replace(it.info, vocabulary=definitions[file].get("vocabulary")))
    shapes = {title: data[file].info.input for title, file in files.items()}
    if len(set(shapes.values())) > 1:
        told = ", ".join(f"{title!r} has {it}" for title, it in shapes.items())
        raise RequestError(f"the tasks of stream {name!r} differ: {told}", remedy="bring all to one shape")
    own: dict[str, Any] = {title: {"dataset": file} for title, file in files.items()}
    keys = {"kind": "datasets", "scenario": scenario, "validation": validation, "order": order, "tasks": own}
    options: Any = {"protocols": protocols, "default_protocol": default_protocol, "summary": summary}
    spec = BenchmarkSpec.of(keys, name=name, datasets=definitions, **options)
    infos = {file: it.info for file, it in data.items()}
    plan_stream(spec.model_copy(update={"datasets": {}}), infos, ImageLimits(), 0)  # whose paths lead nowhere yet
    document = spec.model_dump(mode="json", exclude_unset=True, exclude_none=True) | {"datasets": definitions}
    document["protocols"] = {key: document["protocols"][key] for key in protocols or {}}
    text = toml_text(document)
    digest = hashlib.sha256(text.encode())
    for file, each in arrays.items():
        for key, array in each.items():
            digest.update(f"{file} {key} {array.dtype.str} {array.shape}\n".encode() + array.tobytes())
    path = absolute(folder) / f"{name}-{digest.hexdigest()[:10]}" / f"{name}.toml"
    for file, each in arrays.items():
        write_once(path.with_name(f"{file}.npz"), _npz_bytes(each))
    write_once(path, text.encode())
    return str(path)


def split_task(x: NDArray[Any], y: NDArray[Any], test_fraction: float) -> TaskArrays:
    """Hold out a share of the samples of each class, and one at least: the same ones whenever it is asked."""
    if len(x) != len(y):
        raise DataError(f"there are {len(x)} samples and {len(y)} labels", remedy="give a label for each sample")
    names, labels = np.unique(y, return_inverse=True)
    shown = list(map(str, names.tolist()))
    parts = hold_out(labels.astype(np.int64), test_fraction, "x", None, shown)
    return tuple(values[part] for part in parts for values in (x, y))


def write_task(task: TaskArrays, name: str, folder: Path) -> Path:
    """Write one task as an ``.npz`` that a benchmark file can name, and return its path.

    Args:
        task: as :func:`stream` takes it.
        name: of the task.
        folder: where the folder of the file, ``NAME-DIGEST``, is made.
    """
    arrays, _ = _prepare(f"task {name!r}", name, task)
    content = _npz_bytes(arrays)
    slug = plain_name(name)
    path = absolute(folder) / f"{slug}-{hashlib.sha256(content).hexdigest()[:10]}" / f"{slug}.npz"
    write_once(path, content)
    return path


def _prepare(
    what: str, title: str, task: TaskArrays, class_names: Sequence[str] | None = None
) -> tuple[dict[str, NDArray[Any]], RawDataset]:
    """The arrays of a task's ``.npz``, and the data set that they are."""
    try:
        arrays = _task_arrays(task, class_names)
        word, definition, source = _KINDS[_kind("x_train", arrays["x_train"])]
        found = source(definition.model_validate({"kind": word, "path": "task.npz"}), title).describe(dict(arrays))
    except (ValueError, DataError) as error:
        told = getattr(error, "what", one_line(error))
        raise DataError(
            f"{what} cannot be used: {told}", remedy="docs/guides/own_data.md says what tasks may be"
        ) from error
    for key, split in (("x_train", found.train), ("x_test", found.test)):
        # Images in the layout that they came in: brought to [N, C, H, W], some could be read in two ways.
        is_image = found.info.kind == "image"
        arrays[key] = np.ascontiguousarray(as_8_bit(arrays[key]) if is_image else split.images)
    return arrays, found


def _npz_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _task_arrays(task: TaskArrays, class_names: Sequence[str] | None) -> dict[str, NDArray[Any]]:
    """The arrays of a task's ``.npz``: labels count the classes that it has, ``class_names`` are those of these.

    A ValueError says which of them does not fit.
    """
    if not isinstance(task, tuple | list) or len(task) != len(_KEYS):
        raise ValueError(f"it is no tuple ({', '.join(_KEYS)})")
    x_train, y_train, x_test, y_test = (_as_array(key, value) for key, value in zip(_KEYS, task, strict=True))
    if (kind := _kind("x_train", x_train)) != (other := _kind("x_test", x_test)):
        raise ValueError(f"x_train is {x_train.dtype}, taken for {kind}, and x_test {x_test.dtype}, for {other}")
    train, test = as_labels("y_train", y_train), as_labels("y_test", y_test)
    for split, x, y in (("train", x_train, train), ("test", x_test, test)):
        if not len(y) or x.shape[:1] != y.shape:
            raise ValueError(f"x_{split} has shape {x.shape}, and y_{split} has {len(y)} labels")
    classes = np.unique(train)
    if train.dtype.kind != test.dtype.kind:
        raise ValueError("y_train and y_test are texts and numbers; needed is one of both")
    if uneven := np.setxor1d(classes, test).tolist():
        raise ValueError(f"the classes {uneven} are in y_train or in y_test alone; each needs samples in both")
    names = classes.tolist()
    if class_names is not None:
        if train.dtype.kind == "U":
            raise ValueError("labels that are texts name the classes: leave class_names out")
        if names and names[-1] >= len(class_names):
            raise ValueError(f"it has the label {names[-1]}, and class_names has {len(class_names)} names")
        names = [class_names[label] for label in names]
    counted = {"y_train": np.searchsorted(classes, train), "y_test": np.searchsorted(classes, test)}
    return {"x_train": x_train, "x_test": x_test, **counted, "class_names": np.array(list(map(str, names)))}


def _as_array(key: str, value: Any) -> NDArray[Any]:
    try:
        return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except (ValueError, TypeError, RuntimeError) as error:  # of lists that are ragged, or numbers that NumPy has not
        raise DataError(f"{key} is no array: {one_line(error)}", where=key) from error


def as_labels(key: str, labels: Any) -> NDArray[Any]:
    """Labels ``[N]`` as int64, or as texts; a DataError says that they are neither."""
    given = _as_array(key, labels)
    given = given[:, 0] if given.ndim == 2 and given.shape[1] == 1 else given
    if given.ndim == 1 and given.dtype.kind in "iu" and (not given.size or given.min() >= 0):
        return given.astype(np.int64)
    if given.ndim == 1 and all(isinstance(it, str) and it for it in given.tolist()):  # of whatever type
        return given.astype(str)
    what = f"{key} is {given.dtype} of shape {given.shape}"
    raise DataError(f"{what}; needed are texts, or whole numbers from 0, of shape [N]", where=key)


def _kind(key: str, values: NDArray[Any]) -> InputKind:
    """What samples are, by their type and the number of their axes."""
    if values.ndim in (3, 4):
        return "image"
    if values.ndim != 2 or values.dtype.kind not in "iuf":
        what = (
            "images [N, H, W], [N, H, W, C] or [N, C, H, W], floating point [N, D], or ids of tokens, integers [N, L]"
        )
        raise ValueError(f"{key} is {values.dtype} of shape {values.shape}; needed are {what}")
    return "features" if values.dtype.kind == "f" else "tokens"
