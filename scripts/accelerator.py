"""The paper's table on an accelerator that can be had for minutes and has no network: pack here, run there.

    python scripts/accelerator.py pack --data-root DATA    # lays .lend: what to carry, and says what to give there
    python .lend/code/accelerator.py probe                 # there, with torch, NumPy and Pillow: how fast is it?
    python .lend/code/accelerator.py run --seconds 560     # rows in the order of their worth; again until none is left
    python .lend/code/accelerator.py collect               # done after each row, too: records, logs and the table

``run`` exits with 75 where rows are left. What fails is a row of the table. $OUT is where results go (default: home).
"""

from __future__ import annotations

import argparse
import functools
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

#: What the image lacks beside torch: Avalanche without what it rarely needs, and pydantic with its own.
PACKAGES: Final = (("--no-deps", "avalanche-lib==0.6.0", "dill"), ("pydantic",))
#: Bytes that can be carried at once.
PART: Final = 60 * 2**20
#: Images of a sheet, which are compressed together; WebP has at most 16,383 rows of pixels.
SHEET: Final = 500
#: Rows by name: arguments of `seu-bench run`.
ROWS: Final = {
    **{name: f"--strategy {name}" for name in ("seu", "ewc", "naive")},
    "inherit": "--strategy seu --searcher inherit --creator inherit -o width=0.5",
    **{name: f"--strategy {name}" for name in ("ltg", "pnn")},
    "random": "--strategy seu --searcher random --creator all_new",
    **{f"{name} {seed}": f"--strategy {name} --seed {seed}" for seed in (1, 2) for name in ("seu", "ewc", "naive")},
}
#: Accuracy, parameters in millions and mixed score of the paper.
PAPER: Final = {
    "seu": (0.7405, 3.84, 0.454), "ewc": (0.6098, None, None), "naive": (0.4762, None, None),
    "ltg": (0.6553, None, None), "pnn": (0.6676, None, None),
}  # fmt: skip
#: Exit status of a run that has no time left, and of this script where rows are left.
OUT_OF_TIME: Final = 75


def pack(data: Path, lend: Path, python: str) -> list[Path]:
    """Lay wheels for a version of Python, this script and CIFAR-100 into folders; return those of the data."""
    shutil.rmtree(lend, ignore_errors=True)
    code = lend / "code"
    code.mkdir(parents=True)
    shutil.copy(__file__, code / "accelerator.py")
    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", str(code), "."], check=True)
    there = ["--python-version", python, "--platform", "manylinux2014_x86_64", "--platform", "any"]
    for packages in PACKAGES:
        wheels = [*pip, "download", "-q", "--only-binary=:all:", *there, "-d", str(code), *packages]
        subprocess.run(wheels, check=True)
    return split(data / "cifar-100-python", lend)


def split(source: Path, lend: Path, most: int = PART) -> list[Path]:
    """Write the files of CIFAR-100 as lossless sheets of images, and the bytes around these, in parts of a size."""
    parts: list[Path] = []
    left = 0
    for name, content in _members(source):
        if len(content) > left:
            parts.append(lend / f"data{len(parts) + 1}")
            parts[-1].mkdir(parents=True)
            left = most
        left -= len(content)
        with zipfile.ZipFile(parts[-1] / f"part{len(parts)}.zip", "a") as archive:
            archive.writestr(name, content)
    return parts


def _members(source: Path) -> Iterator[tuple[str, bytes]]:
    from PIL import Image

    for file in ("meta", "test", "train"):
        whole = (source / file).read_bytes()
        images = pickle.loads(whole, encoding="latin1").get("data")  # noqa: S301, as torchvision reads it
        if images is None:
            yield f"{file}/before", whole
            continue
        start = whole.index(images.tobytes())
        yield f"{file}/before", whole[:start]
        yield f"{file}/after", whole[start + images.nbytes :]
        for number in range(0, len(images), SHEET):
            some = images[number : number + SHEET].reshape(-1, 3, 32, 32)
            sheet = some.transpose(0, 2, 3, 1).reshape(-1, 32, 3)  # one image below another
            stream = io.BytesIO()
            Image.fromarray(sheet).save(stream, "WEBP", lossless=True, quality=60, method=4)
            yield f"{file}/{number:06}", stream.getvalue()


def join(parts: Sequence[Path], target: Path) -> None:
    """Write the files again, byte by byte, that :func:`split` read."""
    import numpy as np
    from PIL import Image

    found: dict[str, bytes] = {}
    for part in parts:
        with zipfile.ZipFile(part) as archive:
            found |= {name: archive.read(name) for name in archive.namelist()}
    target.mkdir(parents=True, exist_ok=True)
    for file in ("meta", "test", "train"):
        sheets = sorted(name for name in found if name.startswith(f"{file}/0"))
        pixels = b"".join(
            np.asarray(Image.open(io.BytesIO(found[name]))).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2).tobytes()
            for name in sheets
        )
        (target / file).write_bytes(found[f"{file}/before"] + pixels + found.get(f"{file}/after", b""))


def probe(device: str) -> dict[str, Any]:
    """Say what the machine is, and how long some operations take, in milliseconds."""
    import torch

    told: dict[str, Any] = {"torch": torch.__version__, "device": device}
    if device != "cpu":
        told["name"] = torch.cuda.get_device_name(device)

    def timed(work: Callable[[], object], repeats: int = 20) -> float:
        for turn in range(repeats + 3):
            if turn == 3:
                began = _settled(device)
            work()
        return round(1e3 * (_settled(device) - began) / repeats, 3)

    for layout in ("contiguous_format", "channels_last"):
        for dtype in ("float32", "bfloat16"):
            form: dict[str, Any] = {"dtype": getattr(torch, dtype), "memory_format": getattr(torch, layout)}
            layer = torch.nn.Conv2d(36, 36, 5, padding=2, groups=36, bias=False).to(device, **form)
            x = torch.randn(128, 36, 32, 32).to(device, **form).requires_grad_()
            step = functools.partial(_step, layer, x)
            told[f"depthwise 5x5, {layout}, {dtype}"] = timed(step, 5)
    side = 4096 if device != "cpu" else 512
    told[f"product of {side} x {side} matrices"] = timed(
        functools.partial(torch.mm, *torch.randn(2, side, side).to(device))
    )
    return told


def _step(layer: Callable[[Any], Any], x: Any) -> None:
    layer(x).sum().backward()


def _settled(device: str) -> float:
    import torch

    if device != "cpu":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def run(home: Path, seconds: float, common: Sequence[str], rows: dict[str, str] = ROWS, least: float = 25) -> bool:
    """Make or resume rows one after another; return whether none is left."""
    until = time.monotonic() + seconds
    home.mkdir(parents=True, exist_ok=True)
    for name, arguments in rows.items():
        ended = home / f"{name}.ended"
        if ended.exists():
            continue
        if (left := until - time.monotonic()) < least:
            return False
        print(f"== {name}: at most {left:.0f} s", flush=True)
        command = [sys.executable, "-P", "-m", "seu_bench", "run", *arguments.split(), *common]
        command += ["--results", str(home / "results"), "--max-seconds", f"{max(left - 12, 1):.0f}"]
        with (home / f"{name}.log").open("a") as log:
            environment = {**os.environ, "PYTHONPATH": str(home / "site"), "OMP_NUM_THREADS": "4"}
            status = subprocess.run(command, cwd=home, env=environment, stdout=log, stderr=log, check=False).returncode
        print(f"== {name}: exit status {status}", flush=True)
        if status != OUT_OF_TIME:
            ended.write_text(str(status))
        collect(home, rows)
        if status == OUT_OF_TIME:
            return False
    return True


def collect(home: Path, rows: dict[str, str] = ROWS) -> str:
    """Put the records, the logs and the table where results go, and return the table."""
    out = Path(os.environ.get("OUT", home))
    lines = [
        "| row | state | accuracy | paper | parameters (M) | mixed score | seconds | peak MiB |",
        "|" + " --- |" * 8,
    ]
    records = [json.loads(path.read_text()) for path in (home / "results").glob("runs/*/record.json")]
    for name in rows:
        log, paper = home / f"{name}.log", PAPER.get(name.split()[0], (None,))[0]
        told = log.read_text().splitlines() if log.exists() else []
        it = next((it for it in records if any(it["run_id"] in line for line in told)), None)
        if it is None:
            lines.append(f"| {name} | {told[-1] if told else 'not begun'} | - | {paper or '-'} | - | - | - | - |")
            continue
        metrics, params = it["metrics"], it["params_total"]
        numbers = [metrics.get("acc"), paper, params and params[-1] / 1e6, metrics.get("mixed_score"), it["seconds"]]
        peak = metrics.get("peak_memory_bytes")
        shown = [f"{it:.4g}" if it else "-" for it in (*numbers, peak and peak / 2**20)]
        lines.append(f"| {name} | {' | '.join([it['status'], *shown])} |")
    table = "\n".join(lines) + "\n"
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text(table)
    with tarfile.open(out / "records.tgz", "w:gz") as archive:
        for path in [*home.glob("*.log"), *home.glob("results/runs/*/*.json")]:
            archive.add(path, path.relative_to(home))
    return table


def install(code: Path, home: Path) -> None:
    """Install the wheels beside the script, and join the data, where that was not done."""
    if not (home / "site").is_dir() and (wheels := sorted(map(str, code.glob("*.whl")))):
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(home / "site")]
        subprocess.run([*pip, *wheels], check=True)
    parts = sorted(home.glob("part*.zip"))
    if parts and not (home / "data").is_dir():
        join(parts, home / "data" / "cifar-100-python")


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack, probe, run or collect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=("pack", "probe", "run", "collect"))
    parser.add_argument(
        "--data-root", type=Path, help="folder that has cifar-100-python; `run` has made-up images without"
    )
    parser.add_argument(
        "--home", type=Path, default=Path("/tmp/lend"), help="folder on the machine (default: %(default)s)"
    )
    parser.add_argument("--python", default="3.12", help="version on the machine (default: %(default)s)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--protocol", default="paper")
    parser.add_argument("--seconds", type=float, default=560.0, help="of this call (default: %(default)s)")
    given = parser.parse_args(arguments)
    code, home = Path(__file__).resolve().parent, given.home
    if given.do == "pack":
        parts = pack(given.data_root, Path(".lend"), given.python)
        for number, part in enumerate(parts, 1):
            what = f"mkdir -p {home} && cp {part}/part{number}.zip {home}/"
            print(f".lend/code and {part}:   {what} && python3 .lend/code/accelerator.py probe")
        print(".lend/code, again and again:   python3 -u .lend/code/accelerator.py run")
        return 0
    install(code, home)
    if given.do == "probe":
        print(json.dumps(probe(given.device), indent=1))
        return 0
    if given.do == "collect":
        print(collect(home))
        return 0
    data = given.data_root or home / "data"
    images = ("--data-root", str(data)) if data.is_dir() else ("--synthetic",)
    common = ("--benchmark", "split_cifar100", "--protocol", given.protocol, "--device", given.device, *images)
    finished = run(home, given.seconds, (*common, "--checkpoint-every", "60"))
    print(collect(home))
    print("no row is left" if finished else "rows are left: call again at once")
    return 0 if finished else OUT_OF_TIME


if __name__ == "__main__":
    sys.exit(main())
