"""From files of images to the tensors of a stream's tasks.

- ``dataset``: data sets; ``synthetic``: made-up ones; ``sources``: of torchvision, digits
- ``own_files``: folders of images and ``.npz`` files; ``listed_files``: lists of images; ``own_tables``: tables of
  numbers, and tokens; ``own_folders``: benchmark files of folders and lists
- ``tasks``: the list of tasks that a benchmark is; ``planning``: their sizes, without data; ``streams``: in memory
- ``images``: inputs of a task, gathered by index; ``avalanche``: the same as Avalanche data sets and loaders
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .avalanche import BatchLoader, MixedBatches, TaskDataset
    from .dataset import DatasetInfo, DatasetSource, DatasetState, InputShape, RawDataset, RawSplit, default_data_root
    from .images import TaskImages, batch_bounds
    from .planning import StreamPlan, TaskPlan
    from .streams import TaskStream, build_stream

__all__ = [
    "BatchLoader",
    "DatasetInfo",
    "DatasetSource",
    "DatasetState",
    "InputShape",
    "MixedBatches",
    "RawDataset",
    "RawSplit",
    "StreamPlan",
    "TaskDataset",
    "TaskImages",
    "TaskPlan",
    "TaskStream",
    "batch_bounds",
    "build_stream",
    "default_data_root",
]

__getattr__, __dir__ = attach(__name__)
