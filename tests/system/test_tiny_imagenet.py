"""The example of Tiny ImageNet, on images that are made up in its layout."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.commands import Command

from seu_bench.results.record import read_record

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tiny_imagenet"
#: As many classes as one step of the example has.
CLASSES = [f"n{number:08d}" for number in range(20)]


def write(path: Path, brightness: int) -> None:
    """A grey-level image of 64x64 pixels; some of Tiny ImageNet's are grey as well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(brightness).integers(0, 40, (64, 64)) + 10 * brightness
    Image.fromarray(pixels.astype(np.uint8)).save(path)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """The folder of the published archive: boxes beside the images, and a list of the validation images' classes."""
    source = tmp_path / "tiny-imagenet-200"
    lines = []
    for number, label in enumerate(CLASSES):
        for image in range(12):
            write(source / "train" / label / "images" / f"{label}_{image}.JPEG", number)
        (source / "train" / label / f"{label}_boxes.txt").write_text("0\t0\t62\t62\n")
        write(source / "val" / "images" / f"val_{number}.JPEG", number)
        lines.append(f"val_{number}.JPEG\t{label}\t0\t32\t44\t62\n")
        write(source / "test" / "images" / f"test_{number}.JPEG", number)
    (source / "val" / "val_annotations.txt").write_text("".join(lines))
    return source


def test_published_layout_is_arranged_and_learned(published: Path, tmp_path: Path, command: Command) -> None:
    """As the file's first lines say; a second call changes nothing."""
    for name in ("arrange.py", "tiny_imagenet.toml"):
        shutil.copy(EXAMPLE / name, tmp_path)
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "arrange.py", published.name, "images"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "240 training and 20 test images\n"
    benchmark = ["--benchmark", str(tmp_path / "tiny_imagenet.toml"), "-o", "benchmark.stream.classes_per_task=10"]
    short = ["--protocol", "smoke", "--results", str(tmp_path / "results"), "-o", "backbone=mlp", "-o", "epochs=1"]
    command("run", "--strategy", "naive", *benchmark, *short)
    record = read_record(next((tmp_path / "results" / "runs").iterdir()))
    assert record.scenario == "class"
    assert record.task_images == ((64, 12, 10), (64, 12, 10))
    assert record.input_shape == (3, 64, 64)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    """Nothing is written."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLE / "arrange.py"), str(tmp_path), str(tmp_path / "images")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "is not the folder" in done.stderr
    assert not (tmp_path / "images").exists()
