"""Images per second of a folder whose decoded images lie in a file, beside torchvision's folder and torch's loader."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import Compose, Normalize, RandomHorizontalFlip, Resize, ToTensor

from scripts.perf.comparison import Result, Table
from scripts.perf.timing import interleaved, median, ratio
from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.protocol import ImageLimits
from seu_bench.data import TaskImages, build_stream
from seu_bench.data.sources import definition_source

#: Pixels a side, of the files and as a network gets them; classes; images per batch.
STORED, SHOWN, CLASSES, BATCH = 96, 64, 4, 64
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def measure(_: str) -> Result:
    """One epoch over shuffled batches, each way: files decoded anew, and read from the file of decoded images."""
    count = 4000
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        _write(root / "photos", count)
        ways: dict[str, Callable[[], int]] = {
            "ours": _ours(root, "disk"),
            "ours, in memory": _ours(root, "memory"),
            "torchvision": _theirs(root, workers=0),
        }
        workers = 2
        ways[f"torchvision, {workers} workers"] = _theirs(root, workers=workers)
        seen = {name: epoch() for name, epoch in ways.items()}  # validation images are not in ours
        taken = interleaved(ways, 3)
    per_image = {name: [spent / seen[name] for spent in rounds] for name, rounds in taken.items()}
    rows = [[name, 1 / median(per_image, name), ratio(per_image, name, "ours")] for name in ways]
    return Result(
        {"images": count, "pixels of the files": f"{STORED}x{STORED}", "pixels": f"3x{SHOWN}x{SHOWN}", "batch": BATCH},
        {
            "over_torchvision": ratio(per_image, "torchvision", "ours"),
            "over_workers": ratio(per_image, f"torchvision, {workers} workers", "ours"),
            "over_memory": ratio(per_image, "ours, in memory", "ours"),
        },
        (
            Table(
                "An epoch of batches, flipped at random",
                ("way", "images per second", "seconds / ours"),
                rows,
            ),
        ),
    )


def _write(folder: Path, count: int) -> None:
    generator = np.random.default_rng(0)
    for label in range(CLASSES):
        (folder / "train" / str(label)).mkdir(parents=True)
        (folder / "test" / str(label)).mkdir(parents=True)
        for number in range(count // CLASSES):
            pixels = generator.integers(0, 256, (STORED // 8, STORED // 8, 3), dtype=np.uint8)
            image = Image.fromarray(pixels).resize((STORED, STORED))
            image.save(folder / "train" / str(label) / f"{number}.jpg")
        image.save(folder / "test" / str(label) / "0.jpg")


def _ours(root: Path, cache: str) -> Callable[[], int]:
    definition = {"kind": "folder", "path": root / "photos", "size": SHOWN, "cache": cache}
    spec = BenchmarkSpec.model_validate(
        {
            "name": "photos",
            "datasets": {"photos": definition},
            "stream": {
                "kind": "classes",
                "dataset": "photos",
                "groups": [list(range(CLASSES))],
                "validation": 0.01,
                "input": {"mean": MEAN, "std": STD, "augment": {"flip": True}},
            },
            "protocols": {"paper": {}},
        }
    )
    source = definition_source(spec.datasets["photos"], "photos")
    train: TaskImages = build_stream(spec, lambda _: source.load(root), ImageLimits(), seed=0).tasks[0].train

    def epoch() -> int:
        return sum(len(y) for _, y in train.batches(BATCH, shuffle=True))

    return epoch


def _theirs(root: Path, *, workers: int) -> Callable[[], int]:
    changes: list[Any] = [
        Resize((SHOWN, SHOWN)),  # type: ignore[no-untyped-call]
        RandomHorizontalFlip(),  # type: ignore[no-untyped-call]
        ToTensor(),
        Normalize(MEAN, STD),  # type: ignore[no-untyped-call]
    ]
    change = Compose(changes)  # type: ignore[no-untyped-call]
    data = ImageFolder(str(root / "photos" / "train"), transform=change)
    loader: DataLoader[Any] = DataLoader(data, BATCH, shuffle=True, num_workers=workers)

    def epoch() -> int:
        return sum(len(y) for _, y in loader)

    return epoch
