"""From files of images to the tensors of a stream's tasks.

- ``dataset``: data sets in memory, 8-bit images and labels; the interface of sources
- ``sources``: official sets, folders, ``.npz`` files, classes of torchvision
- ``synthetic``: made-up data sets of a given shape
- ``classes``: classes of tasks by number and by name
- ``planning``: tasks, their order and sizes, without data and without torch
- ``streams``: tasks in memory, the Avalanche benchmark over them, the fingerprint of the data
- ``images``: images of a task, gathered by index; batches tagged with the images that they hold
- ``avalanche``: the same as Avalanche data sets and loaders
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .avalanche import BatchLoader, MixedBatches, TaskDataset
    from .dataset import DatasetInfo, DatasetSource, DatasetState, RawDataset, RawSplit
    from .images import TaskImages, batch_bounds
    from .planning import StreamPlan, TaskPlan
    from .sources.common import default_data_root
    from .streams import TaskStream, build_stream

__all__ = [
    "BatchLoader",
    "DatasetInfo",
    "DatasetSource",
    "DatasetState",
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
