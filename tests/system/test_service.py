"""The example of a service: it answers pictures as ``seu-bench predict`` does, by whatever model file it is given."""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from sklearn.datasets import load_digits
from support.commands import Command

from seu_bench.engine.onnx_export import export_onnx

ROOT = Path(__file__).resolve().parents[2]
SERVICE = ROOT / "examples" / "service"
MONTHS = {"1-january": ("zero", "one"), "2-february": ("two", "three"), "3-march": ("four", "five", "six")}


@pytest.fixture(scope="module")
def app() -> ModuleType:
    spec = importlib.util.spec_from_file_location("service_app", SERVICE / "app.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, command: Command) -> Path:
    """Runs of two and of three months of digits, and pictures of other sizes and colours that none of them learned."""
    folder = tmp_path_factory.mktemp("service")
    digits, names = load_digits(), [name for names in MONTHS.values() for name in names]
    for month, classes in MONTHS.items():
        for name in classes:
            for number, digit in enumerate(digits.images[digits.target == names.index(name)][:60]):
                picture = Image.fromarray((digit * 15).astype(np.uint8))
                parents = (folder / "new",) if number < 10 else (folder / "three" / month, folder / "two" / month)
                for parent in parents[: 1 if month == "3-march" else 2]:
                    (parent / name).mkdir(parents=True, exist_ok=True)
                    larger = picture.resize((20 + number, 31)).convert("RGB") if number < 5 else picture
                    larger.save(parent / name / f"{number}.png")
    for months, strategy in (("two", "slda"), ("three", "replay")):
        asked = ("--benchmark", folder / months, "--strategy", strategy, "--results", folder)
        options = ("--data-root", folder / "data", "--protocol", "smoke", "-q")
        answer = command("run", *asked, *options)
        assert answer.status == 0, answer.err
        (folder / f"{months}.txt").write_text(answer.out.strip(), encoding="utf-8")
        export_onnx(answer.out.strip(), results=folder, output=folder / f"{months}.onnx")
    export_onnx((folder / "two.txt").read_text("utf-8"), pixels="float", results=folder, output=folder / "float.onnx")
    return folder


def predicted(folder: Path, months: str, command: Command) -> list[list[str]]:
    """Rows of ``seu-bench predict``: file, and the two most probable classes with their probabilities."""
    run = (folder / f"{months}.txt").read_text("utf-8")
    answer = command("predict", run, folder / "new", "--results", folder, "--format", "csv", "--top", 2)
    assert answer.status == 0, answer.err
    return list(csv.reader(io.StringIO(answer.out)))[1:]


@pytest.mark.long
@pytest.mark.parametrize(("model", "months"), [("two", "two"), ("float", "two"), ("three", "three")])
def test_answers_are_those_of_predict(app: ModuleType, folder: Path, command: Command, model: str, months: str) -> None:
    """Picture by picture; the next month's file, and one of floats, are served by the same code."""
    client = TestClient(app.create_app(folder / f"{model}.onnx"))
    run = (folder / f"{months}.txt").read_text("utf-8")
    assert client.get("/health").json() == {"status": "ok", "run_id": run}
    known = [name for names in [*MONTHS.values()][: 2 if months == "two" else 3] for name in sorted(names)]
    labels = client.get("/labels").json()
    assert labels["run_id"] == run and labels["task"] is None
    assert labels["labels"] == known
    rows = predicted(folder, months, command)
    assert len(rows) == 70
    for file, first, share, second, other in rows:
        answer = client.post("/predict?top=2", content=Path(file).read_bytes())
        assert answer.status_code == 200
        found = answer.json()["top"]
        assert found[0]["class"] == first and (float(other) < 1e-3 or found[1]["class"] == second)
        # Logits of slda are differences of large numbers, in 32 bits.
        assert [it["probability"] for it in found] == pytest.approx([float(share), float(other)], abs=2e-4)


def bytes_of(picture: Any, form: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, form, **options)
    return buffer.getvalue()


@pytest.mark.long
def test_what_is_refused(app: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No picture, half a picture, a wide one, one that is too large: with a status and a sentence; then it goes on."""
    client = TestClient(app.create_app(folder / "two.onnx"))
    good = bytes_of(Image.new("L", (9, 7)))
    half = bytes_of(Image.effect_noise((60, 60), 50))[:1500]
    deep = bytes_of(Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8)))
    monkeypatch.setattr(app, "MAX_BYTES", 20_000)
    monkeypatch.setattr(app, "MAX_PIXELS", 10_000)
    cases = [
        (b"", 400, "empty"),
        (b"not a picture", 415, "no picture"),
        (half, 415, "no picture"),
        (deep, 415, "8 bits"),
        (bytes_of(Image.new("L", (101, 100))), 413, "101 x 100 pixels"),
        (good + bytes(20_000), 413, "20,000 bytes"),
    ]
    for content, status, told in cases:
        answer = client.post("/predict", content=content)
        assert answer.status_code == status and told in answer.json()["detail"], answer.text
    assert client.post("/predict?top=0", content=good).status_code == 422
    assert client.get("/predict").status_code == 405
    transparent = Image.new("P", (9, 7))
    transparent.info["transparency"] = 0
    for content in (good, bytes_of(transparent, "GIF"), bytes_of(Image.new("CMYK", (9, 7)), "JPEG")):
        shares = client.post("/predict?top=99", content=content).json()["top"]
        assert len(shares) == 4 and sum(it["probability"] for it in shares) == pytest.approx(1, abs=1e-5)


def test_other_files_are_refused(app: ModuleType, tmp_path: Path) -> None:
    """A model of something else is refused when the service is started."""
    import onnx

    number = onnx.helper.make_tensor_value_info("features", onnx.TensorProto.FLOAT, [1])
    answer = onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Abs", ["features"], ["logits"])], "none", [number], [answer])
    model = onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 18)])
    (tmp_path / "other.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ValueError, match=r"other\.onnx is no model of images"):
        app.create_app(tmp_path / "other.onnx")


@pytest.fixture
def server(folder: Path) -> Iterator[str]:
    """The address of the service in a process of its own, as the Dockerfile starts it."""
    command = [sys.executable, "-m", "uvicorn", "--factory", "app:create_app", "--port", "0"]
    process = subprocess.Popen(
        command, cwd=SERVICE, env=os.environ | {"MODEL": str(folder / "two.onnx")}, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        yield next(found[0] for line in lines if (found := re.search(r"http://[\d.:]+", line)))
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.long
def test_client_prints_what_predict_prints(folder: Path, command: Command, server: str) -> None:
    """From a real server, by the example's own client; a file that is refused is named, and the others answered."""
    rows = predicted(folder, "two", command)
    (folder / "bad.png").write_text("no picture", encoding="utf-8")
    asked = [sys.executable, str(SERVICE / "client.py"), server, str(folder / "bad.png"), *(row[0] for row in rows)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith(f"{folder / 'bad.png'}: the body is no picture"), done.stderr
    found = list(csv.reader(io.StringIO(done.stdout)))
    assert found[0] == ["file", "class_1", "probability_1"]
    assert [row[:2] for row in found[1:]] == [row[:2] for row in rows]
