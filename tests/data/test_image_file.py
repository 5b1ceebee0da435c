"""Images in a file: read as asked for, in the learner's hands the same bit by bit as images in memory."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from seu_bench.config.benchmark import BenchmarkFile, BenchmarkSpec
from seu_bench.config.protocol import ImageLimits
from seu_bench.data import TaskImages, TaskStream, build_stream, own_files
from seu_bench.data.dataset import blocks
from seu_bench.data.images import pixel_statistics
from seu_bench.data.sources import definition_source
from seu_bench.errors import DataError


def test_statistics_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of NumPy, however many images are read at once."""
    pixels = np.random.default_rng(4).integers(0, 256, (50, 3, 5, 6), dtype=np.uint8)
    mean, std = pixel_statistics(blocks(pixels))
    np.testing.assert_allclose(mean, (pixels / 255).mean(axis=(0, 2, 3)), rtol=1e-13)
    np.testing.assert_allclose(std, (pixels / 255).std(axis=(0, 2, 3)), rtol=1e-13)
    monkeypatch.setattr("seu_bench.data.dataset.BLOCK_BYTES", 300)
    assert all(map(np.array_equal, pixel_statistics(blocks(pixels)), (mean, std)))
    assert pixel_statistics([np.full((3, 1, 2, 2), 7, dtype=np.uint8)])[1].tolist() == [0.0]


def fill(folder: Path, per_class: int = 8, size: int = 6, classes: int = 4) -> None:
    generator = np.random.default_rng(1)
    for name in "abcdefgh"[:classes]:
        (folder / name).mkdir(parents=True)
        for number in range(per_class):
            pixels = generator.integers(0, 256, (size, size, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def benchmark(folder: Path, cache: str, stream: str = "", definition: str = "") -> BenchmarkSpec:
    file = folder / f"{cache}.toml"
    file.write_text(
        'name = "mine"\n[stream]\nkind = "classes"\ndataset = "photos"\nclasses_per_task = 2\nvalidation = 0.3\n'
        f"{stream}\n"
        f'[datasets.photos]\nkind = "folder"\npath = "photos"\nsize = 6\ncache = "{cache}"\n{definition}\n'
    )
    return BenchmarkFile(file).load()


def stream_of(spec: BenchmarkSpec, root: Path, **more: Any) -> TaskStream:
    definition = spec.datasets["photos"]
    return build_stream(
        spec, lambda name: definition_source(definition, name).load(root), ImageLimits(), seed=3, **more
    )


def batches(images: TaskImages, *, shuffle: bool) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(0)
    return list(images.batches(3, shuffle=shuffle))


STREAMS = {
    "plain": "",
    "given mean": "[stream.input]\nmean = [0.5, 0.4, 0.3]\nstd = [0.2, 0.3, 0.4]\npad = 2",
    "augmented": "[stream.input]\naugment = { crop = 1, flip = true, brightness = 0.2 }",
}


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize("evaluation", ["test", "validation"])
def test_the_same_as_in_memory(tmp_path: Path, stream: str, evaluation: Any) -> None:
    fill(tmp_path / "photos")
    specs = [benchmark(tmp_path, cache, stream) for cache in ("memory", "disk")]
    assert specs[0].identity() == specs[1].identity()
    memory, disk = (stream_of(spec, tmp_path / "root", evaluation=evaluation) for spec in specs)
    assert memory.fingerprint == disk.fingerprint
    assert memory.plan == disk.plan
    for task, other in zip(memory.tasks, disk.tasks, strict=True):
        for split in ("train", "valid", "test"):
            known, read = getattr(task, split), getattr(other, split)
            assert isinstance(known.store, torch.Tensor) and not isinstance(read.store, torch.Tensor)
            assert known.store.shape[1:] == read.store.shape[1:]
            for shuffle in (True, False):
                found = list(zip(batches(known, shuffle=shuffle), batches(read, shuffle=shuffle), strict=True))
                assert found and all(torch.equal(*pair) for pairs in found for pair in zip(*pairs, strict=True))
            positions = torch.tensor([1, 0, 1])
            assert all(map(torch.equal, known.gather(positions), read.gather(positions)))
            assert all(
                map(torch.equal, known.halves()[1].gather(positions[1:2]), read.halves()[1].gather(positions[1:2]))
            )


def the_file(root: Path) -> Path:
    """The only file of decoded images."""
    [file] = (root / "decoded").glob("*/*")
    return file


def test_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found again by the next run; made anew when a file of the folder changed."""
    fill(tmp_path / "photos")
    spec, root = benchmark(tmp_path, "disk"), tmp_path / "root"
    source = definition_source(spec.datasets["photos"], "photos")
    checksum = source.load(root).checksum()
    file = the_file(root)
    assert file.stat().st_size == 32 * 3 * 6 * 6 + 64
    assert file.read_bytes()[-64:].decode() == checksum
    with monkeypatch.context() as patch:
        patch.setattr(own_files, "decoded_in_order", lambda *_: pytest.fail("decoded a second time"))
        assert source.load(root).checksum() == checksum
    first = tmp_path / "photos" / "a" / "0.png"
    Image.fromarray(np.zeros((6, 6, 3), dtype=np.uint8)).save(first)
    assert source.load(root).checksum() != checksum
    assert the_file(root) != file  # and the earlier one is gone


DAMAGES = {
    "one bit": lambda raw: bytes([raw[0] ^ 1]) + raw[1:],
    "another checksum": lambda raw: raw[:-64] + b"0" * 64,
    "empty": lambda raw: b"",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_file_that_is_not_as_written_is_made_anew(tmp_path: Path, damage: Any) -> None:
    fill(tmp_path / "photos")
    memory, spec = benchmark(tmp_path, "memory"), benchmark(tmp_path, "disk")
    root = tmp_path / "root"
    right = stream_of(memory, root)
    stream_of(spec, root)
    file = the_file(root)
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    with pytest.warns(UserWarning, match="not as it was written: its images are decoded anew"):
        found = stream_of(spec, root)
    assert found.fingerprint == right.fingerprint
    assert file.read_bytes() == whole
    assert torch.equal(found.tasks[0].train.gather(torch.arange(5))[0], right.tasks[0].train.gather(torch.arange(5))[0])


def test_no_room_for_it(tmp_path: Path) -> None:
    fill(tmp_path / "photos")
    (tmp_path / "root").write_text("a file in the place of the folder")
    spec = benchmark(tmp_path, "disk")
    with pytest.raises(DataError, match=r"cannot be kept on disk(.|\n)*--data-root(.|\n)*cache = 'memory'"):
        definition_source(spec.datasets["photos"], "photos").load(tmp_path / "root")


def test_several_at_once_decode_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "photos")
    spec, root = benchmark(tmp_path, "disk"), tmp_path / "root"
    calls: list[str] = []
    original = own_files.decoded_in_order
    monkeypatch.setattr(own_files, "decoded_in_order", lambda *given: (calls.append(given[2]), original(*given))[1])
    source = definition_source(spec.datasets["photos"], "photos")
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(source.load(root).checksum())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == ["photos"]
    assert len(found) == 3 and len({*found}) == 1


_PEAK = """
import re, sys
from pathlib import Path
from seu_bench.config.benchmark import BenchmarkFile
from seu_bench.config.protocol import ImageLimits
from seu_bench.data import build_stream
from seu_bench.data.sources import definition_source
spec = BenchmarkFile(Path(sys.argv[1])).load()
definition = spec.datasets["photos"]
stream = build_stream(spec, lambda name: definition_source(definition, name).load(Path(sys.argv[2])), ImageLimits(), 0)
peaks = []
for task in stream.tasks:
    for x, y in task.train.batches(32, shuffle=True):
        peaks.append(int(re.search(r"RssAnon:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1]))
print(max(peaks))
"""


@pytest.mark.long
def test_memory_stays_flat(tmp_path: Path) -> None:
    """Ten times as many images: ten times the memory for what is kept in it, and hardly more for what is on disk."""
    peaks: dict[tuple[str, int], int] = {}
    for per_class in (50, 500):
        folder = tmp_path / str(per_class)
        fill(folder / "photos", per_class=1, size=64)
        for place in (folder / "photos").iterdir():
            for number in range(1, per_class):
                (place / f"{number}.png").hardlink_to(place / "0.png")
        for cache in ("memory", "disk"):
            benchmark(folder, cache, definition="test_fraction = 0.1")
            file = folder / f"{cache}.toml"
            file.write_text(file.read_text().replace("size = 6", "size = 64"))
            command = [sys.executable, "-c", _PEAK, str(file), str(folder / "root")]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            peaks[cache, per_class] = 1024 * int(done.stdout)
    more = 1800 * 3 * 64 * 64
    growth = {cache: (peaks[cache, 500] - peaks[cache, 50]) / more for cache in ("memory", "disk")}
    assert growth["memory"] > 3, growth  # nearly four bytes for each pixel
    assert growth["disk"] < 1, growth
