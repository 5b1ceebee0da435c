"""Serve the classes of pictures over HTTP, by an ONNX file that ``seu-bench export RUN`` wrote.

    pip install fastapi uvicorn onnxruntime pillow
    MODEL=april.onnx uvicorn --factory app:create_app
    curl --data-binary @picture.png "localhost:8000/predict?top=3"

All that is needed to use the model is in the file: next month's takes its place, and the service is restarted.
"""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnxruntime
from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from numpy.typing import NDArray
from PIL import Image

#: The formats that seu-bench reads; Pillow's others are kept away from files of strangers.
FORMATS = ("BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")
MAX_BYTES, MAX_PIXELS = 10_000_000, 50_000_000


class Classifier:
    """A model from pixels to classes: what its input is, and what its outputs mean, is read from its file.

    Raises:
        ValueError: the file is none of a model of images.
    """

    def __init__(self, path: Path) -> None:
        self.session: Any = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        about, image = self.session.get_modelmeta().custom_metadata_map, self.session.get_inputs()[0]
        if "classes" not in about or image.name != "images":
            raise ValueError(f"{path} is no model of images that seu-bench exported")
        self.labels: list[str] = json.loads(about["classes"])
        self.about = {"run_id": about["run_id"], "task": about.get("task_name")}
        self.channels, self.is_float = image.shape[3], "float" in image.type

    def predict(self, content: bytes, top: int) -> list[dict[str, Any]]:
        """The most probable classes of a picture, the most probable one first."""
        pixels = decode(content, self.channels)[None]
        images = (pixels / 255).astype(np.float32) if self.is_float else pixels
        (shares,) = self.session.run(["probabilities"], {"images": images})[0]
        best = np.argsort(-shares, kind="stable")[:top]
        return [{"class": self.labels[place], "probability": float(shares[place])} for place in best]


def decode(content: bytes, channels: int) -> NDArray[np.uint8]:
    """Pixels ``[H, W, C]`` of the bytes of a file, as ``seu-bench predict`` reads them but for the size."""
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise HTTPException(413, f"{image.width} x {image.height} pixels: at most {MAX_PIXELS:,} are read")
            # Of channels with 16 bits Pillow reads the upper 8, without a word.
            if image.mode.startswith(("I", "F")) or re.search(r";16[BLN]", str(image.tile)):
                raise HTTPException(415, "pixels have more than 8 bits: save the picture with 8 bits a channel")
            coloured = image.convert("RGBA") if "transparency" in image.info and image.mode == "P" else image
            pixels = np.asarray(coloured.convert("L" if channels == 1 else "RGB"), dtype=np.uint8)
    except (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError) as error:
        raise HTTPException(415, f"the body is no picture that can be read: {error}") from error
    return pixels.reshape(*pixels.shape[:2], channels)


async def read_body(request: Request) -> bytes:
    """The body, of which no more is read than may be."""
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > MAX_BYTES:
            raise HTTPException(413, f"the file has more than {MAX_BYTES:,} bytes: send a smaller picture")
    if not content:
        raise HTTPException(400, "the body is empty: send the bytes of one picture (curl --data-binary @picture.png)")
    return content


def create_app(model: Path | None = None) -> FastAPI:
    """The service of a model, by default of the file that the environment variable ``MODEL`` names."""
    classifier = Classifier(model or Path(os.environ.get("MODEL", "model.onnx")))
    app = FastAPI(title="Classes of pictures")

    @app.get("/health")
    def health() -> dict[str, str]:
        return {"status": "ok", "run_id": classifier.about["run_id"]}

    @app.get("/labels")
    def labels() -> dict[str, Any]:
        return {**classifier.about, "labels": classifier.labels}

    @app.post("/predict")
    async def predict(request: Request, top: Annotated[int, Query(ge=1)] = 3) -> dict[str, Any]:
        content = await read_body(request)
        return {"top": await run_in_threadpool(classifier.predict, content, top)}

    return app
