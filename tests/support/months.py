"""Digits as pictures in class folders, a folder for each month, and benchmark files of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

#: A ranked protocol that is over in no time.
INSTANT = """
default_protocol = "instant"
[protocols.instant]
images = { train = 32, valid = 8, test = 16 }
training = { epochs = 2, batch_size = 16 }
"""


def write_month(folder: Path, classes: Sequence[int], each: int = 24, first: int = 0) -> Path:
    """Write ``each`` pictures of some digits, from the ``first`` on, into class folders such as ``d3``."""
    images, labels = load_digits(return_X_y=True)
    for label in classes:
        place = folder / f"d{label}"
        place.mkdir(parents=True)
        for index in np.flatnonzero(labels == label)[first : first + each]:
            pixels = np.round(images[index].reshape(8, 8) * 255 / 16).astype(np.uint8)
            Image.fromarray(pixels).save(place / f"{index}.png")
    return folder


def months_file(path: Path, months: Sequence[Path], scenario: str = "class", more: str = INSTANT) -> Path:
    """Write a benchmark file with a task for each folder, called like it."""
    defaults, _, tables = more.partition("[")
    text = f'name = "months"\n{defaults}\n[stream]\nkind = "datasets"\nscenario = "{scenario}"\n'
    text += "".join(f'[stream.tasks.{month.name}]\ndataset = "{month.name}"\n' for month in months)
    text += "".join(
        f'[datasets.{month.name}]\nkind = "folder"\npath = "{month}"\nsize = 8\nchannels = 1\n' for month in months
    )
    path.write_text(text + ("[" + tables if tables else ""), encoding="utf-8")
    return path
