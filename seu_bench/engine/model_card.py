"""What a model takes and what its outputs mean: all that is needed to use it, in its file and in ONNX."""

from __future__ import annotations

from collections import Counter
from typing import Final, Literal, get_args

from seu_bench.config.common_options import Certainty
from seu_bench.config.streams import InputKind, Scenario
from seu_bench.errors import RequestError
from seu_bench.results.record import Document, FileName, Integer, Record, SampleShape, TaskInput
from seu_bench.results.record_metrics import measured_rows

#: How pixels are given and pictures resized, of every model that takes images.
PIXELS: Final = "uint8 from 0 to 255, or floats in [0, 1]"
RESIZE: Final = "bilinear, antialiased (Pillow)"


class ModelCard(Document):
    """All that is needed to use the model of a finished run; made from its record alone.

    Attributes:
        run_id, scenario: of the run.
        task_label: ``required``; ``not needed``: one head answers; or how the task of a sample is inferred. It is
            required, too, where samples of different tasks are prepared in different ways.
        task_names: in the order in which tasks were learned.
        learned: the tasks that can be asked for, by index.
        classes: in the order of the outputs without a task label; ``None``: the scenario has no such answers. Where a
            name stands for several classes, the task goes before it; where tasks share outputs and name them
            otherwise, the names are joined.
        task_classes: of each task; in the order of the outputs where :attr:`has_task_outputs`.
        has_task_outputs: whether a sample whose task is told is answered with the classes of this task alone.
        input_kind, input_shape, vocabulary: what the network takes: channels, height and width; or the length.
        pixels, resize: how images are given, and how those of another size come to it; ``None``: it takes no images.
        task_inputs: of each task, what makes the network's input of a sample ``[C, H, W]`` as it is stored: pad by
            zeros, divide by 255, colour, subtract ``mean``, divide by ``std``, permute, repeat to all channels.

    Example:
        ``load_model(run).card.classes``
    """

    run_id: FileName
    scenario: Scenario
    task_label: Literal["required", "not needed", "entropy", "energy"]
    task_names: tuple[str, ...]
    learned: tuple[Integer, ...]
    classes: tuple[str, ...] | None
    task_classes: tuple[tuple[str, ...], ...]
    has_task_outputs: bool
    input_kind: InputKind
    input_shape: SampleShape | None
    vocabulary: Integer | None
    pixels: str | None
    resize: str | None
    task_inputs: tuple[TaskInput, ...]

    @classmethod
    def of(cls, record: Record) -> ModelCard:
        """The card of the model of a record."""
        learned, names = learned_tasks(record), dict(enumerate(record.task_class_names))
        of_tasks = []
        for task, count in enumerate(record.task_classes):  # outputs without images have no names
            known = names.get(task, ())[:count]
            of_tasks.append((*known, *map(str, range(len(known), count))))
        classes = None
        if record.scenario == "class":
            found = [(task, name) for task in learned for name in of_tasks[task]]
            often = Counter(name for _, name in found)
            classes = tuple(name if often[name] == 1 else f"{record.task_names[it]}: {name}" for it, name in found)
        elif record.scenario == "domain":
            shared = zip(*(of_tasks[task] for task in learned), strict=True)
            classes = tuple(" or ".join(dict.fromkeys(names)) for names in shared)
        asked = record.options.get("infer_task")
        inferred = asked if record.scenario != "task" and asked in get_args(Certainty) else None
        is_told = record.scenario == "task" or len({*record.task_inputs}) > 1
        is_image = record.input_kind == "image" or record.encoder is not None
        shape: SampleShape | None = record.input_shape
        if record.input_kind == "features" and is_image:
            first = record.task_inputs[0]
            height, width = (first.resize or side + 2 * first.pad for side in first.shape[1:])
            shape = (3, height, width)
        return cls(
            run_id=record.run_id,
            scenario=record.scenario,
            task_label="required" if is_told else inferred or "not needed",
            task_names=record.task_names,
            learned=learned,
            classes=classes,
            task_classes=tuple(of_tasks),
            has_task_outputs=record.scenario == "task" or inferred is not None,
            input_kind="image" if is_image else record.input_kind,
            input_shape=shape,
            vocabulary=record.vocabulary,
            pixels=PIXELS if is_image else None,
            resize=RESIZE if is_image else None,
            task_inputs=record.task_inputs,
        )

    def find_task(self, task: int | str | None) -> int | None:
        """Index of a task by index or name, of which a name goes first; ``None``: no label is given, nor needed.

        Raises:
            RequestError: the task was not learned, or must be given; the learned ones are named.
        """
        known = ", ".join(f"{learned} ({self.task_names[learned]!r})" for learned in self.learned) or "none"
        if task is None:
            if self.task_label != "required":
                return None
            why = "was task-incremental: its model needs the task of the samples"
            if self.scenario != "task":
                why = "prepared the samples of each task in its own way: its model needs their task"
            first = self.learned[0] if self.learned else 0
            remedy = f"give one that it learned by --task {first} (from Python task={first}): {known}"
            raise RequestError(f"run {self.run_id} {why}", remedy=remedy)
        called = [place for place, name in enumerate(self.task_names) if name == task]
        if len(called) > 1:
            what = f"run {self.run_id} has several tasks that are called {task!r}"
            raise RequestError(what, remedy=f"give the index: {', '.join(map(str, called))}")
        found = called[0] if called else int(task) if str(task).isdecimal() else -1
        if found not in self.learned:
            name = f" ({self.task_names[found]!r})" if 0 <= found < len(self.task_names) else ""
            what = f"run {self.run_id} has not learned task {task}{name}"
            raise RequestError(what, remedy=f"the tasks that it learned: {known}")
        return found

    def classes_of(self, task: int | None) -> tuple[str, ...]:
        """Names of the classes in the order of the outputs, for samples of a task, or of any."""
        if task is None or (self.scenario == "class" and not self.has_task_outputs):
            return self.classes or ()
        return self.task_classes[task]

    def outputs_of(self, task: int | None) -> dict[str, int]:
        """The output of each class by its name; of any of its names where tasks share outputs."""
        if task is None and self.scenario == "domain":
            return {name: place for it in self.learned for place, name in enumerate(self.task_classes[it])}
        return {name: place for place, name in enumerate(self.classes_of(task))}


def learned_tasks(record: Record) -> tuple[int, ...]:
    """The tasks of a run that can be answered at its end: those of the last row of the matrix with a measurement."""
    rows = (record.accuracy_matrix[row] for row in measured_rows(record)[-1:])
    return tuple(task for row in rows for task, value in enumerate(row) if value is not None)
