"""A finished run that is taught further from Python: looked at before it is kept."""

from __future__ import annotations

import os
import shutil
import tempfile
import tomllib
import weakref
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seu_bench.data.arrays import as_labels, split_task, write_task
from seu_bench.data.own_folders import keep_benchmark
from seu_bench.engine.extending import benchmark_text, extend
from seu_bench.engine.learner_file import Ancestor
from seu_bench.engine.model_card import ModelCard
from seu_bench.engine.prediction import Predictions, sample_batches
from seu_bench.engine.resolve import ResolvedRun
from seu_bench.engine.run_folder import RunFolder
from seu_bench.engine.saved_model import LearnedModel, load_model
from seu_bench.errors import RequestError, ResultsError
from seu_bench.plugin.code import file_digest
from seu_bench.plugin.registry import use_plugins
from seu_bench.results.record import Record, read_record, record_digest, record_text
from seu_bench.results.record_files import find_run
from seu_bench.utils.files import write_atomic, write_once
from seu_bench.utils.locks import RunLock
from seu_bench.utils.reading import absolute, read_file
from seu_bench.utils.text import some


def load_learner(
    run: str | Path, results: str | Path = "results", *, plugin: str | Path | Sequence[str | Path] = ()
) -> Learner:
    """Load a finished run that kept its learner, to teach it further tasks.

    Args:
        run: a run id, a unique beginning of one, or a run's folder.
        results: folder of records, in which :meth:`Learner.save` keeps what was learned.
        plugin: files of Python with the strategy, where it is in one.

    Raises:
        ResultsError: there is no such run, it kept no learner, or its files are corrupt.

    Example:
        >>> with seu_bench.load_learner(record.run_id) as learner:
        ...     learner.learn(images, labels, name="June")
        ...     learner.save()
    """
    return Learner(find_run(Path(results), str(run)), Path(results), plugin)


class Learner:
    """A run that learns further tasks; :func:`load_learner` makes one.

    What it learned lies in a temporary folder until :meth:`save`, and is gone with the learner otherwise: when it is
    closed, at the end of a ``with`` block, or when the process ends.

    Attributes:
        record: of the run, or of the longest one that was learned from it.
    """

    def __init__(self, folder: Path, results: Path, plugin: str | Path | Sequence[str | Path] = ()) -> None:
        self.record = Ancestor.read(folder).record
        self._folder, self._results, self._plugin = absolute(folder), Path(results).resolve(), plugin
        self._learned: list[Path] = []
        self._scratch = Path(tempfile.mkdtemp(prefix="seu-bench-learner-")).resolve()
        self._finalizer = weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)

    @cached_property
    def model(self) -> LearnedModel:
        """The model with all that was learned, as :func:`seu_bench.load_model` returns it."""
        return load_model(self._folder, plugin=self._plugin)

    def learn(
        self, x: Any, y: Any, *, name: str | None = None, test: tuple[Any, Any] | None = None,
        test_fraction: float = 0.2, **execution: Any,
    ) -> Record:  # fmt: skip
        """Learn one more task, with the weights that a run of all tasks from nothing would have.

        The same call resumes one that was interrupted.

        Args:
            x: samples, as :meth:`predict` takes them.
            y: labels ``[N]``: names of classes, known or new ones; numbers where the run's classes are numbers.
            name: of the task; by default ``task_4`` behind three others.
            test: samples and labels to test with; ``None``: ``test_fraction`` of each class is held out.
            test_fraction: of each class, one sample at least.
            execution: fields of a request that decide no result, such as ``device`` and ``data_root``.

        Returns:
            The record of the longer run, whose matrix has one more row and column.

        Raises:
            DataError: samples cannot be used, or those of earlier tasks, which are tested again, are not there.
            RequestError: labels or samples do not fit the run, or its strategy cannot learn a further task.

        Example:
            ``learner.learn("daisy/1.jpg daisy/2.jpg rose/1.jpg rose/2.jpg".split(), ["daisy"] * 2 + ["rose"] * 2)``
        """
        if not self._finalizer.alive:
            raise RequestError("this learner is closed", remedy="load the run again with seu_bench.load_learner")
        if not 0 < test_fraction < 1:
            raise RequestError(f"test_fraction is {test_fraction}", remedy="give a number between 0 and 1")
        samples, labels = self._samples(x), as_labels("y", y)
        names = [name for names in self.record.task_class_names for name in names]
        if labels.dtype.kind == "i" and not all(map(str.isdecimal, names)):
            what = f"labels are numbers, and classes of the run have names: {some(names)}"
            raise RequestError(what, remedy="give names")
        held = None if test is None else (self._samples(test[0]), as_labels("y", test[1]))
        task = split_task(samples, labels, test_fraction) if held is None else (samples, labels, *held)
        title = name or f"task_{len(self.record.task_names) + 1}"
        file = write_task(task, title, self._scratch / "streams")
        own: dict[str, Any] = {"data": file, "name": title, "results": self._scratch, "keep_learner": True}
        registry = use_plugins(self._plugin)
        outcome = extend(registry, self._folder, watcher=self._check_classes, **own, **execution)
        self.record, self._folder = outcome.record, outcome.path.parent
        self._learned.append(self._folder)
        self.__dict__.pop("model", None)
        return self.record

    def predict(self, inputs: Any, *, task: int | str | None = None, batch_size: int = 64) -> Predictions:
        """Predict the classes of samples, as :meth:`seu_bench.engine.LearnedModel.predict` does."""
        return self.model.predict(inputs, task=task, batch_size=batch_size)

    def evaluate(self, x: Any, y: Any, *, task: int | str | None = None) -> dict[str, Any]:
        """Measure the accuracy on labelled samples.

        Args:
            x: samples, as :meth:`predict` takes them.
            y: names or numbers of their classes ``[N]``, as :meth:`learn` takes them.
            task: of the samples, by name or index, where it must be told.

        Returns:
            ``accuracy`` from 0 to 1, ``count`` of samples, and ``classes``: both for each class by its name.

        Raises:
            RequestError: the model knows no class of a label, or what :meth:`predict` raises.

        Example:
            ``learner.evaluate(images, labels)["classes"]["daisy"]["accuracy"]``
        """
        labels, number = list(map(str, as_labels("y", y).tolist())), self.model.card.find_task(task)
        outputs = self.model.card.outputs_of(number)
        if unknown := sorted({*labels} - outputs.keys()):
            what = f"the model has no classes called {some(unknown)}"
            raise RequestError(what, where="y", remedy=f"it has {', '.join(outputs)}")
        found = self.predict(x, task=number).outputs
        if len(found) != len(labels) or not found:
            what = f"there are {len(found)} samples and {len(labels)} labels"
            raise RequestError(what, where="x, y", remedy="give a label for each sample, and one at least")
        counts = Counter(labels)
        right = Counter(label for label, output in zip(labels, found, strict=True) if outputs[label] == output)
        classes = {
            label: {"accuracy": right[label] / counts[label], "count": counts[label]} for label in sorted(counts)
        }
        return {"accuracy": right.total() / len(labels), "count": len(labels), "classes": classes}

    def save(self) -> Record:
        """Keep all that was learned in the results folder, and return the record of the longest run.

        From then on ``seu-bench verify``, ``extend`` and ``predict`` know each of these runs. A run that is there
        already is left as it is.

        Raises:
            ResultsError: the folder cannot be written to, another process makes one of these runs, or one is there with
                other weights or without a learner. The runs of earlier tasks are kept by then, and none by half.
        """
        parent: Record | None = None
        for source in self._learned:
            parent = self._keep(source, parent)
        if parent is not None:
            self.record, self._folder = parent, RunFolder(self._results, parent.run_id).folder
            self._learned = []
            shutil.rmtree(self._scratch)
        return self.record

    def _keep(self, source: Path, parent: Record | None) -> Record:
        """Copy a run into the results folder, its record last, and return the record that is there then."""
        record = read_record(source)
        target = RunFolder(self._results, record.run_id)
        lock = RunLock(target.folder)
        lock.acquire()
        try:
            target.refuse_links()
            if (known := target.finished()) is not None:
                if known.weights_sha256 == record.weights_sha256 and known.learner_sha256 is not None:
                    return known
                what = f"run {record.run_id} is there already, with other weights or without a learner"
                remedy = "remove that run, or load the learner with another results folder"
                raise ResultsError(what, where=str(target.folder), remedy=remedy)
            record = self._keep_benchmark(record)
            if parent is not None and record.parent is not None:
                own = record.parent.model_copy(update={"record_sha256": parent.record_sha256})
                record = record.model_copy(update={"parent": own})
            digest = record_digest(record.model_dump(mode="json"))
            record = record.model_copy(update={"record_sha256": digest})
            target.record.unlink(missing_ok=True)  # of one that was not finished
            for path in (target.model, target.learner):
                write_atomic(path, read_file(source / path.name))
            write_atomic(target.record, record_text(record))
            target.remove_remains()
            target.remove_unfinished()
            return record
        finally:
            lock.release()

    def _keep_benchmark(self, record: Record) -> Record:
        """Write the benchmark file of a run and what was learned into the results folder, and return its record then:
        the file's paths are relative, and others from there."""
        source = self._scratch / str(record.benchmark_file)
        document = tomllib.loads(read_file(source).decode())
        for own in document["datasets"].values():
            if "path" in own:
                path = absolute(source.parent / own["path"])
                if path.is_relative_to(self._scratch):
                    content, path = read_file(path), self._results / path.relative_to(self._scratch)
                    write_once(path, content)
                own["path"] = path
        path = keep_benchmark(document["name"], benchmark_text(document, self._results), self._results)
        written = {
            "benchmark_file": os.path.relpath(path, self._results),
            "code": tuple(
                it.model_copy(update={"sha256": file_digest(path)}) if it.kind == "benchmark file" else it
                for it in record.code
            ),
        }
        return record.model_copy(update=written)

    def close(self) -> None:
        """Remove what was learned and not saved."""
        self._finalizer()

    def __enter__(self) -> Learner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _samples(self, x: Any) -> NDArray[Any]:
        """Samples ``[N, *shape]`` as the data set of the last task has them."""
        batches = sample_batches(ModelCard.of(self.record), x, len(self.record.task_inputs) - 1)
        if not (parts := [samples for samples, _ in batches]):
            raise RequestError("there are no samples", where="x", remedy="give some")
        return np.concatenate(parts)

    def _check_classes(self, run: ResolvedRun) -> object:
        """Refuse labels that would be taken for other classes than those of earlier tasks that have the same names:
        data sets that name no classes have others than a new one's."""
        names, known = run.plan().tasks[-1].class_names, self.record.task_class_names
        scenario = self.record.scenario
        for place, name in enumerate(names):
            if scenario == "class" and any(name in task for task in known):
                told = "another class than the one that is called so"
            elif scenario == "domain" and not any(name in task[place : place + 1] for task in known):
                told = f"the class that is called {known[0][place]!r}"
            else:
                continue
            remedy = "run its tasks anew on data that name their classes"
            raise RequestError(f"label {name!r} would be learned as {told}", where="y", remedy=remedy)
        return object()
