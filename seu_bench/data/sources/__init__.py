"""Sources of data sets.

- ``official``: official sets that torchvision reads, checked by md5
- ``digits``: scikit-learn's digits, which need no files
- ``definitions``: a benchmark's ``[datasets.NAME]``
- ``folders``: folders of images, of the user's own and of well-known sets
- ``layouts``: what lies where in well-known sets
- ``decoding``: files of images decoded into memory, or into a file
- ``npz``: arrays of the user's own
- ``own_files``: what files and folders of the user's own have in common
- ``torchvision_class``: any class of ``torchvision.datasets``
- ``common``: the data root, held-out test sets, pixels of images, errors
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .digits import DigitsSource
    from .official import TorchvisionSource

__all__ = ["DigitsSource", "TorchvisionSource"]

__getattr__, __dir__ = attach(__name__)
