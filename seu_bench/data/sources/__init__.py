"""Sources of data: the official sets, and what a benchmark's own ``[datasets.NAME]`` stands for.

==========================  ==================================================
:mod:`.official`            the official sets, checked by md5
:mod:`.digits`              scikit-learn's digits, which need no files
:mod:`.folder`              a folder of class folders
:mod:`.npz`                 arrays in an ``.npz``
:mod:`.torchvision_class`   any class of ``torchvision.datasets``
:mod:`.definitions`         the source of a ``[datasets.NAME]``, its checksum
:mod:`.common`              the data root, held-out test sets, errors
==========================  ==================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from seu_bench.data.sources.common import default_data_root
    from seu_bench.data.sources.definitions import checksum_of_definition, definition_source
    from seu_bench.data.sources.digits import DigitsSource
    from seu_bench.data.sources.official import TorchvisionSource

__all__ = ["DigitsSource", "TorchvisionSource", "checksum_of_definition", "default_data_root", "definition_source"]

__getattr__ = attach(
    __name__,
    {
        "DigitsSource": "digits",
        "TorchvisionSource": "official",
        "checksum_of_definition": "definitions",
        "default_data_root": "common",
        "definition_source": "definitions",
    },
)
