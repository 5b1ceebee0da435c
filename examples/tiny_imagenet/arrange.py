"""Make class folders of Tiny ImageNet as it is published: ``TARGET/train/CLASS`` and ``TARGET/test/CLASS``.

python arrange.py SOURCE TARGET

SOURCE is the folder that tiny-imagenet-200.zip unpacks to; its validation images become the test images, for those of
its test set have no labels. Images are linked where the file system allows it, and copied otherwise.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def arrange(source: Path, target: Path) -> tuple[int, int]:
    """Write the folders; what is there already is left as it is.

    Returns:
        Numbers of training and of test images.

    Raises:
        SystemExit: the source is not Tiny ImageNet.
    """
    listed = source / "val" / "val_annotations.txt"
    train = sorted((source / "train").glob("*/images/*.JPEG"))
    if not train or not listed.is_file():
        sys.exit(f"{source} is not the folder that tiny-imagenet-200.zip unpacks to: it needs train and val")
    for image in train:
        _link(image, target / "train" / image.parent.parent.name / image.name)
    lines = [line.split("\t") for line in listed.read_text(encoding="utf-8").splitlines() if line]
    for name, label, *_ in lines:
        _link(source / "val" / "images" / name, target / "test" / label / name)
    return len(train), len(lines)


def _link(image: Path, target: Path) -> None:
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(image, target)
    except OSError:
        shutil.copyfile(image, target)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python arrange.py SOURCE TARGET")
    print("{} training and {} test images".format(*arrange(Path(sys.argv[1]), Path(sys.argv[2]))))
