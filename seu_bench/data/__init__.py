"""From files of images to the tensors of a stream's tasks.

- ``dataset``: data sets, 8-bit images and labels; the interface of sources
- ``sources``: classes of torchvision, digits; ``folders``, ``own_files``: the user's own; ``decoding``: files of images
- ``synthetic``: made-up data sets of a given shape
- ``tasks``: the list of tasks that a benchmark is; ``planning``: their sizes, without data and without torch
- ``streams``: tasks in memory, the Avalanche benchmark over them, the fingerprint of the data
- ``images``: images of a task, gathered by index; ``normaliser``: from pixels to inputs
- ``avalanche``: the same as Avalanche data sets and loaders
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .avalanche import BatchLoader, MixedBatches, TaskDataset
    from .dataset import DatasetInfo, DatasetSource, DatasetState, RawDataset, RawSplit, default_data_root
    from .images import TaskImages, batch_bounds
    from .planning import StreamPlan, TaskPlan
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
