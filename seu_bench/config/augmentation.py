"""Augmentation of training images, as a benchmark file asks for it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeInt

from seu_bench.config.options import Frozen


class Augmentation(Frozen):
    """What is drawn anew for each training image in each batch; nothing by default.

    In this order: crop, flip, brightness, contrast. Images that validate or test are as they are.
    """

    crop: NonNegativeInt = Field(
        0, description="pixels: that many black ones are added on each side, and a place of the old size is cut out"
    )
    flip: bool = Field(False, description="whether half of the images are mirrored, left to right")
    brightness: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="pixels are multiplied by a factor from 1 - brightness to 1 + brightness"
    )
    contrast: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="so are distances of pixels to the image's mean"
    )
