"""Write scikit-learn's digits as a folder of class folders, for those who have no images at hand.

python make_images.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits


def write_images(folder: Path) -> int:
    """Write ``folder/<digit>/<number>.png``, 8x8 and grey; returns how many."""
    digits = load_digits()
    for number, (image, digit) in enumerate(zip(digits.images, digits.target, strict=True)):
        path = folder / str(digit) / f"{number:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 255 / 16).astype(np.uint8)).save(path)
    return len(digits.images)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("images")
    print(f"{write_images(target)} images below {target}")
